//! Texts of a log, as far as they are kept.

/// Longest text that is kept of a name, a reason, an explanation or a hint, in characters.
const MAX_CHARS: usize = 600;

/// The beginning of a text.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text.to_owned(),
    }
}

/// A guard as one line, without the stack that newer versions add.
pub(super) fn one_line(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or_default();
    short(&first.split_whitespace().collect::<Vec<_>>().join(" "))
}

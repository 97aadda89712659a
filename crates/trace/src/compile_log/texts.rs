//! Shortens the texts of a log before they are stored.

/// Maximum length of a name, a reason, an explanation or a hint that is kept, in characters.
const MAX_CHARS: usize = 600;

/// Returns the beginning of a text, up to the maximum length.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text.to_owned(),
    }
}

/// Returns a guard as one line, without the stack that newer versions append.
pub(super) fn one_line(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or_default();
    short(&first.split_whitespace().collect::<Vec<_>>().join(" "))
}

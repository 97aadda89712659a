//! Makes names from a job safe to print, so that they can't control a terminal or change the
//! direction of text.

/// Whether a character sets the direction of the text around it.
fn sets_direction(c: char) -> bool {
    let marks = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    marks || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the character, or a replacement if it would affect the text around it.
pub fn printable(c: char) -> char {
    if c.is_control() || sets_direction(c) { '\u{fffd}' } else { c }
}

/// Replaces the characters that change the direction of a text. Line breaks and other control
/// characters stay.
pub fn replace_direction_marks(text: &mut String) {
    if text.chars().any(sets_direction) {
        *text = text.chars().map(|c| if sets_direction(c) { '\u{fffd}' } else { c }).collect();
    }
}

/// Replaces all characters of a text that are not printable.
pub fn printable_text(text: &str) -> String {
    text.chars().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_change_the_text_around_them_are_replaced() {
        assert_eq!(
            printable_text("a\u{202e}b\u{1b}[c\u{61c}d\u{2067}"),
            "a\u{fffd}b\u{fffd}[c\u{fffd}d\u{fffd}"
        );
        assert_eq!(printable_text("größe \u{2028} שלום 行列 🦀"), "größe \u{2028} שלום 行列 🦀");
    }
}

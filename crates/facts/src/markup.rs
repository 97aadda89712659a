//! Escapes text for HTML and XML.

use crate::printable::printable;

/// Escapes text for HTML and XML, both for the content of elements and for quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            // Neither allows these and control characters, not even as references.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(printable(c)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_in_elements_and_attributes() {
        assert_eq!(escape("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
        assert_eq!(escape("a\n\tb"), "a\n\tb");
    }

    #[test]
    fn characters_that_a_document_cannot_hold_are_replaced() {
        assert_eq!(escape("a\u{0}b\u{1b}[c\r\u{ffff}"), "a\u{fffd}b\u{fffd}[c\u{fffd}\u{fffd}");
        assert_eq!(escape("evil\u{202e}gnp.exe"), "evil\u{fffd}gnp.exe");
    }
}

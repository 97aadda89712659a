//! Measures text in terminal columns, where a wide character takes two.

use std::io::IsTerminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of a page outside a terminal, in columns.
pub const USUAL: usize = 80;
/// Width in columns below which a terminal wraps lines.
const LEAST: usize = 60;
/// Width in columns beyond which a line is hard to follow.
const MOST: usize = 200;

/// Width of a page on stdout: that of the terminal, from 60 to 200 columns.
pub fn of_stdout() -> usize {
    let stdout = std::io::stdout();
    match terminal_size::terminal_size_of(&stdout).filter(|_| stdout.is_terminal()) {
        Some((width, _)) => usize::from(width.0).clamp(LEAST, MOST),
        None => USUAL,
    }
}

/// Number of columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Pads text with spaces on its right, up to `columns`.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

/// Pads text with spaces on its left, up to `columns`.
pub fn right(text: &str, columns: usize) -> String {
    format!("{:1$}{text}", "", columns.saturating_sub(width(text)))
}

/// Shortens text to at most `columns` by leaving out its middle.
pub fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    // The beginning is more useful than the end, but some of the end always stays.
    let room = columns.saturating_sub(1);
    let head = room * 3 / 5;
    let start: String = fitting(text.chars(), head).collect();
    let end: Vec<char> = fitting(text.chars().rev(), room - head).collect();
    format!("{start}\u{2026}{}", end.iter().rev().collect::<String>())
}

/// Cuts text to at most `columns`.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let start: String = fitting(text.chars(), columns.saturating_sub(1)).collect();
    format!("{start}\u{2026}")
}

/// Returns the first characters that fit.
fn fitting(chars: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    chars.scan(0, move |used, c| {
        *used += c.width().unwrap_or(0);
        (*used <= columns).then_some(c)
    })
}

/// Replaces a character that would control the terminal.
pub fn printable(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        c => tprof_facts::printable::printable(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghijk", 6), "abc\u{2026}jk");
        assert_eq!(shorten("abc", 1), "\u{2026}");
        assert_eq!(cut("abcdefghijk", 6), "abcde\u{2026}");
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        assert_eq!(width("行列乘法"), 8);
        assert_eq!(left("行列", 6), "行列  ");
        assert_eq!(right("行列", 6), "  行列");
        let cut = shorten("行列乘法行列乘法", 9);
        assert_eq!(cut, "行列\u{2026}乘法");
        assert!(width(&cut) <= 9, "{cut}");
    }
}

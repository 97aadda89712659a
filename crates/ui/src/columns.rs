//! Measures text in terminal columns. A wide character takes two columns.

use std::io::IsTerminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of a page in columns, if stdout is not a terminal.
pub const USUAL: usize = 80;
/// Smallest width of a page in columns. A narrower terminal wraps the lines.
const LEAST: usize = 60;
/// Largest width of a page in columns. Longer lines are hard to read.
const MOST: usize = 200;

/// Returns the width of a page on stdout: that of the terminal, but at least 60 columns and at
/// most 200.
pub fn of_stdout() -> usize {
    let stdout = std::io::stdout();
    match terminal_size::terminal_size_of(&stdout).filter(|_| stdout.is_terminal()) {
        Some((width, _)) => usize::from(width.0).clamp(LEAST, MOST),
        None => USUAL,
    }
}

/// Returns the number of columns that a text takes.
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

/// Shortens text to at most `columns` (1 or more) by leaving out its middle.
pub fn shorten(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    // The beginning gets three fifths of the room, because it is more useful than the end.
    let room = columns.saturating_sub(1);
    let head = room * 3 / 5;
    let start: String = prefix_that_fits(text.chars(), head).collect();
    let end: Vec<char> = prefix_that_fits(text.chars().rev(), room - head).collect();
    format!("{start}\u{2026}{}", end.iter().rev().collect::<String>())
}

/// Cuts text to at most `columns` (1 or more), with an ellipsis at the end.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let start: String = prefix_that_fits(text.chars(), columns.saturating_sub(1)).collect();
    format!("{start}\u{2026}")
}

/// Returns the longest beginning of the text that fits into `columns`.
fn prefix_that_fits(
    chars: impl Iterator<Item = char>,
    columns: usize,
) -> impl Iterator<Item = char> {
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

//! Reads the lines of a source one at a time, in bounded memory.

use std::io::{self, BufRead, Read};

/// Maximum length of a line that is read, bytes. A longer line is damaged.
const MAX_LINE: u64 = 16 << 20;

/// A line of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub content: LineContent<'a>,
    /// Size of the line including its end, bytes.
    pub bytes: u64,
    pub has_end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineContent<'a> {
    /// The text of the line, without its end.
    Text(&'a [u8]),
    /// The line is longer than [`MAX_LINE`].
    TooLong,
    /// The line contains zero bytes. tprof cuts a hole into the middle of a log that is longer than
    /// its bound. The incomplete lines before and after the hole count as one line with it.
    Hole,
}

/// Reads a log line by line.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    /// Number of bytes that may still be read.
    left: u64,
    /// Whether the last line had an end.
    pub is_ended: bool,
    /// Whether the source has more bytes than were read.
    pub has_more: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads at most `most` bytes of a source.
    pub(super) fn new(source: R, most: u64) -> Lines<R> {
        Lines { source, buffer: Vec::new(), left: most, is_ended: true, has_more: false }
    }

    /// Returns the next line; `None` at the end of the source or of the bound.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let (mut bytes, mut parts, mut has_zeros) = (0, 0_u32, false);
        loop {
            self.buffer.clear();
            let most = MAX_LINE.min(self.left);
            let read = self.source.by_ref().take(most).read_until(b'\n', &mut self.buffer)? as u64;
            if read == 0 {
                break;
            }
            bytes += read;
            parts += 1;
            has_zeros |= self.buffer.contains(&0);
            self.is_ended = self.buffer.last() == Some(&b'\n');
            self.left -= read;
            if self.left == 0 {
                self.has_more = !self.source.fill_buf()?.is_empty();
            }
            if self.is_ended || read < MAX_LINE {
                break;
            }
        }
        let content = match (has_zeros, parts) {
            (_, 0) => return Ok(None),
            (true, _) => LineContent::Hole,
            (false, 1) => {
                LineContent::Text(self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer))
            }
            (false, _) => LineContent::TooLong,
        };
        Ok(Some(Line { content, bytes, has_end: self.is_ended }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(source: &[u8], most: u64) -> (Vec<Line<'static>>, bool) {
        let mut lines = Lines::new(source, most);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let content = match line.content {
                LineContent::Text(text) => LineContent::Text(text.to_vec().leak()),
                LineContent::TooLong => LineContent::TooLong,
                LineContent::Hole => LineContent::Hole,
            };
            found.push(Line { content, ..line });
        }
        (found, lines.has_more)
    }

    const fn text(text: &[u8], has_end: bool) -> Line<'_> {
        let bytes = text.len() as u64 + has_end as u64;
        Line { content: LineContent::Text(text), bytes, has_end }
    }

    #[test]
    fn lines_have_their_ends_and_holes_are_reported() {
        let (lines, has_more) = all(b"a\n\n\0\0b\nlast", 100);
        let hole = Line { content: LineContent::Hole, bytes: 4, has_end: true };
        assert_eq!(lines, [text(b"a", true), text(b"", true), hole, text(b"last", false)]);
        assert!(!has_more);
    }

    #[test]
    fn bytes_beyond_the_bound_are_not_read() {
        assert_eq!(all(b"a\nbcd\n", 4), (vec![text(b"a", true), text(b"bc", false)], true));
        assert_eq!(all(b"a\nb", 2), (vec![text(b"a", true)], true));
        assert_eq!(all(b"a\n", 2), (vec![text(b"a", true)], false));
    }

    #[test]
    fn an_overlong_line_counts_as_one_line() {
        let mut source = vec![b'x'; MAX_LINE as usize + 10];
        source.extend_from_slice(b"\nnext\n");
        let (lines, _) = all(&source, u64::MAX);
        let long = Line { content: LineContent::TooLong, bytes: MAX_LINE + 11, has_end: true };
        assert_eq!(lines, [long, text(b"next", true)]);
    }
}

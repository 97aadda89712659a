//! JSON and numbers as text, appended to a buffer.

use std::io::Write;

/// A buffer of text on its way to a file.
#[derive(Debug, Default)]
pub(crate) struct Text {
    bytes: Vec<u8>,
}

impl Text {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends text as it is.
    #[inline]
    pub fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends another text.
    pub fn append(&mut self, other: &Text) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Appends a JSON string.
    pub fn string(&mut self, text: &str) {
        self.bytes.push(b'"');
        let mut rest = text.as_bytes();
        while let Some(at) = rest.iter().position(|b| *b < 0x20 || matches!(b, b'"' | b'\\' | 0x7f))
        {
            self.bytes.extend_from_slice(&rest[..at]);
            match rest[at] {
                b'"' => self.bytes.extend_from_slice(b"\\\""),
                b'\\' => self.bytes.extend_from_slice(b"\\\\"),
                b'\n' => self.bytes.extend_from_slice(b"\\n"),
                b'\t' => self.bytes.extend_from_slice(b"\\t"),
                byte => {
                    let hex = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                    self.bytes.extend_from_slice(b"\\u00");
                    self.bytes.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
                }
            }
            rest = &rest[at + 1..];
        }
        self.bytes.extend_from_slice(rest);
        self.bytes.push(b'"');
    }

    /// Appends a whole number.
    #[inline]
    pub fn uint(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    /// Appends a number; what JSON has no number for is `null`.
    pub fn float(&mut self, value: f64) {
        if !value.is_finite() {
            return self.raw("null");
        }
        // Writing to memory cannot fail. The shortest text that reads back as the same number.
        let _ = match value.fract() == 0.0 && value.abs() < 9e15 {
            true => write!(self.bytes, "{}", value as i64),
            false => write!(self.bytes, "{value}"),
        };
    }

    /// Appends nanoseconds as microseconds, exactly.
    #[inline]
    pub fn micros(&mut self, ns: u64) {
        self.uint(ns / 1000);
        let rest = (ns % 1000) as u16;
        if rest > 0 {
            let digit = |n: u16| b'0' + (n % 10) as u8;
            self.bytes.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
            while self.bytes.last() == Some(&b'0') {
                self.bytes.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fill: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::default();
        fill(&mut text);
        String::from_utf8(text.bytes).unwrap()
    }

    #[test]
    fn strings_read_back_as_they_were() {
        for said in ["", "plain", "\"\\\n\t\r\u{0}\u{1f}\u{7f}", "größe \u{2028} 🦀", "a\"b"] {
            let json = text(|t| t.string(said));
            assert!(json.bytes().all(|byte| byte >= 0x20 && byte != 0x7f), "{json:?}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), said);
        }
    }

    #[test]
    fn times_are_exact() {
        for (ns, micros) in [
            (0, "0"),
            (1, "0.001"),
            (1_100, "1.1"),
            (u64::MAX, "18446744073709551.615"),
            (5_000, "5"),
        ] {
            assert_eq!(text(|t| t.micros(ns)), micros);
        }
        assert_eq!(text(|t| t.float(0.1)), "0.1");
        assert_eq!(text(|t| t.float(-3.0)), "-3");
        assert_eq!(text(|t| t.float(f64::NAN)), "null");
    }
}

//! Appends JSON and numbers to a text buffer.

use serde::Serialize;

/// A double below this limit that has no fraction is written as a whole number.
const WHOLE: f64 = 9e15;

/// A buffer of text that will be written to a file.
#[derive(Debug, Default)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// Returns the text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the text, but not the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends text without escaping it.
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
        self.json(text);
    }

    /// Appends a whole number.
    #[inline]
    pub fn uint(&mut self, value: u64) {
        self.raw(itoa::Buffer::new().format(value));
    }

    /// Appends a number; `null` for a value that JSON cannot represent.
    pub fn float(&mut self, value: f64) {
        match value.fract() == 0.0 && value.abs() < WHOLE {
            true => self.raw(itoa::Buffer::new().format(value as i64)),
            false => self.json(&value),
        }
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) {
        // Writing to memory cannot fail, and a string or a number can always be serialized.
        let _ = serde_json::to_writer(&mut self.bytes, value);
    }

    /// Appends a time in nanoseconds as microseconds, without rounding.
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
    fn strings_are_read_back_unchanged() {
        for plain in ["", "plain", "\"\\\n\t\r\u{0}\u{1f}\u{7f}", "größe \u{2028} 🦀", "a\"b"] {
            let json = text(|t| t.string(plain));
            assert!(json.bytes().all(|byte| byte >= 0x20), "{json:?}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), plain);
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

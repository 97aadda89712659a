//! Writes Python pickles of plain values: protocol 4, with the opcodes that Python's own writer
//! uses.

use std::collections::HashMap;

use serde_json::Value;

/// The number of items in a batch, as Python's own writer has it.
const MOST_ITEMS: usize = 1000;

/// The number under which a value is stored in the memo of the program that loads the pickle.
pub(crate) type Memo = u32;

/// A pickle that is being written. The caller must call the methods in the right order:
/// `begin_dict`, then keys and values in turn, then `end_dict`.
#[derive(Debug)]
pub(crate) struct Pickle {
    bytes: Vec<u8>,
    texts: HashMap<String, Memo>,
    memos: Memo,
}

impl Pickle {
    pub fn new() -> Pickle {
        Pickle { bytes: vec![0x80, 4], texts: HashMap::new(), memos: 0 }
    }

    /// Ends the pickle and returns its bytes. Exactly one value must have been written.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// Memoizes the value that was just written. Texts are memoized automatically.
    pub fn memoize(&mut self) -> Memo {
        self.bytes.push(0x94);
        self.memos += 1;
        self.memos - 1
    }

    /// Writes a reference to a memoized value.
    pub fn write_memoized(&mut self, memo: Memo) {
        match u8::try_from(memo) {
            Ok(memo) => self.bytes.extend_from_slice(&[b'h', memo]),
            Err(_) => {
                self.bytes.push(b'j');
                self.bytes.extend_from_slice(&memo.to_le_bytes());
            }
        }
    }

    pub fn text(&mut self, text: &str) {
        if let Some(memo) = self.texts.get(text) {
            return self.write_memoized(*memo);
        }
        match (u8::try_from(text.len()), u32::try_from(text.len())) {
            (Ok(length), _) => self.bytes.extend_from_slice(&[0x8c, length]),
            (_, Ok(length)) => {
                self.bytes.push(b'X');
                self.bytes.extend_from_slice(&length.to_le_bytes());
            }
            _ => {
                self.bytes.push(0x8d);
                self.bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text.as_bytes());
        let memo = self.memoize();
        self.texts.insert(text.to_owned(), memo);
    }

    pub fn integer(&mut self, number: i128) {
        if let Ok(number) = u8::try_from(number) {
            return self.bytes.extend_from_slice(&[b'K', number]);
        }
        if let Ok(number) = i32::try_from(number) {
            self.bytes.push(b'J');
            return self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        // PyTorch's viewer reads a number of more than eight bytes as one that can't be added to others.
        let bytes = number.to_le_bytes();
        let extends = |length: &usize| {
            let fill = if bytes[length - 1] < 0x80 { 0 } else { 0xff };
            bytes[*length..].iter().all(|byte| *byte == fill)
        };
        let length = (1..bytes.len()).find(extends).unwrap_or(bytes.len());
        self.bytes.extend_from_slice(&[0x8a, length as u8]);
        self.bytes.extend_from_slice(&bytes[..length]);
    }

    pub fn flag(&mut self, flag: bool) {
        self.bytes.push(if flag { 0x88 } else { 0x89 });
    }

    pub fn none(&mut self) {
        self.bytes.push(b'N');
    }

    /// Writes a tuple of two numbers.
    pub fn pair(&mut self, first: u64, second: u64) {
        self.integer(first.into());
        self.integer(second.into());
        self.bytes.push(0x86);
    }

    pub fn begin_list(&mut self) {
        self.bytes.extend_from_slice(b"](");
    }

    /// Begins a new batch of a list's items after each thousand of them; `count` is the number of items
    /// so far. PyTorch's viewer can't read a batch of a few hundred thousand, because it passes the
    /// items as arguments of a call.
    pub fn end_item(&mut self, count: usize) {
        if count.is_multiple_of(MOST_ITEMS) {
            self.bytes.extend_from_slice(b"e(");
        }
    }

    pub fn end_list(&mut self) {
        self.bytes.push(b'e');
    }

    pub fn begin_dict(&mut self) {
        self.bytes.extend_from_slice(b"}(");
    }

    pub fn end_dict(&mut self) {
        self.bytes.push(b'u');
    }

    /// Writes a JSON value. The recursion is as deep as the value, which the JSON parser has
    /// limited.
    pub fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.none(),
            Value::Bool(flag) => self.flag(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => self.integer(number.into()),
                (_, Some(number)) => self.integer(number.into()),
                _ => {
                    self.bytes.push(b'G');
                    let number = number.as_f64().unwrap_or(f64::NAN);
                    self.bytes.extend_from_slice(&number.to_be_bytes());
                }
            },
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.begin_list();
                items.iter().for_each(|item| self.json(item));
                self.end_list();
            }
            Value::Object(members) => {
                self.begin_dict();
                for (key, value) in members {
                    self.text(key);
                    self.json(value);
                }
                self.end_dict();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_short_as_by_pythons_own_writer() {
        let of = |number: i128| {
            let mut pickle = Pickle::new();
            pickle.integer(number);
            pickle.finish()[2..].to_vec()
        };
        assert_eq!(of(255), b"K\xff.");
        assert_eq!(of(-1), b"J\xff\xff\xff\xff.");
        assert_eq!(of(0x8000_0000), b"\x8a\x05\0\0\0\x80\0.");
        assert_eq!(of(0x7f12_3456_7890), b"\x8a\x06\x90\x78\x56\x34\x12\x7f.");
        assert_eq!(of(-0x8000_0001), b"\x8a\x05\xff\xff\xff\x7f\xff.");
        assert_eq!(of(u64::MAX.into()), b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.");
    }

    #[test]
    fn long_lists_are_written_in_batches() {
        let mut pickle = Pickle::new();
        pickle.begin_list();
        for count in 1..=2001 {
            pickle.none();
            pickle.end_item(count);
        }
        pickle.end_list();
        let bytes = pickle.finish();
        let batches = bytes[3..].split(|byte| *byte == b'e').map(|batch| batch.len());
        assert_eq!(batches.collect::<Vec<_>>(), [1001, 1001, 2, 1]);
    }
}

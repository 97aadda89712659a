//! Writes Python pickles of plain values: protocol 4, with the opcodes that Python's own writer
//! uses.

use std::collections::HashMap;

use serde_json::Value;

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
        self.bytes.extend_from_slice(&[0x8a, 16]);
        self.bytes.extend_from_slice(&number.to_le_bytes());
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

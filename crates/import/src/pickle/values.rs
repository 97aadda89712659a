//! Values of a pickle, by number.

/// A value. What holds others is a place in the [`Arena`]; a copy of it is the same object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer from 2^63 on.
    Large(u64),
    Float(f64),
    /// A text: its first byte in the input, and its length.
    Text(u32, u32),
    /// A list: its place among the sequences.
    List(u32),
    /// A tuple: the same.
    Tuple(u32),
    /// A dictionary: its place among the dictionaries.
    Dict(u32),
}

impl Value {
    /// The kind, as Python calls it.
    pub fn kind(self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Large(_) => "int",
            Value::Float(_) => "float",
            Value::Text(..) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
        }
    }

    /// A number that is not negative.
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Large(number) => Some(number),
            Value::Bool(flag) => Some(flag.into()),
            _ => None,
        }
    }
}

/// Everything that a pickle holds.
#[derive(Debug, Default)]
pub(crate) struct Arena<'i> {
    pub(super) input: &'i [u8],
    pub(super) sequences: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Vec<(Value, Value)>>,
}

impl<'i> Arena<'i> {
    /// The bytes of a text: UTF-8, or with Python's lone surrogates in it.
    pub fn text(&self, value: Value) -> Option<&'i [u8]> {
        match value {
            Value::Text(at, length) => self.input.get(at as usize..)?.get(..length as usize),
            _ => None,
        }
    }

    /// Items of a list or a tuple.
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(at) | Value::Tuple(at) => {
                self.sequences.get(at as usize).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// Keys and values of a dictionary, in the order in which they were set.
    pub fn pairs(&self, value: Value) -> Option<&[(Value, Value)]> {
        match value {
            Value::Dict(at) => self.dicts.get(at as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// What a dictionary has under a key; of several the last, as in Python.
    pub fn get(&self, value: Value, key: &str) -> Option<Value> {
        let pairs = self.pairs(value)?.iter().rev();
        pairs.clone().find(|(name, _)| self.text(*name) == Some(key.as_bytes())).map(|row| row.1)
    }
}

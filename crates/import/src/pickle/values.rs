//! Stores the values of a pickle, and looks them up by number.

/// A value. A container is an index into the [`Arena`], so that a copy refers to the same object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of at least 2^63.
    Large(u64),
    Float(f64),
    /// A text: the position of its first byte in the input, and its length.
    Text(u32, u32),
    /// A list: its index among the sequences.
    List(u32),
    /// A tuple: its index among the sequences.
    Tuple(u32),
    /// A dictionary: its index among the dictionaries.
    Dict(u32),
}

impl Value {
    /// Returns the name of the type in Python.
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

    /// Returns the number if it is not negative.
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Large(number) => Some(number),
            Value::Bool(flag) => Some(flag.into()),
            _ => None,
        }
    }
}

/// All objects of a pickle.
#[derive(Debug, Default)]
pub(crate) struct Arena<'i> {
    pub(super) input: &'i [u8],
    pub(super) sequences: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Vec<(Value, Value)>>,
}

impl<'i> Arena<'i> {
    /// Returns the bytes of a text: UTF-8, possibly with Python's lone surrogates in it.
    pub fn text(&self, value: Value) -> Option<&'i [u8]> {
        match value {
            Value::Text(at, length) => self.input.get(at as usize..)?.get(..length as usize),
            _ => None,
        }
    }

    /// Returns the items of a list or a tuple.
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(at) | Value::Tuple(at) => {
                self.sequences.get(at as usize).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// Returns the keys and values of a dictionary, in the order in which they were set.
    pub fn pairs(&self, value: Value) -> Option<&[(Value, Value)]> {
        match value {
            Value::Dict(at) => self.dicts.get(at as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns the value under a key of a dictionary; if there are several, the last, as in Python.
    pub fn get(&self, value: Value, key: &str) -> Option<Value> {
        let pairs = self.pairs(value)?.iter().rev();
        pairs.clone().find(|(name, _)| self.text(*name) == Some(key.as_bytes())).map(|row| row.1)
    }
}

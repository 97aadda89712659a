//! Stores columns of values in memory.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cell::{Cell, Type};

/// Values of a column, one for each row.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// For each row, whether it has a value. If not, its element in `values` has no meaning.
    pub valid: Vec<bool>,
    /// Number of rows without a value.
    pub nulls: usize,
    /// The values, one for each row.
    pub values: Values,
}

/// Values by type.
#[derive(Clone, Debug)]
pub enum Values {
    /// Values of [`Type::Int`].
    Int(Vec<i64>),
    /// Values of [`Type::Id`].
    Id(Vec<i32>),
    /// Values of [`Type::Float`].
    Float(Vec<f64>),
    /// Values of [`Type::Bool`].
    Bool(Vec<bool>),
    /// Values of [`Type::Text`].
    Text(Texts),
}

impl Default for Values {
    fn default() -> Values {
        Values::Int(Vec::new())
    }
}

/// The texts of a column; each different text is stored once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// For each row, the index of its text in `distinct`.
    pub keys: Vec<u32>,
    /// The different texts.
    pub distinct: Vec<Arc<str>>,
    known: FxHashMap<Arc<str>, u32>,
    /// Address, length and index of the previous text. Most rows have the same text as the previous
    /// row, so comparing addresses saves a look-up.
    last: Option<(usize, usize, u32)>,
}

impl Texts {
    #[inline]
    fn push(&mut self, text: &str) {
        let place = (text.as_ptr() as usize, text.len());
        if let Some((address, length, key)) = self.last
            && (address, length) == place
            && *self.distinct[key as usize] == *text
        {
            self.keys.push(key);
            return;
        }
        let key = match self.known.get(text) {
            Some(key) => *key,
            None => {
                let (key, text) = (self.distinct.len() as u32, Arc::<str>::from(text));
                self.distinct.push(text.clone());
                self.known.insert(text, key);
                key
            }
        };
        self.last = Some((place.0, place.1, key));
        self.keys.push(key);
    }
}

impl Data {
    /// Creates an empty column.
    pub fn new(kind: Type) -> Data {
        let values = match kind {
            Type::Int => Values::Int(Vec::new()),
            Type::Id => Values::Id(Vec::new()),
            Type::Float => Values::Float(Vec::new()),
            Type::Bool => Values::Bool(Vec::new()),
            Type::Text => Values::Text(Texts::default()),
        };
        Data { valid: Vec::new(), nulls: 0, values }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.valid.is_empty()
    }

    /// Appends the value of a row. A value of another type than the column's, or one that does not
    /// fit this type, becomes null.
    #[inline]
    pub fn push(&mut self, cell: Cell<'_>) {
        let fits = match (&mut self.values, cell) {
            (Values::Int(values), Cell::Int(value)) => {
                values.push(value);
                true
            }
            (Values::Id(values), Cell::Int(value)) => {
                let value = i32::try_from(value);
                values.push(value.unwrap_or_default());
                value.is_ok()
            }
            (Values::Float(values), Cell::Float(value)) => {
                values.push(value);
                true
            }
            (Values::Bool(values), Cell::Bool(value)) => {
                values.push(value);
                true
            }
            (Values::Text(texts), Cell::Text(text)) => {
                texts.push(text);
                true
            }
            (values, _) => {
                match values {
                    Values::Int(values) => values.push(0),
                    Values::Id(values) => values.push(0),
                    Values::Float(values) => values.push(0.0),
                    Values::Bool(values) => values.push(false),
                    Values::Text(texts) => texts.keys.push(0),
                }
                false
            }
        };
        self.valid.push(fits);
        self.nulls += usize::from(!fits);
    }

    /// Appends this many rows with the same value.
    pub fn push_all(&mut self, cell: Cell<'_>, rows: usize) {
        if rows == 0 {
            return;
        }
        self.push(cell);
        let more = rows - 1;
        fn repeat<T: Copy>(values: &mut Vec<T>, more: usize) {
            let last = *values.last().expect("a value was pushed");
            values.resize(values.len() + more, last);
        }
        match &mut self.values {
            Values::Int(values) => repeat(values, more),
            Values::Id(values) => repeat(values, more),
            Values::Float(values) => repeat(values, more),
            Values::Bool(values) => repeat(values, more),
            Values::Text(texts) => repeat(&mut texts.keys, more),
        }
        repeat(&mut self.valid, more);
        self.nulls += if self.valid.last() == Some(&false) { more } else { 0 };
    }

    /// Removes all rows, but not the allocated memory. The texts stay in `distinct`, because most
    /// of them occur again.
    pub fn clear(&mut self) {
        self.valid.clear();
        self.nulls = 0;
        match &mut self.values {
            Values::Int(values) => values.clear(),
            Values::Id(values) => values.clear(),
            Values::Float(values) => values.clear(),
            Values::Bool(values) => values.clear(),
            Values::Text(texts) => texts.keys.clear(),
        }
    }
}

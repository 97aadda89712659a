//! Defines the contents of a table's cells.

use tprof_rank::base::reading::Reading;

/// A value of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Words, or a name.
    Text(String),
    /// A number that is never negative.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Flag(bool),
}

impl Value {
    /// The value as a number, for sorting and drawing.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Unsigned(value) => Some(*value as f64),
            Value::Signed(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            Value::Text(_) | Value::Flag(_) => None,
        }
    }
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The value was measured.
    Is(Value),
    /// Estimated: the truth lies within `error` of `value` in 95 cases of 100.
    Estimate {
        /// The best estimate of the value.
        value: Value,
        /// Half the width of the interval.
        error: Value,
    },
    /// The value is not known; the text is the reason.
    Missing(String),
    /// The column does not apply to this row.
    Empty,
}

impl Cell {
    /// Returns a cell without a value, for this reason.
    pub fn missing(why: impl Into<String>) -> Cell {
        Cell::Missing(why.into())
    }

    /// The value, measured or estimated.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Cell::Is(value) | Cell::Estimate { value, .. } => Some(value),
            Cell::Missing(_) | Cell::Empty => None,
        }
    }

    /// Returns a cell with the value, or [`Cell::Empty`] for `None`: the column does not apply to
    /// the row.
    pub fn applies<T: Into<Cell>>(value: Option<T>) -> Cell {
        value.map_or(Cell::Empty, Into::into)
    }

    /// Returns a cell with the value, or for `None` with the reason why it is missing.
    pub fn known<T: Into<Cell>>(value: Option<T>, why: &str) -> Cell {
        value.map_or_else(|| Cell::missing(why), Into::into)
    }
}

macro_rules! cell_of {
    ($($type:ty => $variant:ident $(as $wide:ty)?),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$variant(value $(as $wide)?)
            }
        }
        impl From<$type> for Cell {
            fn from(value: $type) -> Cell {
                Cell::Is(value.into())
            }
        }
    )*};
}
cell_of! {
    u64 => Unsigned,
    u32 => Unsigned as u64,
    usize => Unsigned as u64,
    i64 => Signed,
    f64 => Float,
    bool => Flag,
    String => Text,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        text.to_owned().into()
    }
}

impl<T: Into<Value>> From<Reading<T>> for Cell {
    fn from(reading: Reading<T>) -> Cell {
        match reading {
            Reading::Is(value) => Cell::Is(value.into()),
            Reading::Estimate { value, error } => {
                Cell::Estimate { value: value.into(), error: error.into() }
            }
            Reading::Missing(why) => Cell::Missing(why),
        }
    }
}

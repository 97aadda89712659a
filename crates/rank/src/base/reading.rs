//! Defines [`Reading`]: a number, or the reason why it is missing.
//!
//! Unknown is not zero: a number that was not measured has no value and has a reason, and an
//! estimate carries its error. In JSON, a measured reading named `key` is only its value. An
//! estimate also has `error_key`, half the width of its 95 % interval. A missing reading is `null`,
//! and `key_missing` has the reason.

use serde::Serialize;
use serde::ser::SerializeMap;

/// A measured value, an estimated one, or the reason for a missing one.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading<T> {
    /// The value was measured.
    Is(T),
    /// Estimated: the truth lies within `error` of `value` in 95 cases of 100, or always if the
    /// metric's documentation says so.
    Estimate {
        /// The best estimate of the value.
        value: T,
        /// Half the width of the interval.
        error: T,
    },
    /// The value is not known; the text is the reason.
    Missing(String),
}

impl<T> Reading<T> {
    /// Returns a reading without a value, for this reason.
    pub fn missing(why: impl Into<String>) -> Self {
        Reading::Missing(why.into())
    }

    /// The value, measured or estimated.
    pub fn value(&self) -> Option<&T> {
        match self {
            Reading::Is(value) | Reading::Estimate { value, .. } => Some(value),
            Reading::Missing(_) => None,
        }
    }

    /// The error of an estimate.
    pub fn error(&self) -> Option<&T> {
        match self {
            Reading::Estimate { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Converts the value and the error to another quantity.
    pub fn map<U>(self, change: impl Fn(T) -> U) -> Reading<U> {
        match self {
            Reading::Is(value) => Reading::Is(change(value)),
            Reading::Estimate { value, error } => {
                Reading::Estimate { value: change(value), error: change(error) }
            }
            Reading::Missing(why) => Reading::Missing(why),
        }
    }
}

impl<T: Copy> Reading<T> {
    /// The value, measured or estimated.
    pub fn get(&self) -> Option<T> {
        self.value().copied()
    }
}

impl Reading<u64> {
    /// Sum of two readings; missing if either is.
    pub fn plus(self, other: Reading<u64>) -> Reading<u64> {
        let error = match (self.error(), other.error()) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(&0).saturating_add(*b.unwrap_or(&0))),
        };
        match (self, other) {
            (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Reading::Missing(why),
            (a, b) => {
                let value = a.get().unwrap_or(0).saturating_add(b.get().unwrap_or(0));
                match error {
                    None => Reading::Is(value),
                    Some(error) => Reading::Estimate { value, error },
                }
            }
        }
    }
}

/// Writes a reading under `key`, with its error or its reason beside it.
pub fn entry<M: SerializeMap, T: Serialize>(
    map: &mut M,
    key: &'static str,
    reading: &Reading<T>,
) -> Result<(), M::Error> {
    match reading {
        Reading::Is(value) => map.serialize_entry(key, value),
        Reading::Estimate { value, error } => {
            map.serialize_entry(key, value)?;
            map.serialize_entry(&format!("error_{key}"), error)
        }
        Reading::Missing(why) => {
            map.serialize_entry(key, &None::<()>)?;
            map.serialize_entry(&format!("{key}_missing"), why)
        }
    }
}

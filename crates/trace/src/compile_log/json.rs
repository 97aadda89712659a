//! Deserializes JSON but stores only the parts that the reader uses, so that a hostile log can't
//! fill memory.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Maximum number of texts of a list that are kept.
const MAX_TEXTS: usize = 64;

/// The first texts of a list.
#[derive(Debug, Default)]
pub(super) struct FirstTexts {
    pub texts: Vec<String>,
    /// Number of texts beyond these.
    pub more: u64,
}

impl<'de> Deserialize<'de> for FirstTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FirstTexts, D::Error> {
        deserializer.deserialize_seq(FirstVisitor)
    }
}

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = FirstTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FirstTexts, A::Error> {
        let mut found = FirstTexts::default();
        while found.texts.len() < MAX_TEXTS {
            let Some(text) = list.next_element()? else { return Ok(found) };
            found.texts.push(text);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            found.more += 1;
        }
        Ok(found)
    }
}

/// The last element of a list.
#[derive(Debug)]
pub(super) struct Last<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Last<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Last<T>, D::Error> {
        deserializer.deserialize_seq(LastVisitor(PhantomData))
    }
}

struct LastVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for LastVisitor<T> {
    type Value = Last<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Last<T>, A::Error> {
        let mut last = None;
        while let Some(next) = list.next_element()? {
            last = Some(next);
        }
        Ok(Last(last))
    }
}

/// A text or a number; the default for any other value.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Scalar {
    #[default]
    None,
    Text(String),
    Number(f64),
}

impl Scalar {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Scalar::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::None)
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_store_only_the_elements_that_are_used() {
        let json = format!("[{}\"x\"]", "\"\",".repeat(100));
        let first: FirstTexts = serde_json::from_str(&json).unwrap();
        assert_eq!((first.texts.len(), first.more), (64, 37));
        let last: Last<u32> = serde_json::from_str("[1, 2, 3]").unwrap();
        assert_eq!(last.0, Some(3));
    }

    #[test]
    fn a_value_of_any_type_is_a_scalar_or_none() {
        let all: Vec<Scalar> =
            serde_json::from_str(r#"["a", 1, -1, 1.5, true, null, [1], {"a": [2]}]"#).unwrap();
        let numbers: Vec<f64> = all.iter().filter_map(Scalar::number).collect();
        assert_eq!(numbers, [1.0, -1.0, 1.5]);
        assert_eq!(all.iter().filter_map(Scalar::text).collect::<Vec<_>>(), ["a"]);
        assert_eq!(all.iter().filter(|one| **one == Scalar::None).count(), 4);
    }
}

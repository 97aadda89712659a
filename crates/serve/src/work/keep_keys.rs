//! Parses only selected keys of a JSON document, because a summary needs a few numbers of 100 MB.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses JSON, but skips the values of objects whose keys are not in `keys`.
pub fn read_selected(reader: impl Read, keys: &[&str]) -> serde_json::Result<Value> {
    let mut from = serde_json::Deserializer::from_reader(reader);
    let value = KeepKeys(keys).deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct KeepKeys<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for KeepKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeepKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = all.next_element_seed(self)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = all.next_key::<String>()? {
            match self.0.contains(&key.as_str()) {
                true => _ = values.insert(key, all.next_value_seed(self)?),
                false => _ = all.next_value::<IgnoredAny>()?,
            }
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_selected_keys_are_read() {
        let text = r#"{"a": [{"b": 1.5, "x": [1, {"a": 2}]}, null, -3, "t", true], "y": {"a": 1}}"#;
        let read = read_selected(text.as_bytes(), &["a", "b"]).unwrap();
        assert_eq!(read, json!({ "a": [{ "b": 1.5 }, null, -3, "t", true] }));
        assert!(read_selected(&b"{\"a\": 1} x"[..], &["a"]).is_err());
        assert!(read_selected("[".repeat(100_000).as_bytes(), &["a"]).is_err());
    }
}

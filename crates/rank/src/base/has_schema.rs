//! Derives JSON Schemas (draft 2020-12) from the types that are printed as JSON, so that no printed
//! member lacks a schema.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::reading::Reading;

/// A type that has a schema.
pub trait HasSchema {
    /// Returns the schema of the type.
    fn schema() -> Value;
}

macro_rules! schemas {
    ($($schema:tt: $($type:ty),*;)*) => {$($(
        impl HasSchema for $type {
            fn schema() -> Value {
                json!($schema)
            }
        }
    )*)*};
}
schemas! {
    { "type": "integer", "minimum": 0 }: u8, u16, u32, u64, usize;
    { "type": "integer" }: i32, i64;
    // JSON has neither NaN nor infinity: both are printed as null.
    { "type": ["number", "null"] }: f64;
    { "type": "boolean" }: bool;
    { "type": "string" }: String, &'static str, Arc<str>, PathBuf;
}

impl<T: HasSchema> HasSchema for Option<T> {
    fn schema() -> Value {
        nullable(T::schema())
    }
}

impl<T: HasSchema> HasSchema for Vec<T> {
    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl<T: HasSchema> HasSchema for Arc<[T]> {
    fn schema() -> Value {
        Vec::<T>::schema()
    }
}

/// Returns a schema that matches null too.
pub fn nullable(mut schema: Value) -> Value {
    let types = match &schema["type"] {
        Value::String(one) if one != "object" && one != "array" => vec![json!(one)],
        Value::Array(all) => all.clone(),
        _ => return json!({ "anyOf": [schema, { "type": "null" }] }),
    };
    let is_null = |of: &Value| of == "null";
    let null = (!types.iter().any(is_null)).then(|| json!("null"));
    schema["type"] = types.into_iter().chain(null).collect();
    schema
}

/// An object's schema while it is built. The object has no members other than those that are added.
#[derive(Default)]
pub struct ObjectSchema {
    members: Map<String, Value>,
    required: Vec<Value>,
}

impl ObjectSchema {
    /// Adds a member that every object has.
    pub fn plain(mut self, key: &str, schema: Value) -> ObjectSchema {
        self.required.push(json!(key));
        self.some(key, schema)
    }

    /// Adds a member that only some objects have.
    pub fn some(mut self, key: &str, schema: Value) -> ObjectSchema {
        self.members.insert(key.to_owned(), schema);
        self
    }

    /// Adds a member that may be null, and the members `error_key` and `key_missing` for its error
    /// or the reason why it is unknown.
    pub fn reading(self, key: &str, schema: Value) -> ObjectSchema {
        self.plain(key, nullable(schema.clone()))
            .some(&format!("error_{key}"), schema)
            .some(&format!("{key}_missing"), json!({ "type": "string" }))
    }

    /// Returns the finished schema.
    pub fn finish(self) -> Value {
        json!({
            "type": "object", "properties": self.members, "required": self.required,
            "additionalProperties": false,
        })
    }
}

/// Returns the schema of a field's type. The caller passes a function that accesses the field,
/// which is never called.
pub fn plain_field<S, T: HasSchema>(_: fn(&S) -> &T) -> Value {
    T::schema()
}

/// Returns the schema of the value of a reading.
pub fn reading_field<S, T: HasSchema>(_: fn(&S) -> &Reading<T>) -> Value {
    T::schema()
}

/// Returns the schema of the value of an option.
pub fn some_field<S, T: HasSchema>(_: fn(&S) -> &Option<T>) -> Value {
    T::schema()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_added_once() {
        assert_eq!(Option::<u64>::schema(), json!({ "type": ["integer", "null"], "minimum": 0 }));
        assert_eq!(Option::<f64>::schema(), f64::schema());
        let list = Option::<Vec<bool>>::schema();
        let items = json!({ "type": "array", "items": { "type": "boolean" } });
        assert_eq!(list, json!({ "anyOf": [items, { "type": "null" }] }));
    }
}

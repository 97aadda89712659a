//! Replaces the texts in arguments of spans with null, for `--redact`.
//!
//! A text may be private: a path, a prompt or a key. Numbers, booleans and the names of arguments
//! stay. Two kinds of texts stay too because they reveal nothing: numbers that JSON can only write
//! as texts, and the names of the Rust library's categories.

use serde_json::{Map, Value};

/// Key of the argument with a span's category.
const CATEGORY: &str = "category";
/// Names of the categories of `tprof::Category`.
const CATEGORIES: [&str; 7] =
    ["compute", "memory", "data_load", "sync", "communication", "compile", "io"];
/// The texts that Rust and Python write for numbers that aren't finite.
const NUMBERS: [&str; 4] = ["NaN", "nan", "inf", "-inf"];

/// Replaces with null the texts in arguments and all values that may contain texts.
pub fn redact(arguments: &mut Map<String, Value>) {
    for (key, value) in arguments {
        let stays = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
            Value::String(text) => {
                NUMBERS.contains(&&**text) || key == CATEGORY && CATEGORIES.contains(&&**text)
            }
            // tprof writes neither arrays nor objects, so their content is the program's and may be
            // private.
            Value::Array(_) | Value::Object(_) => false,
        };
        if !stays {
            *value = Value::Null;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_removed_and_numbers_stay() {
        let Value::Object(mut arguments) = json!({
            "batch": 3, "rate": 0.5, "last": true, "loss": "NaN", "least": "-inf", "lost": null,
            "path": "/home/me/data", "category": "io", "of": "io", "": "key",
            "list": ["/home/me"], "nested": {"prompt": "x"},
        }) else {
            unreachable!()
        };
        redact(&mut arguments);
        let expected = json!({
            "batch": 3, "rate": 0.5, "last": true, "loss": "NaN", "least": "-inf", "lost": null,
            "path": null, "category": "io", "of": null, "": null, "list": null, "nested": null,
        });
        assert_eq!(Value::Object(arguments), expected);
        let mut own = Map::from_iter([("category".to_owned(), "of mine".into())]);
        redact(&mut own);
        assert_eq!(own["category"], Value::Null);
    }
}

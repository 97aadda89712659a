//! The printed objects besides tables, as text: members by object, so that a change is seen in a few lines.

use std::{env, fs};

use serde_json::Value;

/// The first lines of the file.
const HEAD: &str = "\
# Members of what is printed as JSON, tables aside. `?`: some objects lack it. `*`: a reading, which may be
# null, with `error_KEY` or `KEY_missing` beside it. `[]`: a list. `UPDATE_GOLDEN=1 cargo test -p
# tprof-analyze --lib schema::` writes this file.
";

/// Of reports that are made of tables, one: the others have the same members.
const SHOWN: [&str; 8] =
    ["summary", "steps", "several", "diff", "compare", "side", "run", "completeness"];

/// Lists an object, then those within it.
fn list(path: &str, object: &Value, to: &mut String) {
    let members = object["properties"].as_object().unwrap();
    let has = |key: String| members.contains_key(&key);
    let is_reading = |key: &str| has(format!("error_{key}")) && has(format!("{key}_missing"));
    let is_of_reading = |key: &str| {
        let of = key.strip_prefix("error_").or_else(|| key.strip_suffix("_missing"));
        of.is_some_and(is_reading)
    };
    let (mut words, mut within) = (Vec::new(), Vec::new());
    for (key, schema) in members.iter().filter(|(key, _)| !is_of_reading(key)) {
        let mut of = schema;
        let mut lists = String::new();
        loop {
            of = match (&of["anyOf"][0], &of["items"]) {
                (Value::Null, Value::Null) => break,
                (Value::Null, items) => {
                    lists += "[]";
                    items
                }
                (first, _) => first,
            };
        }
        if path == "several" || key == "tables" {
            words.push(key.clone());
            continue;
        }
        if of["properties"].is_object() {
            within.push((format!("{path}.{key}{lists}"), of));
        }
        let what = match (&of["$ref"], &of["const"], &of["enum"], &of["type"]) {
            (Value::String(name), ..) => name.rsplit('/').next().unwrap().to_owned(),
            (_, Value::Null, Value::Null, Value::String(kind)) => kind.clone(),
            (_, Value::Null, Value::Null, kinds) => kinds[0].as_str().unwrap().to_owned(),
            (_, Value::Null, one_of, _) => one_of.to_string(),
            (_, value, ..) => value.to_string(),
        };
        let is_required = object["required"].as_array().unwrap().iter().any(|one| one == key);
        let nullable = schema["type"][1] == "null" || !schema["anyOf"].is_null();
        let mark = match (is_reading(key), is_required, nullable) {
            (true, ..) => "*",
            (_, false, _) => "?",
            (.., true) => "|null",
            _ => "",
        };
        words.push(format!("{key} {what}{lists}{mark}"));
    }
    let mut line = format!("{path}:");
    for (at, word) in words.iter().enumerate() {
        let end = if at + 1 < words.len() { "," } else { "" };
        if line.len() + word.len() > 108 {
            *to += &format!("{line}\n");
            line = "   ".to_owned();
        }
        line += &format!(" {word}{end}");
    }
    *to += &format!("{line}\n");
    within.iter().for_each(|(path, object)| list(path, object, to));
}

#[test]
fn members_are_those_of_the_list() {
    let merged = super::merged(Vec::new());
    let mut text = HEAD.to_owned();
    for name in SHOWN {
        list(name, &merged["$defs"][name], &mut text);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/objects.txt");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, &text).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "what is printed has other members: UPDATE_GOLDEN=1 writes {path}");
}

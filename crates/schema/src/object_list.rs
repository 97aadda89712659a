//! Lists the members of all printed objects except tables in `objects.txt`, and tests that the file
//! is up to date. So a commit that changes the output shows it in a few lines of that file.

use std::{env, fs};

use serde_json::Value;

/// The first lines of the file.
const HEAD: &str = "\
# Members of what is printed as JSON, tables aside. `?`: some objects lack it. `*`: a reading, which may be
# null, with `error_KEY` or `KEY_missing` beside it. `[]`: a list. `UPDATE_GOLDEN=1 cargo test -p
# tprof-schema` writes this file.
";

/// The definitions that are listed. `steps` represents all reports that are made of tables, since
/// these have the same members.
const SHOWN: [&str; 8] =
    ["summary", "steps", "several", "diff", "compare", "side", "run", "completeness"];

/// Returns each member of the listed objects: the path of the object, the key, and the type of the
/// value.
fn listed(merged: &Value) -> Vec<(String, String, String)> {
    let mut members = Vec::new();
    for name in SHOWN {
        list(name, &merged["$defs"][name], &mut members);
    }
    members
}

/// Like [`listed`], with paths as `meanings.txt` writes them.
pub fn members(merged: &Value) -> Vec<(String, String, String)> {
    let is_described = |(path, ..): &(String, String, String)| path != "several";
    let place = |(path, key, holds): (String, String, String)| {
        (super::place_of_object(&path.replace("[]", "")), key, holds)
    };
    listed(merged).into_iter().filter(is_described).map(place).collect()
}

/// Lists the members of an object, then those of the objects within it.
fn list(path: &str, object: &Value, to: &mut Vec<(String, String, String)>) {
    let members = object["properties"].as_object().unwrap();
    let has = |key: String| members.contains_key(&key);
    let is_reading = |key: &str| has(format!("error_{key}")) && has(format!("{key}_missing"));
    let is_of_reading = |key: &str| {
        let of = key.strip_prefix("error_").or_else(|| key.strip_suffix("_missing"));
        of.is_some_and(is_reading)
    };
    let mut within = Vec::new();
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
            to.push((path.to_owned(), key.clone(), String::new()));
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
        to.push((path.to_owned(), key.clone(), format!("{what}{lists}{mark}")));
    }
    within.iter().for_each(|(path, object)| list(path, object, to));
}

/// Formats the text of `objects.txt`.
fn text(members: &[(String, String, String)]) -> String {
    let mut text = HEAD.to_owned();
    for of_object in members.chunk_by(|a, b| a.0 == b.0) {
        let mut line = format!("{}:", of_object[0].0);
        for (at, (_, key, holds)) in of_object.iter().enumerate() {
            let end = if at + 1 < of_object.len() { "," } else { "" };
            let word = format!("{key} {holds}");
            let word = word.trim_end();
            if line.len() + word.len() > 108 {
                text += &format!("{line}\n");
                line = "   ".to_owned();
            }
            line += &format!(" {word}{end}");
        }
        text += &format!("{line}\n");
    }
    text
}

#[test]
fn objects_txt_lists_the_members_that_are_printed() {
    let text = text(&listed(&super::merged(Vec::new())));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/objects.txt");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, &text).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == text,
        "the printed members differ from {path}; UPDATE_GOLDEN=1 updates the file"
    );
}

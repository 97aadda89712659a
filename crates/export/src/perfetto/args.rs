//! Encodes the arguments of an event: numbers that all events of a kind have, and further facts
//! from the event's source.

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_trace::model::NameId;

use super::fields::{annotation, event, interned};
use super::interned::Interned;
use crate::proto::Proto;

/// Largest total size of encoded arguments that are cached for reuse, in bytes.
const MOST_KEPT_BYTES: usize = 8 << 20;

/// Writes arguments into the fields of a `TrackEvent`.
#[derive(Default)]
pub(super) struct Args {
    /// Encoded objects by id. They are cached, because many events have the same object.
    kept: FxHashMap<NameId, Box<[u8]>>,
    kept_bytes: usize,
}

impl Args {
    /// Writes the members of the JSON object `text`, whose id in the file is `object`.
    pub fn object(&mut self, object: NameId, text: &str, names: &mut Interned<'_>, to: &mut Proto) {
        if object.0 == 0 {
            return;
        }
        if let Some(encoded) = self.kept.get(&object) {
            return to.append(encoded);
        }
        let mut encoded = Proto::default();
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => {
                for (key, value) in &object {
                    one(key, value, names, &mut encoded);
                }
            }
            // The text is valid JSON but not an object, so write it as one argument.
            Ok(value) => one("args", &value, names, &mut encoded),
            Err(_) => one("args", &Value::String(text.to_owned()), names, &mut encoded),
        }
        to.append(encoded.bytes());
        self.kept_bytes += encoded.bytes().len() + 32;
        if self.kept_bytes > MOST_KEPT_BYTES {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept.insert(object, encoded.bytes().into());
    }
}

fn one(key: &str, value: &Value, names: &mut Interned<'_>, to: &mut Proto) {
    let open = to.open(event::ANNOTATION);
    let name =
        names.text(interned::ANNOTATION_NAMES, if key.is_empty() { "(no name)" } else { key });
    to.uint(annotation::NAME_IID, name);
    match value {
        Value::Bool(value) => to.uint(annotation::BOOL, (*value).into()),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (_, Some(value), _) => to.int(annotation::INT, value),
            (Some(value), ..) => to.uint(annotation::UINT, value),
            (.., value) => to.double(annotation::DOUBLE, value.unwrap_or(f64::NAN)),
        },
        Value::String(text) => to.text(annotation::STRING, text),
        Value::Null => to.text(annotation::STRING, "null"),
        Value::Array(_) | Value::Object(_) => to.text(annotation::JSON, &value.to_string()),
    }
    to.close(open);
}

/// Writes a number if it is known.
pub(super) fn number(
    name: &'static str,
    value: Option<u64>,
    names: &mut Interned<'_>,
    to: &mut Proto,
) {
    if let Some(value) = value {
        let open = to.open(event::ANNOTATION);
        to.uint(annotation::NAME_IID, names.fixed(interned::ANNOTATION_NAMES, name));
        to.uint(annotation::UINT, value);
        to.close(open);
    }
}

/// Writes a text if it is not empty.
pub(super) fn text(name: &'static str, value: &str, names: &mut Interned<'_>, to: &mut Proto) {
    if !value.is_empty() {
        let open = to.open(event::ANNOTATION);
        to.uint(annotation::NAME_IID, names.fixed(interned::ANNOTATION_NAMES, name));
        to.text(annotation::STRING, value);
        to.close(open);
    }
}

/// Writes the three sizes of a grid or block. Writes nothing if they are zeros, which means
/// unknown.
pub(super) fn sizes(name: &'static str, value: [u32; 3], names: &mut Interned<'_>, to: &mut Proto) {
    if value != [0; 3] {
        let [x, y, z] = value;
        text(name, &format!("{x}, {y}, {z}"), names, to);
    }
}

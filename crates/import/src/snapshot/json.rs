//! Converts values of a pickle to JSON. Depth and length are bounded, because a value may contain
//! itself, or the same list a thousand times.

use crate::pickle::{Arena, Value};

/// Largest nesting depth that is converted.
const MAX_DEPTH: u32 = 16;

/// Appends a value. Returns false if the value is too deep, makes `out` longer than `limit`, or has
/// keys that are not texts. The caller must then discard what was appended.
pub(super) fn push(arena: &Arena<'_>, value: Value, limit: usize, out: &mut Vec<u8>) -> bool {
    push_at(arena, value, limit, out, 0)
}

fn push_at(arena: &Arena<'_>, value: Value, limit: usize, out: &mut Vec<u8>, depth: u32) -> bool {
    if depth > MAX_DEPTH || out.len() > limit {
        return false;
    }
    match value {
        Value::None => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        Value::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Large(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Float(number) => match serde_json::Number::from_f64(number) {
            Some(number) => out.extend_from_slice(number.to_string().as_bytes()),
            None => out.extend_from_slice(format!("\"{number}\"").as_bytes()),
        },
        Value::Text(..) => {
            push_text(arena, value, out);
        }
        Value::List(_) | Value::Tuple(_) => {
            out.push(b'[');
            for (at, item) in arena.items(value).unwrap_or_default().iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                if !push_at(arena, *item, limit, out, depth + 1) {
                    return false;
                }
            }
            out.push(b']');
        }
        Value::Dict(_) => {
            let pairs = arena.pairs(value).unwrap_or_default();
            return push_object(arena, pairs, limit, out, depth);
        }
    }
    out.len() <= limit
}

/// Appends pairs as an object; see [`push`].
pub(super) fn push_object(
    arena: &Arena<'_>,
    pairs: &[(Value, Value)],
    limit: usize,
    out: &mut Vec<u8>,
    depth: u32,
) -> bool {
    out.push(b'{');
    for (at, (key, value)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if !push_text(arena, *key, out) {
            return false;
        }
        out.push(b':');
        if !push_at(arena, *value, limit, out, depth + 1) {
            return false;
        }
    }
    out.push(b'}');
    out.len() <= limit
}

/// Appends a text; false if the value is not one.
fn push_text(arena: &Arena<'_>, value: Value, out: &mut Vec<u8>) -> bool {
    let Some(bytes) = arena.text(value) else { return false };
    let plain = bytes.iter().all(|byte| (0x20..0x80).contains(byte) && !b"\"\\".contains(byte));
    if plain {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
    } else {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(out, &String::from_utf8_lossy(bytes));
    }
    true
}

//! Repairs JSON strings and values, so that a `.tprof` file contains only valid UTF-8 and its
//! arguments are valid JSON, even if the source isn't.

use crate::cursor::{self, Stop};
use crate::number;

/// Largest nesting depth that is copied. It is more than any tool writes, and less than what JSON
/// readers refuse.
const MAX_DEPTH: usize = 64;

/// Appends the decoded value of a JSON string; `raw` is its content between the quotes. Returns
/// whether it had to be repaired: bad escapes stay unchanged, and bytes that are not UTF-8 become
/// U+FFFD.
pub(crate) fn unescape(raw: &[u8], out: &mut String) -> bool {
    let mut mended = false;
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        mended |= push_utf8(&rest[..at], out);
        rest = &rest[at + 1..];
        let plain = match rest.first() {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
            Some(b'u') => {
                let (character, used) = unicode(&rest[1..]);
                mended |= character.is_none();
                rest = &rest[1 + used..];
                out.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
                continue;
            }
            _ => {
                mended = true;
                out.push('\\');
                continue;
            }
        };
        out.push(plain);
        rest = &rest[1..];
    }
    push_utf8(rest, out) | mended
}

/// Returns the character of the escape after `\u`, and the number of bytes that the escape takes.
fn unicode(rest: &[u8]) -> (Option<char>, usize) {
    let hex = |text: &[u8]| -> Option<u32> {
        let text = text.get(..4).filter(|text| text.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
    };
    let Some(first) = hex(rest) else { return (None, 0) };
    if let (0xd800..0xdc00, [b'\\', b'u', low @ ..]) = (first, &rest[4..])
        && let Some(low @ 0xdc00..0xe000) = hex(low)
    {
        return (char::from_u32(0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00)), 10);
    }
    (char::from_u32(first), 4)
}

fn push_utf8(bytes: &[u8], out: &mut String) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.push_str(text);
            false
        }
        Err(_) => {
            out.push_str(&String::from_utf8_lossy(bytes));
            true
        }
    }
}

/// Appends a valid JSON string with quotes, whatever bytes `raw` contains. Returns whether `raw`
/// had to be repaired.
pub(crate) fn push_string(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let clean =
        raw.iter().fold(true, |clean, b| clean & (*b >= 0x20) & (*b < 0x80) & (*b != b'\\'));
    if clean {
        out.push(b'"');
        out.extend_from_slice(raw);
        out.push(b'"');
        return false;
    }
    let mut text = String::with_capacity(raw.len());
    let mended = unescape(raw, &mut text);
    // Writing a string to memory cannot fail.
    let _ = serde_json::to_writer(out, &text);
    mended | raw.iter().any(|byte| *byte < 0x20)
}

/// Appends a value without its white space. Fails if the value is not JSON or too deep; `out` is
/// then unchanged.
pub(crate) fn push_value(value: &[u8], out: &mut Vec<u8>) -> Result<bool, Stop> {
    let length = out.len();
    let result = copy(value, out);
    if result.is_err() {
        out.truncate(length);
    }
    result
}

fn copy(bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, Stop> {
    let mut closers = [0_u8; MAX_DEPTH];
    let (mut at, mut depth, mut mended) = (0, 0_usize, false);
    loop {
        at = cursor::space(bytes, at)?;
        match bytes[at] {
            open @ (b'{' | b'[') => {
                if depth == MAX_DEPTH {
                    return Err(Stop::Bad(at));
                }
                let close = if open == b'{' { b'}' } else { b']' };
                closers[depth] = close;
                depth += 1;
                out.push(open);
                at += 1;
                let first = cursor::space(bytes, at)?;
                if bytes[first] != close {
                    at = if open == b'{' {
                        copy_key(bytes, first, out, &mut mended)?
                    } else {
                        first
                    };
                    continue;
                }
                at = first;
            }
            b'"' => {
                let end = cursor::string(bytes, at + 1)?;
                mended |= push_string(&bytes[at + 1..end], out);
                at = end + 1;
            }
            _ => at = copy_scalar(bytes, at, out)?,
        }
        // A value has ended here, so closing brackets may follow.
        loop {
            let Some(close) = depth.checked_sub(1).map(|top| closers[top]) else {
                return if at == bytes.len() { Ok(mended) } else { Err(Stop::Bad(at)) };
            };
            at = cursor::space(bytes, at)?;
            out.push(bytes[at]);
            match bytes[at] {
                b',' => {
                    at = cursor::space(bytes, at + 1)?;
                    if close == b'}' {
                        at = copy_key(bytes, at, out, &mut mended)?;
                    }
                    break;
                }
                byte if byte == close => (at, depth) = (at + 1, depth - 1),
                _ => return Err(Stop::Bad(at)),
            }
        }
    }
}

fn copy_key(bytes: &[u8], at: usize, out: &mut Vec<u8>, mended: &mut bool) -> Result<usize, Stop> {
    let start = cursor::expect(bytes, at, b'"')?;
    let end = cursor::string(bytes, start)?;
    *mended |= push_string(&bytes[start..end], out);
    out.push(b':');
    cursor::expect(bytes, end + 1, b':')
}

fn is_no_number(token: &[u8]) -> bool {
    let token = token.strip_prefix(b"-").unwrap_or(token);
    matches!(token, b"NaN" | b"Infinity" | b"nan" | b"inf")
}

/// Copies a number or a word. NaN and Infinity are not JSON, although Python writes them. They
/// become strings, as do numbers too large for a double.
fn copy_scalar(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, Stop> {
    let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
    let end = bytes[at..].iter().position(ends).map_or(bytes.len(), |length| at + length);
    let token = &bytes[at..end];
    match token {
        b"true" | b"false" | b"null" => out.extend_from_slice(token),
        _ if number::is_number(token)
            && (token.len() < 18 && !token.iter().any(|byte| matches!(byte, b'e' | b'E'))
                || number::float(token).is_some()) =>
        {
            out.extend_from_slice(token);
        }
        _ if number::is_number(token) || is_no_number(token) => {
            out.push(b'"');
            out.extend_from_slice(token);
            out.push(b'"');
        }
        _ => return Err(Stop::Bad(at)),
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meaning(raw: &[u8]) -> (String, bool) {
        let mut out = String::new();
        let mended = unescape(raw, &mut out);
        (out, mended)
    }

    fn copied(value: &[u8]) -> Option<(String, bool)> {
        let mut out = Vec::new();
        let mended = push_value(value, &mut out).ok()?;
        Some((String::from_utf8(out).unwrap(), mended))
    }

    #[test]
    fn escapes_are_decoded_as_json_defines() {
        assert_eq!(meaning(br#"a\"b\\c\n\u00e9\ud83d\ude00"#), ("a\"b\\c\né😀".to_owned(), false));
        assert_eq!(meaning(br"C:\users"), ("C:\u{fffd}sers".to_owned(), true));
        assert_eq!(meaning(br"\q\"), ("\\q\\".to_owned(), true));
        assert_eq!(meaning(br"\ud800x"), ("\u{fffd}x".to_owned(), true));
        assert_eq!(meaning(b"a\xffb"), ("a\u{fffd}b".to_owned(), true));
    }

    #[test]
    fn values_are_copied_as_valid_json() {
        let kept = |value: &str| copied(value.as_bytes());
        assert_eq!(kept("[ 1 , {\"a\" : [ ] } ]"), Some(("[1,{\"a\":[]}]".to_owned(), false)));
        assert_eq!(kept("NaN"), Some(("\"NaN\"".to_owned(), false)));
        assert_eq!(kept("\"a\u{1}\""), Some(("\"a\\u0001\"".to_owned(), true)));
        for bad in ["[1,]", "{1:2}", "[1}", "01", "{\"a\"}", "tru", "[", "1 2", "{\"a\":1,}"] {
            assert_eq!(kept(bad), None, "{bad}");
        }
        assert!(kept(&("[".repeat(64) + &"]".repeat(64))).is_some());
        assert!(kept(&("[".repeat(65) + &"]".repeat(65))).is_none());
    }

    proptest! {
        #[test]
        fn a_copy_of_valid_json_has_the_same_value(value in json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let (copy, mended) = copied(text.as_bytes()).unwrap();
            prop_assert!(!mended);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&copy).unwrap(), value);
        }

        #[test]
        fn every_copied_value_is_json(bytes in prop::collection::vec(prop::sample::select(
            b"{}[]\",:\\u0123.eE-+ntrfalsNI\x01\xff\xc3\xa9 ".to_vec()), 0..40)) {
            if let Some((copy, _)) = copied(&bytes) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&copy).is_ok());
            }
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }
}

//! Formats the arguments of spans as JSON objects.

use super::redacted::redact;
use crate::targets::interned::Interned;
use serde_json::{Map, Number, Value};
use tprof_wire::spans::{ARGUMENTS, Arguments, dtype, value};

/// Number of records of arguments that are stored per span.
pub const MAX_RECORDS: usize = 16;
/// The type that is written if a span has operations of several types.
const SEVERAL: &str = "several";

/// The floating-point operations that the program reported for a span.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatedFlops {
    count: u64,
    /// Their type, one of [`dtype`]; `None` if operations of different types were added.
    dtype: Option<u32>,
    is_stated: bool,
}

impl StatedFlops {
    /// Adds operations of one type.
    pub fn add(&mut self, count: u64, dtype: u32) {
        let is_same = !self.is_stated || self.dtype == Some(dtype);
        self.dtype = is_same.then_some(dtype);
        self.is_stated = true;
        self.count = self.count.saturating_add(count);
    }

    /// Adds the number and the type of the operations to a span's arguments.
    fn put(&self, all: &mut Map<String, Value>) {
        if self.count == 0 {
            return;
        }
        all.insert("flops".to_owned(), self.count.into());
        let name = self.dtype.map_or(Some(SEVERAL), |of| dtype::NAMES.get(of as usize).copied());
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            all.insert("dtype".to_owned(), name.into());
        }
    }
}

/// Arguments from separate records: for each record the id of its keys, and its values.
pub type Described = Vec<(u32, Arguments)>;

/// Formats a span's arguments as one JSON object. They are the arguments in the span's name, those
/// in separate records, its operations, and whether any thread might end it. Returns `Ok(None)` if
/// there are none, and `Err` if a text is not defined yet. With `redacted`, the program's own texts
/// are left out.
pub fn object(
    given: Option<&str>,
    described: &Described,
    stated: &StatedFlops,
    any_thread: bool,
    interned: &Interned,
    redacted: bool,
) -> Result<Option<String>, Undefined> {
    let mut all: Map<_, _> = match given.map(|text| (text, serde_json::from_str(text))) {
        Some((_, Ok(object))) => object,
        Some((text, Err(_))) => [("arguments".to_owned(), text.into())].into_iter().collect(),
        None => Map::new(),
    };
    for (keys, arguments) in described {
        let keys = interned.whole(*keys).ok_or(Undefined)?;
        let values = arguments.kinds.iter().zip(&arguments.bits);
        let keys = keys.split(char::from(ARGUMENTS)).take(usize::from(arguments.count));
        for (key, (kind, bits)) in keys.zip(values) {
            all.insert(key.to_owned(), argument(*kind, *bits, interned)?);
        }
    }
    if redacted {
        redact(&mut all);
    }
    if any_thread {
        all.insert("style".to_owned(), "start/end".into());
    }
    stated.put(&mut all);
    Ok((!all.is_empty()).then(|| Value::Object(all).to_string()))
}

/// The error for a text that is not defined yet.
#[derive(Debug, PartialEq)]
pub struct Undefined;

/// Converts one value. If JSON can't represent a number, the result is a text. If the process could
/// not store the value, the result is null.
fn argument(kind: u8, bits: u64, interned: &Interned) -> Result<Value, Undefined> {
    Ok(match kind {
        value::UNSIGNED => bits.into(),
        value::SIGNED => (bits as i64).into(),
        value::FLOAT => {
            let number = f64::from_bits(bits);
            Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        value::BOOL => (bits != 0).into(),
        value::TEXT if bits == 0 => Value::Null,
        value::TEXT => match interned.whole(bits as u32).ok_or(Undefined)? {
            empty if empty.as_bytes() == [ARGUMENTS] => String::new().into(),
            text => text.into(),
        },
        _ => Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::losses::Losses;
    use crate::targets::interned::Definition;
    use tprof_wire::interned::{WORDS, pack};
    use tprof_wire::record::ExtKind;

    fn interned(texts: &[&str]) -> Interned {
        let (mut interned, mut losses) = (Interned::default(), Losses::default());
        for (id, text) in (1..).zip(texts) {
            let mut words = [0; WORDS];
            let used = pack(text.as_bytes(), &mut words);
            let definition = Definition::decode(ExtKind::Name, &words[..used]).unwrap();
            interned.define(id, definition, &mut losses);
        }
        interned
    }

    fn of(described: Described, texts: &[&str]) -> Result<Option<String>, Undefined> {
        object(None, &described, &StatedFlops::default(), false, &interned(texts), false)
    }

    #[test]
    fn values_of_every_type_become_json() {
        let kinds = [value::UNSIGNED, value::SIGNED, value::FLOAT, value::BOOL];
        let bits = [u64::MAX, (-3_i64) as u64, 0.5_f64.to_bits(), 1];
        let first = Arguments { span: 0, kinds, count: 4, bits };
        let kinds = [value::FLOAT, value::FLOAT, value::TEXT, value::TEXT];
        let bits = [f64::NAN.to_bits(), f64::NEG_INFINITY.to_bits(), 3, 4];
        let second = Arguments { span: 0, kinds, count: 4, bits };
        let texts = ["a\u{1f}b\u{1f}c\u{1f}d", "e\u{1f}f\u{1f}g\u{1f}h", "x\u{1f}{\"y\"", "\u{1f}"];
        let text = of(vec![(1, first), (2, second)], &texts).unwrap().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "a": u64::MAX, "b": -3, "c": 0.5, "d": true,
            "e": "NaN", "f": "-inf", "g": "x\u{1f}{\"y\"", "h": "",
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn an_undefined_text_is_waited_for_and_a_lost_text_is_null() {
        let text = |bits| Arguments {
            kinds: [value::TEXT, 0, 0, 0],
            count: 1,
            bits: [bits, 0, 0, 0],
            ..Arguments::default()
        };
        assert_eq!(of(vec![(1, text(9))], &["key"]), Err(Undefined));
        assert_eq!(of(vec![(9, text(1))], &["key"]), Err(Undefined));
        assert_eq!(of(vec![(1, text(0))], &["key"]), Ok(Some(r#"{"key":null}"#.to_owned())));
    }

    #[test]
    fn operations_of_different_types_have_the_type_several() {
        let text = |stated: &[(u64, u32)]| {
            let mut all = StatedFlops::default();
            stated.iter().for_each(|(count, dtype)| all.add(*count, *dtype));
            object(None, &Vec::new(), &all, false, &Interned::default(), true)
                .unwrap()
                .unwrap_or_default()
        };
        assert_eq!(text(&[(2, 0)]), r#"{"flops":2}"#);
        assert_eq!(text(&[(2, 4), (3, 4)]), r#"{"dtype":"bf16","flops":5}"#);
        assert_eq!(text(&[(2, 4), (3, 2), (1, 2)]), r#"{"dtype":"several","flops":6}"#);
        assert_eq!(text(&[(2, 99)]), r#"{"flops":2}"#);
        assert_eq!(text(&[]), "");
    }
}

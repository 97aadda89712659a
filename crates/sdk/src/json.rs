//! Parses the output of `tprof report --json`, so that the crate needs no dependency.

use std::iter::Peekable;
use std::str::Chars;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

/// Largest nesting depth of lists and maps.
const DEEPEST: usize = 64;

impl Json {
    /// Parses a whole text; `None` if it is not JSON.
    pub fn of(text: &str) -> Option<Json> {
        let mut rest = text.chars().peekable();
        let value = value(&mut rest, 0)?;
        skip(&mut rest);
        rest.next().is_none().then_some(value)
    }

    /// Returns the value of a key; [`Json::Null`] if the map lacks it, or if this is not a map.
    pub fn get(&self, key: &str) -> &Json {
        let Json::Map(entries) = self else { return &Json::Null };
        entries.iter().find(|(name, _)| name == key).map_or(&Json::Null, |(_, value)| value)
    }

    /// Returns the values of a list; empty if this is not a list.
    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(values) => values,
            _ => &[],
        }
    }

    /// Returns the string, if this is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if it is whole and not negative.
    pub fn count(&self) -> Option<u64> {
        match self {
            Json::Number(number) if *number >= 0.0 => Some(*number as u64),
            _ => None,
        }
    }
}

fn skip(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
}

fn value(rest: &mut Peekable<Chars<'_>>, depth: usize) -> Option<Json> {
    skip(rest);
    match *rest.peek()? {
        '"' => text(rest).map(Json::Text),
        '[' | '{' if depth == DEEPEST => None,
        '[' => {
            let mut values = Vec::new();
            entries(rest, ']', |rest| {
                values.push(value(rest, depth + 1)?);
                Some(())
            })?;
            Some(Json::List(values))
        }
        '{' => {
            let mut all = Vec::new();
            entries(rest, '}', |rest| {
                let key = text(rest)?;
                skip(rest);
                rest.next_if_eq(&':')?;
                all.push((key, value(rest, depth + 1)?));
                Some(())
            })?;
            Some(Json::Map(all))
        }
        _ => {
            let mut word = String::new();
            while let Some(letter) =
                rest.next_if(|l| l.is_ascii_alphanumeric() || "+-.".contains(*l))
            {
                word.push(letter);
            }
            match &*word {
                "null" => Some(Json::Null),
                "true" => Some(Json::Bool(true)),
                "false" => Some(Json::Bool(false)),
                number => number.parse().ok().map(Json::Number),
            }
        }
    }
}

/// Parses entries separated by commas up to the closing bracket.
fn entries<'a>(
    rest: &mut Peekable<Chars<'a>>,
    end: char,
    mut one: impl FnMut(&mut Peekable<Chars<'a>>) -> Option<()>,
) -> Option<()> {
    rest.next();
    skip(rest);
    if rest.next_if_eq(&end).is_some() {
        return Some(());
    }
    loop {
        skip(rest);
        one(rest)?;
        skip(rest);
        match rest.next()? {
            ',' => {}
            letter => return (letter == end).then_some(()),
        }
    }
}

fn text(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    rest.next_if_eq(&'"')?;
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                'u' => {
                    let unit = unit(rest)?;
                    let code = match unit {
                        0xd800..=0xdbff => {
                            (rest.next()? == '\\' && rest.next()? == 'u').then_some(())?;
                            0x10000
                                + ((unit - 0xd800) << 10)
                                + self::unit(rest)?.checked_sub(0xdc00)?
                        }
                        unit => unit,
                    };
                    text.push(char::from_u32(code)?);
                }
                letter => text.push(letter),
            },
            letter => text.push(letter),
        }
    }
}

fn unit(rest: &mut Peekable<Chars<'_>>) -> Option<u32> {
    (0..4).try_fold(0, |unit, _| Some(unit << 4 | rest.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are() {
        let text = r#" {"a": [1, 2.5e3, -4, true, null], "b": {}, "c": "x\n\"\u00e9\ud83d\ude00", "d": []} "#;
        let read = Json::of(text).unwrap();
        let numbers = read.get("a").list();
        assert_eq!(numbers[0].count(), Some(1));
        assert_eq!(numbers[1], Json::Number(2500.0));
        assert_eq!((numbers[2].count(), &numbers[4]), (None, &Json::Null));
        assert_eq!(read.get("c").text(), Some("x\n\"é😀"));
        assert_eq!((read.get("d").list().len(), read.get("e")), (0, &Json::Null));
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "nul", "\"a", "1 2", "{\"a\":1,}"] {
            assert_eq!(Json::of(text), None, "{text}");
        }
        assert_eq!(Json::of(&"[".repeat(100_000)), None);
    }
}

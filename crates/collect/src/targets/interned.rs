//! Stores the names and lists of sizes that an image's hooks have defined, by their ids.
//!
//! Rings are read one after the other, so a record may be read before the definition that it refers
//! to. The reader of such a record must store it and look the id up again later.

use crate::output::losses::Losses;
use std::borrow::Cow;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::NameId;
use tprof_wire::interned::unpack;
use tprof_wire::record::ExtKind;
use tprof_wire::spans::ARGUMENTS;

/// Number of definitions that are stored. The limit bounds the memory for a program that defines
/// new names without end. Definitions beyond it are counted as lost, and records that refer to them
/// have no name.
const MAX_NAMES: usize = 1 << 20;

/// A name or a list of sizes, as a record of the hooks defines it.
#[derive(Debug)]
pub struct Definition {
    kind: ExtKind,
    bytes: Vec<u8>,
    whole: usize,
}

impl Definition {
    /// Decodes a record's payload; `None` if the payload is malformed.
    pub fn decode(kind: ExtKind, payload: &[u64]) -> Option<Definition> {
        let (words, kept, whole) = unpack(payload)?;
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take(kept).collect();
        Some(Definition { kind, bytes, whole })
    }
}

/// A name, and its id in the file once a row has used it.
#[derive(Debug)]
struct DefinedName {
    text: String,
    /// Arguments of the span with this name: a JSON object, which may be cut at its end.
    arguments: Option<String>,
    name: Option<NameId>,
}

/// The names and lists of sizes that an image has defined, by id.
#[derive(Debug, Default)]
pub struct Interned {
    names: HashMap<u32, DefinedName>,
    sizes: HashMap<u32, Vec<u8>>,
}

impl Interned {
    /// Stores a definition.
    pub fn define(&mut self, id: u32, definition: Definition, losses: &mut Losses) {
        if self.is_full() {
            return losses.lose("names of ranges", "there were too many", 1);
        }
        let Definition { kind, bytes, whole } = definition;
        if bytes.len() < whole {
            losses.lose("ends of names", "they were too long", 1);
        }
        match kind {
            ExtKind::Sizes => drop(self.sizes.insert(id, bytes)),
            _ => {
                let mut text = String::from_utf8_lossy(&bytes).into_owned();
                if bytes.len() < whole {
                    text.push('…');
                }
                let arguments = split_arguments(&mut text);
                self.names.insert(id, DefinedName { text, arguments, name: None });
            }
        }
    }

    /// Whether no further definition is stored. Then an id that isn't defined now never will be.
    pub fn is_full(&self) -> bool {
        self.names.len() + self.sizes.len() >= MAX_NAMES
    }

    /// Returns the text of a name; `None` if it isn't defined yet.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(|defined| defined.text.as_str())
    }

    /// Returns the text of a name with the span's arguments, as it was defined; `None` if it isn't
    /// defined yet.
    pub fn whole(&self, id: u32) -> Option<Cow<'_, str>> {
        let defined = self.names.get(&id)?;
        Some(match &defined.arguments {
            None => Cow::Borrowed(&defined.text),
            Some(rest) => format!("{}{}{rest}", defined.text, char::from(ARGUMENTS)).into(),
        })
    }

    /// Returns the arguments of the span with this name, if it has any: a JSON object, which may be
    /// cut at its end.
    pub fn arguments(&self, id: u32) -> Option<&str> {
        self.names.get(&id)?.arguments.as_deref()
    }

    /// Returns the file's id of a name, and adds the name to the file if it is new there; `None` if
    /// it isn't defined yet.
    pub fn name(&mut self, id: u32, writer: &mut TraceWriter) -> Option<NameId> {
        let defined = self.names.get_mut(&id)?;
        Some(*defined.name.get_or_insert_with(|| writer.name(&defined.text)))
    }

    /// Returns a list of sizes in the layout of its record; `None` if it isn't defined yet.
    pub fn sizes(&self, id: u32) -> Option<&[u8]> {
        self.sizes.get(&id).map(Vec::as_slice)
    }
}

/// Splits a definition: removes the arguments from the text and returns them; `None` if it has
/// none.
fn split_arguments(text: &mut String) -> Option<String> {
    let at = text.find(char::from(ARGUMENTS)).filter(|at| text[at + 1..].starts_with('{'))?;
    let arguments = text.split_off(at);
    Some(arguments[1..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::interned::{MAX_KEPT_BYTES, WORDS, pack};

    fn definition(kind: ExtKind, bytes: &[u8]) -> Definition {
        let mut words = [0; WORDS];
        let used = pack(bytes, &mut words);
        Definition::decode(kind, &words[..used]).unwrap()
    }

    #[test]
    fn names_and_sizes_are_separate_and_a_cut_name_ends_in_an_ellipsis() {
        let (mut interned, mut losses) = (Interned::default(), Losses::default());
        let mut define = |id, kind, bytes: &[u8]| {
            interned.define(id, definition(kind, bytes), &mut losses);
        };
        define(1, ExtKind::Name, b"aten::mm");
        define(2, ExtKind::Sizes, b"aten::mm");
        define(3, ExtKind::Name, &[b'a'; MAX_KEPT_BYTES + 1]);
        assert_eq!((interned.text(1), interned.text(2)), (Some("aten::mm"), None));
        assert_eq!((interned.sizes(1), interned.sizes(2)), (None, Some(&b"aten::mm"[..])));
        let text = interned.text(3).unwrap();
        assert_eq!((text.chars().count(), text.ends_with("a…")), (MAX_KEPT_BYTES + 1, true));
        let lost: Vec<_> = losses.iter().collect();
        assert_eq!(lost, [("ends of names", "they were too long", 1)]);
    }

    #[test]
    fn a_json_object_after_the_separator_is_a_spans_arguments() {
        let (mut interned, mut losses) = (Interned::default(), Losses::default());
        let texts = ["forward\u{1f}{\"batch\":3}", "forward", "not\u{1f}arguments", "\u{1f}{cut"];
        for (id, text) in (1..).zip(texts) {
            interned.define(id, definition(ExtKind::Name, text.as_bytes()), &mut losses);
        }
        let read = [1, 2, 3, 4].map(|id| (interned.text(id).unwrap(), interned.arguments(id)));
        let expected = [
            ("forward", Some("{\"batch\":3}")),
            ("forward", None),
            ("not\u{1f}arguments", None),
            ("", Some("{cut")),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_definition_that_is_shorter_than_its_length_says_is_refused() {
        assert!(Definition::decode(ExtKind::Name, &[9 << 32 | 9, 0]).is_none());
        assert!(Definition::decode(ExtKind::Name, &[]).is_none());
    }
}

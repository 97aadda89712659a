//! Reads `meanings.txt`, which has the meaning of every key that is printed as JSON. The meanings
//! become the descriptions in `tprof report --schema` and the tables of keys in `docs/metrics.md`.

use serde_json::Value;

/// A section of the file: keys that mean the same wherever the section applies.
struct Section {
    /// The places that the section applies to. A place is `any`, a kind of report, `kind.table`, or
    /// the path of an object: `summary.cgroup`.
    places: Vec<&'static str>,
    /// A sentence on the table's rows or on the object; empty if the section applies to many
    /// tables.
    about: &'static str,
    lines: Vec<KeyMeaning>,
}

/// Keys of a section that share a meaning.
struct KeyMeaning {
    keys: Vec<&'static str>,
    meaning: &'static str,
}

/// The content of the file.
pub(super) struct Meanings(Vec<Section>);

impl Meanings {
    /// Reads the file. A section begins with a line `[PLACE, PLACE] Sentence.` and goes on with
    /// lines `KEY, KEY: Meaning.`
    ///
    /// # Panics
    ///
    /// If a line has neither form. The tests of this module read the whole file, so this can't
    /// happen in a release.
    pub fn kept() -> Meanings {
        let mut sections: Vec<Section> = Vec::new();
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in include_str!("meanings.txt").lines().filter(is_content) {
            if let Some((places, about)) =
                line.strip_prefix('[').and_then(|rest| rest.split_once(']'))
            {
                let places = places.split(", ").collect();
                sections.push(Section { places, about: about.trim(), lines: Vec::new() });
                continue;
            }
            let (keys, meaning) =
                line.split_once(": ").expect("the line has the form `KEY: Meaning.`");
            let keys = keys.split(", ").collect();
            let section = sections.last_mut().expect("the first line of content is `[PLACE]`");
            section.lines.push(KeyMeaning { keys, meaning });
        }
        Meanings(sections)
    }

    fn at(&self, place: &str) -> Option<&Section> {
        self.0.iter().find(|section| section.places.contains(&place))
    }

    /// Returns the sentence on a table or an object.
    pub fn about(&self, place: &str) -> Option<&'static str> {
        self.at(place).map(|section| section.about).filter(|about| !about.is_empty())
    }

    /// Returns the meaning of an object's key.
    pub fn member(&self, place: &str, key: &str) -> Option<&'static str> {
        let mut lines = self.at(place)?.lines.iter();
        lines.find(|line| line.keys.contains(&key)).map(|line| line.meaning)
    }

    /// Returns the meaning of a column. The section of its table has priority, then that of its
    /// kind of report, then that of all tables.
    pub fn column(&self, kind: &str, table: &str, key: &str) -> Option<&'static str> {
        let places = [&format!("{kind}.{table}"), kind, "any"];
        places.into_iter().find_map(|place| self.member(place, key))
    }

    /// Adds descriptions to the schema of an object, its members and the objects within it.
    pub fn describe(&self, place: &str, schema: &mut Value) {
        if let Some(about) = self.about(place) {
            schema["description"] = about.into();
        }
        let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for (key, member) in members.iter_mut().filter(|(key, _)| *key != "tables") {
            self.describe(&format!("{place}.{key}"), innermost(member));
            if let Some(meaning) = self.member(place, key) {
                member["description"] = meaning.into();
            }
        }
    }
}

/// Returns the schema of a list's items, or of a nullable value without the null.
fn innermost(schema: &mut Value) -> &mut Value {
    let within = ["/items", "/anyOf/0"].into_iter().find(|at| schema.pointer(at).is_some());
    match within {
        Some(at) => innermost(schema.pointer_mut(at).expect("`find` has seen this pointer")),
        None => schema,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TableList, merged, object_list};
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    /// A printed key with its place and its type.
    struct Printed {
        place: String,
        key: String,
        holds: String,
    }

    fn printed() -> Vec<Printed> {
        let list = TableList::kept();
        let columns = list.columns().map(|(kind, table, key, holds)| Printed {
            place: format!("{kind}.{table}"),
            key: key.to_owned(),
            holds: holds.to_owned(),
        });
        let members = object_list::members(&merged(Vec::new()));
        let members = members.into_iter().map(|(place, key, holds)| Printed { place, key, holds });
        columns.chain(members).collect()
    }

    fn kind_of(place: &str) -> &str {
        place.split('.').next().unwrap()
    }

    #[test]
    fn the_keys_with_a_meaning_are_those_that_are_printed() {
        let (meanings, printed) = (Meanings::kept(), printed());
        let mut used = BTreeSet::new();
        let mut problems = Vec::new();
        for Printed { place, key, .. } in &printed {
            let places = [place, kind_of(place), "any"];
            let found = places.into_iter().find(|at| meanings.member(at, key).is_some());
            match found.and_then(|found| meanings.at(found)) {
                Some(section) => drop(used.insert((section.places[0], key.as_str()))),
                None => problems.push(format!("`{key}` of {place} has no meaning")),
            }
            if meanings.about(place).is_none() {
                problems.push(format!("{place} has no sentence"));
            }
        }
        for section in &meanings.0 {
            for key in section.lines.iter().flat_map(|line| &line.keys) {
                if !used.contains(&(section.places[0], key)) {
                    problems.push(format!("`{key}` of {:?} is not printed", section.places));
                }
            }
        }
        problems.dedup();
        assert!(problems.is_empty(), "meanings.txt: {problems:#?}");
    }

    const HEADER: &str = "| key | type | meaning |";

    /// Formats a section as a table of `docs/metrics.md`.
    fn table(section: &Section, printed: &[Printed]) -> String {
        let is_here = |place: &str| {
            let kind = kind_of(place);
            section.places.iter().any(|at| [place, kind, "any"].contains(at))
        };
        let names = section.places.iter().map(|place| match place.split_once('.') {
            Some((kind, table)) if !place.starts_with("summary.") && kind != "completeness" => {
                table
            }
            _ => place,
        });
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let mut text = match section.about {
            "" => String::new(),
            about => format!("**{}** {about}\n\n", names.join(", ")),
        };
        if section.lines.is_empty() {
            return text;
        }
        text += &format!("{HEADER}\n|---|---|---|\n");
        for KeyMeaning { keys, meaning } in &section.lines {
            let mut types = Vec::new();
            for one in printed.iter().filter(|one| is_here(&one.place)) {
                if keys.contains(&one.key.as_str()) && !types.contains(&one.holds) {
                    types.push(one.holds.clone());
                }
            }
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            text += &format!("| {} | {} | {meaning} |\n", keys.join(", "), types.join(", "));
        }
        text + "\n"
    }

    /// Skips the generated sentence and table at the beginning of a text, if there are any.
    fn after_generated(text: &str) -> &str {
        let mut rest = text.trim_start();
        for begin in ["**`", HEADER] {
            if rest.starts_with(begin) {
                rest = rest.split_once("\n\n").map_or("", |(_, rest)| rest);
            }
        }
        rest
    }

    #[test]
    fn the_documented_tables_of_keys_agree_with_meanings_txt() {
        const MARK: &str = "<!-- keys: ";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let (meanings, printed) = (Meanings::kept(), printed());
        let kept = fs::read_to_string(path).unwrap();
        let mut made = String::new();
        let mut placed = Vec::new();
        let mut rest = kept.as_str();
        while let Some(at) = rest.find(MARK) {
            let (before, from) = rest.split_at(at);
            let (mark, after) = from.split_once('\n').unwrap();
            let place = mark[MARK.len()..].trim_end_matches(" -->").split(", ").next().unwrap();
            let section = meanings.at(place).unwrap_or_else(|| panic!("{mark}: no such place"));
            placed.push(section.places[0]);
            made += &format!("{before}{mark}\n\n{}", table(section, &printed));
            rest = after_generated(after);
        }
        made += rest;
        let all: Vec<&str> = meanings.0.iter().map(|section| section.places[0]).collect();
        let missing: Vec<&&str> = all.iter().filter(|place| !placed.contains(place)).collect();
        assert!(missing.is_empty(), "docs/metrics.md has no `{MARK}PLACE -->` of {missing:?}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(path, &made).unwrap();
            return;
        }
        assert!(made == kept, "docs/metrics.md: UPDATE_GOLDEN=1 writes its tables of keys");
    }
}

//! Shortens texts so that different texts stay different.
//!
//! Names in a column often have the same beginning and the same end, for example stacks of one
//! library's callers, or instances of one template. If only the middle were left out, they would
//! look the same.

use std::collections::BTreeMap;

use tprof_facts::functions::{is_source_line, without_directories, without_parameters};
use tprof_ui::columns::{cut, shorten, width};

/// In a column narrower than this, texts are not cut into two parts, because both parts would be
/// too short to read.
const LEAST: usize = 12;

/// What the names of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Functions, which have no parameters in text. Otherwise a function would have them in the wide
    /// column of one table, and none in the narrow column of another.
    Functions,
    /// Any names of the traced program, such as ranges, that may contain brackets of the user's own.
    Any,
}

/// Shortens each text to at most `columns`. The directories of places and the parameters of functions
/// are left out first, then the middle, as in [`shorten`]. Texts that would then look the same are
/// cut so that they show where they differ. The text of a source line is only cut.
pub fn shorten_all(texts: &[&str], columns: usize, kind: NameKind) -> Vec<String> {
    let all: Vec<usize> = (0..texts.len()).collect();
    let mut brief: Vec<String> = texts.iter().map(|text| brief(text, columns, kind)).collect();
    for at in groups_read_alike(&all, texts, &brief).concat() {
        texts[at].clone_into(&mut brief[at]);
    }
    let texts: Vec<&str> = brief.iter().map(String::as_str).collect();
    let mut short: Vec<String> = texts.iter().map(|text| shorten(text, columns)).collect();
    if columns >= LEAST {
        for same in groups_read_alike(&all, &texts, &short) {
            show_differences(&same, &texts, columns, 0, &mut short);
        }
    }
    short
}

/// Returns a text that is wider than `columns` without what its reader needs least.
fn brief(text: &str, columns: usize, kind: NameKind) -> String {
    if is_source_line(text) {
        return text.to_owned();
    }
    let of_function = (kind == NameKind::Functions).then(|| without_parameters(text));
    let text = of_function.as_deref().unwrap_or(text);
    if width(text) <= columns {
        return text.to_owned();
    }
    let text = without_directories(text);
    if width(&text) <= columns { text } else { without_parameters(&text) }
}

/// Returns the groups of different texts in `of` that look the same when shortened.
fn groups_read_alike(of: &[usize], texts: &[&str], short: &[String]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &at in of {
        groups.entry(&short[at]).or_default().push(at);
    }
    let differ = |group: &Vec<usize>| group.iter().any(|&at| texts[at] != texts[group[0]]);
    groups.into_values().filter(differ).collect()
}

/// Shows the beginning of each text of a group, from character `from` on, then the first place
/// where the texts differ. Texts that differ only after that form smaller groups with a longer
/// common beginning, to which this function is applied again.
fn show_differences(
    group: &[usize],
    texts: &[&str],
    columns: usize,
    from: usize,
    short: &mut [String],
) {
    let first: Vec<char> = texts[group[0]].chars().collect();
    let common = |at: &usize| texts[*at].chars().zip(&first).take_while(|(a, b)| a == *b).count();
    let differing = group.iter().filter(|&&at| texts[at] != texts[group[0]]);
    let Some(common) = differing.map(common).min() else { return };
    // The shown part begins at the beginning of a word, if one is near.
    let near = common.saturating_sub(columns / 4);
    let begins = (near..common).rev().find(|&at| !is_of_word(first[at])).map(|at| at + 1);
    let begins = begins.unwrap_or(common.saturating_sub(columns / 8));
    for &at in group {
        let part = |from: usize| texts[at].chars().skip(from).collect::<String>();
        let end = part(begins);
        let end = cut(end.trim_start(), columns * 3 / 5);
        let before = if from == 0 { part(0) } else { format!("\u{2026}{}", part(from)) };
        if width(&before) <= columns {
            short[at] = before;
            continue;
        }
        let start = cut(&before, columns.saturating_sub(width(&end)));
        short[at] = format!("{}\u{2026}{end}", start.trim_end_matches('\u{2026}'));
    }
    for same in groups_read_alike(group, texts, short) {
        if same.len() < group.len() {
            show_differences(&same, texts, columns, begins, short);
        }
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tprof_facts::functions::source_line;

    #[test]
    fn texts_that_differ_in_their_middle_are_cut_elsewhere() {
        let tail = " < main (/tmp/sites.c:10) < __libc_start_call_main (libc.so.6)";
        let stack = |caller: &str| {
            format!("grow (/tmp/sites.c:4) < load_one (/tmp/sites.c:5) < {caller}{tail}")
        };
        let [first, second, third] = ["first_caller", "second_caller", "third_caller"].map(stack);
        let texts = [&first, &second, &second, &third, "free"];
        let short = shorten_all(&texts, 60, NameKind::Any);
        assert!(
            short[0].starts_with("grow (sites.c:4) < l")
                && short[0].contains("\u{2026}first_caller")
        );
        assert!(short[1].contains("\u{2026}second_caller < main"), "{short:?}");
        assert_eq!(short[1], short[2]);
        assert!(short[3].contains("\u{2026}third_caller"), "{short:?}");
        assert_eq!(short[4], "free");
        assert!(short.iter().all(|text| width(text) <= 60), "{short:?}");
    }

    #[test]
    fn texts_that_differ_at_several_places_are_all_distinguished() {
        let (long, tail) = ("x".repeat(40), "y".repeat(40));
        let texts = ["a", "b"]
            .map(|near| ["1", "2"].map(|far| format!("{tail}{near}{long}{long}{far}{tail}")));
        let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
        let mut short = shorten_all(&texts, 30, NameKind::Any);
        assert!(short.iter().all(|text| width(text) <= 30), "{short:?}");
        short.sort();
        short.dedup();
        assert_eq!(short.len(), 4);
    }

    #[test]
    fn parameters_and_directories_are_left_out_first() {
        let long = "contains(std::vector<std::string, std::allocator<std::string> > const&)";
        let place =
            "loads (/usr/lib/python3.11/json/__init__.py:346) < main (/home/me/train.py:12)";
        let short = shorten_all(&[long, place], 50, NameKind::Any);
        assert_eq!(short, ["contains()", "loads (__init__.py:346) < main (train.py:12)"]);
        // Overloads stay different.
        let other = long.replace("vector", "list");
        let short = shorten_all(&[long, &other], 50, NameKind::Any);
        assert!(short[0] != short[1] && short[1].contains("list"), "{short:?}");
    }

    #[test]
    fn functions_have_no_parameters_in_a_column_of_any_width() {
        let texts = ["\u{2502} norm(double, int)", "\u{2502} norm(double, int) (p.cpp:6)"];
        for columns in [20, 100] {
            let short = shorten_all(&texts, columns, NameKind::Functions);
            assert!(short.iter().all(|text| text.contains("norm()")), "{short:?}");
        }
        // Overloads stay different, and a range's name is the user's.
        let overloads = ["norm(double)", "norm(float)"];
        assert_eq!(shorten_all(&overloads, 100, NameKind::Functions), overloads);
        assert_eq!(shorten_all(&["batch(3)"], 100, NameKind::Any), ["batch(3)"]);
    }

    #[test]
    fn the_text_of_a_source_line_keeps_its_brackets() {
        let line = source_line(2, "def a(n): return sum(k*k for k in range(n))");
        assert_eq!(shorten_all(&[&line], 80, NameKind::Functions), [&*line]);
        let short = shorten_all(&[&line], 40, NameKind::Functions);
        assert!(short[0].contains("def a(n): ") && width(&short[0]) <= 40, "{short:?}");
    }

    proptest! {
        #[test]
        fn shortened_texts_fit_their_column(
            texts in prop::collection::vec("[ab<( ]{0,60}", 0..6),
            columns in 1_usize..40,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let short = shorten_all(&texts, columns, NameKind::Any);
            prop_assert_eq!(short.len(), texts.len());
            for (text, short) in texts.iter().zip(short) {
                prop_assert!(width(&short) <= columns, "{:?} {}", short, columns);
                prop_assert!(width(text) > columns || *text == short);
            }
        }
    }
}

//! Shortens texts so that different ones stay different.
//!
//! Names in one column often begin and end alike: stacks of one library's callers, instances of one
//! template. If only their middle were left out, they would read the same.

use std::collections::BTreeMap;

use super::columns::{cut, shorten, width};

/// Columns below which two parts of a text are no better than one.
const LEAST: usize = 12;

/// Shortens each text to at most `columns`, leaving out its middle as [`shorten`] does. Texts that
/// would then be equal are cut where they differ.
pub fn shorten_all(texts: &[&str], columns: usize) -> Vec<String> {
    let mut short: Vec<String> = texts.iter().map(|text| shorten(text, columns)).collect();
    if columns >= LEAST {
        let all: Vec<usize> = (0..texts.len()).collect();
        for same in alike(&all, texts, &short) {
            separate(&same, texts, columns, 0, &mut short);
        }
    }
    short
}

/// Groups texts that differ but read the same.
fn alike(of: &[usize], texts: &[&str], short: &[String]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &at in of {
        groups.entry(&short[at]).or_default().push(at);
    }
    let differ = |group: &Vec<usize>| group.iter().any(|&at| texts[at] != texts[group[0]]);
    groups.into_values().filter(differ).collect()
}

/// Shows the beginning of texts, from their character `from` on, and after the omitted part the
/// first place where they differ. Texts that differ only later are separated again, in smaller
/// groups that have a longer common beginning.
fn separate(group: &[usize], texts: &[&str], columns: usize, from: usize, short: &mut [String]) {
    let first: Vec<char> = texts[group[0]].chars().collect();
    let common = |at: &usize| texts[*at].chars().zip(&first).take_while(|(a, b)| a == *b).count();
    let differing = group.iter().filter(|&&at| texts[at] != texts[group[0]]);
    let Some(common) = differing.map(common).min() else { return };
    // At the beginning of a word, if one is near.
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
    for same in alike(group, texts, short) {
        if same.len() < group.len() {
            separate(&same, texts, columns, begins, short);
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

    #[test]
    fn texts_that_differ_in_their_middle_are_cut_elsewhere() {
        let tail = " < main (/tmp/sites.c:10) < __libc_start_call_main (libc.so.6)";
        let stack = |caller: &str| {
            format!("grow (/tmp/sites.c:4) < load_one (/tmp/sites.c:5) < {caller}{tail}")
        };
        let [first, second, third] = ["first_caller", "second_caller", "third_caller"].map(stack);
        let short = shorten_all(&[&first, &second, &second, &third, "free"], 60);
        assert!(short[0].starts_with("grow (/tmp/s") && short[0].contains("\u{2026}first_caller"));
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
        let mut short = shorten_all(&texts, 30);
        assert!(short.iter().all(|text| width(text) <= 30), "{short:?}");
        short.sort();
        short.dedup();
        assert_eq!(short.len(), 4);
    }

    proptest! {
        #[test]
        fn none_is_wider_than_its_column(
            texts in prop::collection::vec("[ab<( ]{0,60}", 0..6),
            columns in 1_usize..40,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let short = shorten_all(&texts, columns);
            prop_assert_eq!(short.len(), texts.len());
            for (text, short) in texts.iter().zip(short) {
                prop_assert!(width(&short) <= columns, "{:?} {}", short, columns);
                prop_assert!(width(text) > columns || *text == short);
            }
        }
    }
}

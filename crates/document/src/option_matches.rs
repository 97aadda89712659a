//! Compares an option's text, such as that of `--within`, with the names in a run. A text that
//! matches nothing is probably a typing error and is refused, because an empty report would look
//! like an answer. The error lists all names that exist.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_rank::HostSpan;

/// The names in a rank, or in all ranks, that an option's text was compared with, and the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionMatches {
    /// Option, as typed: `--within`.
    pub option: &'static str,
    /// The things that the option chooses among, in the plural.
    pub what: &'static str,
    /// The text that was given to the option.
    pub text: String,
    /// Whether the text chooses at least one thing.
    pub chosen: bool,
    /// The largest number of things in one rank whose names contain the text; `:N` does not change
    /// it.
    pub matching: u64,
    /// All names, and how often each occurs.
    pub names: BTreeMap<String, u64>,
}

/// Splits `TEXT:N` into the text and the number.
pub fn text_and_number(text: &str) -> (&str, Option<usize>) {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(text, number)| Some((text, number.parse().ok()?)));
    parts.map_or((text, None), |(text, number)| (text, Some(number)))
}

impl OptionMatches {
    /// Matches an option's text with the names of a rank's spans. `:N` chooses the Nth of these,
    /// where the option takes a number.
    pub fn of<'s>(
        (option, what): (&'static str, &'static str),
        (text, number): (&str, Option<usize>),
        spans: impl Iterator<Item = &'s HostSpan>,
        name: impl Fn(&HostSpan) -> String,
    ) -> OptionMatches {
        let mut counts: FxHashMap<_, (&HostSpan, u64)> = FxHashMap::default();
        for span in spans {
            counts.entry((span.category, span.name)).or_insert((span, 0)).1 += 1;
        }
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for (span, count) in counts.into_values() {
            *names.entry(name(span)).or_default() += count;
        }
        let matching = names.iter().filter(|(name, _)| name.contains(text)).map(|(_, n)| n).sum();
        let chosen = number.map_or(matching > 0, |number| (number as u64) < matching);
        let text = text.to_owned();
        OptionMatches { option, what, text, chosen, matching, names }
    }

    /// Adds another rank's matches.
    pub(crate) fn add(&mut self, other: OptionMatches) {
        self.chosen |= other.chosen;
        self.matching = self.matching.max(other.matching);
        for (name, count) in other.names {
            *self.names.entry(name).or_default() += count;
        }
    }
}

//! What an option chooses by its name: whether there is such a thing in the run, and
//! what there is. A text that chooses nothing is a slip; an empty report would
//! look like an answer.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::rank::HostSpan;

/// What a rank, or all ranks, have of what an option names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionMatches {
    /// Option, as typed: `--within`.
    pub option: &'static str,
    /// What it chooses among, in the plural.
    pub what: &'static str,
    /// Its value.
    pub text: String,
    /// It chooses something.
    pub chosen: bool,
    /// How many of a rank contain its text, whatever number it gave.
    pub matching: u64,
    /// All names, and how often each is there.
    pub there: BTreeMap<String, u64>,
}

/// `TEXT:N` taken apart.
pub(crate) fn text_and_number(text: &str) -> (&str, Option<usize>) {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(text, number)| Some((text, number.parse().ok()?)));
    parts.map_or((text, None), |(text, number)| (text, Some(number)))
}

impl OptionMatches {
    /// What an option's text chooses of a rank's spans, by their names. With `:N` it
    /// means the Nth of them, where the option takes a number.
    pub(crate) fn of<'s>(
        (option, what): (&'static str, &'static str),
        (text, number): (&str, Option<usize>),
        spans: impl Iterator<Item = &'s HostSpan>,
        name: impl Fn(&HostSpan) -> String,
    ) -> OptionMatches {
        let mut counts: FxHashMap<_, (&HostSpan, u64)> = FxHashMap::default();
        for span in spans {
            counts.entry((span.category, span.name)).or_insert((span, 0)).1 += 1;
        }
        let mut there: BTreeMap<String, u64> = BTreeMap::new();
        for (span, count) in counts.into_values() {
            *there.entry(name(span)).or_default() += count;
        }
        let matching = there.iter().filter(|(name, _)| name.contains(text)).map(|(_, n)| n).sum();
        let chosen = number.map_or(matching > 0, |number| (number as u64) < matching);
        let text = text.to_owned();
        OptionMatches { option, what, text, chosen, matching, there }
    }

    /// Adds another rank's.
    pub(crate) fn add(&mut self, other: OptionMatches) {
        self.chosen |= other.chosen;
        self.matching = self.matching.max(other.matching);
        for (name, count) in other.there {
            *self.there.entry(name).or_default() += count;
        }
    }
}

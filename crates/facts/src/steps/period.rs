//! Finds the period of a list of symbols: the sequence that repeats through the list, if one
//! clearly does.
//!
//! Candidates for the sequence's length are the distances after which stretches of 1, 2, 4, …
//! symbols repeat. For each candidate, the search finds the most frequent sequence of that length
//! and counts its exact occurrences that are next to another one. The sequence is the period if
//! these cover nearly all of the list. No other sequence may cover the list, except for shorter
//! ones that repeat a few times within the period.
//!
//! If no sequence covers the list, the job may have done something else for a while, such as tuning
//! itself or compiling. Then the search looks for a long stretch through which a sequence repeats
//! without interruption, and judges that stretch in the same way.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

/// Exact repetitions must cover at least this share of the list, or of a stretch of it.
const LEAST_SHARE: f64 = 0.8;
/// The least share of the list that a stretch with a period must have. A shorter stretch may be
/// only a loop over layers.
const LEAST_STRETCH: f64 = 0.2;
/// In a stretch, a sequence must repeat more often than in a whole list: the least number of
/// repetitions is multiplied by this.
const LEAST_IN_STRETCH: usize = 2;
/// If a shorter sequence repeats within a longer one, the longer one is the period only if it
/// repeats this many times as often as the shorter one does within it.
const MORE_OFTEN: usize = 10;
/// Least number of repetitions of a sequence.
const LEAST_REPETITIONS: usize = 3;
/// A sequence shorter than this may repeat by chance, so it must repeat at least
/// [`SHORT_REPETITIONS`] times.
const SHORT: usize = 32;
/// Least number of repetitions of a sequence shorter than [`SHORT`].
const SHORT_REPETITIONS: usize = 10;
/// In a longer list, candidates are searched for in this many symbols at its middle.
const WINDOW: usize = 1 << 17;
/// Number of candidate distances for each length of stretch.
const CANDIDATES: usize = 3;

/// A sequence that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// Number of symbols in the period.
    pub length: usize,
    /// Indices at which the period begins, in order. Repetitions do not overlap.
    pub starts: Vec<usize>,
}

impl Period {
    /// Returns the sequence; `symbols` is the list in which it was found.
    fn sequence<'s>(&self, symbols: &'s [u32]) -> &'s [u32] {
        &symbols[self.starts[0]..self.starts[0] + self.length]
    }
}

/// Finds the period of symbols that occurred at these times, ns. The period begins where the time
/// before its first symbol is usually longest. Returns `None` if nothing repeats clearly, or if
/// sequences of different lengths do. Also returns `None` if only one symbol repeats, since it is
/// unknown how many of them are a period.
pub(super) fn of(symbols: &[u32], times_ns: &[u64]) -> Option<Period> {
    let from = symbols.len().saturating_sub(WINDOW) / 2;
    let window = &symbols[from..symbols.len().min(from + WINDOW)];
    let distances = distances(window);
    let found = covering_all(window, &distances);
    let sequence = match found.is_empty() {
        false => clearest(&found)?.sequence(window),
        true => {
            let stretch = steady_stretch(window, &distances)?;
            clearest(&covering_all(stretch, &self::distances(stretch)))?.sequence(stretch)
        }
    };
    let period = Period { length: sequence.len(), starts: occurrences(symbols, sequence) };
    Some(rotated(symbols, times_ns, &period).unwrap_or(period))
}

/// Returns the sequences that cover nearly all of a list, one for each length, the shortest first.
fn covering_all(symbols: &[u32], distances: &BTreeSet<usize>) -> Vec<Period> {
    let all = distances.iter().filter_map(|length| covering(symbols, *length));
    let all: BTreeMap<usize, Period> = all.map(|period| (period.length, period)).collect();
    all.into_values().collect()
}

/// Returns the sequence that is the period. It is the longest sequence, if that repeats far more
/// often than shorter ones repeat within it. This distinguishes a step from an epoch: a step
/// repeats more often than its few equal layers do within it, but an epoch repeats less often than
/// its many steps.
fn clearest(found: &[Period]) -> Option<&Period> {
    let (longest, shorter) = found.split_last()?;
    let times = longest.starts.len();
    let is_within = |of: &Period| of.starts.len() * MORE_OFTEN <= times * times;
    shorter.iter().all(is_within).then_some(longest)
}

/// Returns the stretch through which a sequence repeats most often without interruption, among
/// stretches that are long enough. In such a stretch, each symbol repeats after one of these
/// distances.
fn steady_stretch<'s>(symbols: &'s [u32], distances: &BTreeSet<usize>) -> Option<&'s [u32]> {
    let mut found: Option<(usize, &[u32])> = None;
    let is_long = |stretch: &[u32]| stretch.len() as f64 >= LEAST_STRETCH * symbols.len() as f64;
    let is_varied = |stretch: &[u32]| stretch.iter().any(|symbol| *symbol != stretch[0]);
    for &distance in distances {
        let again = symbols.iter().zip(&symbols[distance..]);
        let ends = again.enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at);
        let mut from = 0;
        for end in ends.chain([symbols.len() - distance]) {
            let stretch = &symbols[from..end + distance];
            let times = stretch.len() / distance;
            if times >= LEAST_IN_STRETCH * least_repetitions(distance)
                && found.is_none_or(|(most, _)| times > most)
                && is_long(stretch)
                && is_varied(stretch)
            {
                found = Some((times, stretch));
            }
            from = end + 1;
        }
    }
    found.map(|(_, stretch)| stretch)
}

/// Returns the least number of repetitions for a sequence of this length.
fn least_repetitions(length: usize) -> usize {
    if length < SHORT { SHORT_REPETITIONS } else { LEAST_REPETITIONS }
}

/// Returns the distances after which stretches most often repeat.
fn distances(symbols: &[u32]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let most = symbols.len() / LEAST_REPETITIONS;
    let mut stretch = 1;
    while stretch <= most {
        let mut last: FxHashMap<u64, usize> = FxHashMap::default();
        let mut votes: FxHashMap<usize, usize> = FxHashMap::default();
        for (at, hash) in hashes(symbols, stretch).enumerate() {
            if let Some(before) = last.insert(hash, at) {
                *votes.entry(at - before).or_default() += 1;
            }
        }
        let mut votes: Vec<(usize, usize)> =
            votes.into_iter().filter(|(distance, _)| *distance <= most).collect();
        votes.sort_unstable_by_key(|(distance, count)| (std::cmp::Reverse(*count), *distance));
        found.extend(votes.into_iter().take(CANDIDATES).map(|(distance, _)| distance));
        stretch *= 2;
    }
    found
}

/// Returns the most frequent sequence of a length, if it covers enough of the list. If it repeats a
/// shorter sequence, judges that one instead.
fn covering(symbols: &[u32], length: usize) -> Option<Period> {
    let mut counts: FxHashMap<u64, (usize, usize)> = FxHashMap::default();
    for (at, hash) in hashes(symbols, length).enumerate() {
        counts.entry(hash).or_insert((0, at)).0 += 1;
    }
    let most = counts.into_values().max_by_key(|(count, at)| (*count, std::cmp::Reverse(*at)))?;
    let sequence = &symbols[most.1..most.1 + length];
    let root = root(sequence);
    if root < length {
        return covering(symbols, root);
    }
    let starts = occurrences(symbols, sequence);
    let covers = (starts.len() * length) as f64 >= LEAST_SHARE * symbols.len() as f64;
    (length > 1 && starts.len() >= least_repetitions(length) && covers)
        .then_some(Period { length, starts })
}

/// Returns the indices at which a sequence occurs exactly and next to another occurrence, without
/// overlap.
fn occurrences(symbols: &[u32], sequence: &[u32]) -> Vec<usize> {
    let Some(wanted) = hashes(sequence, sequence.len()).next() else { return Vec::new() };
    let mut starts = Vec::new();
    let mut next = 0;
    for (at, hash) in hashes(symbols, sequence.len()).enumerate() {
        if at >= next && hash == wanted && symbols[at..at + sequence.len()] == *sequence {
            starts.push(at);
            next = at + sequence.len();
        }
    }
    let follows = |pair: &[usize]| pair[1] == pair[0] + sequence.len();
    let repeats = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| starts.get(before..=at));
        before.is_some_and(follows) || starts.get(at..at + 2).is_some_and(follows)
    };
    (0..starts.len()).filter(|at| repeats(*at)).map(|at| starts[at]).collect()
}

/// Returns the length of the shortest sequence of which this one consists.
fn root(sequence: &[u32]) -> usize {
    let divides = |root: &usize| sequence.len().is_multiple_of(*root);
    let repeats = |root: &usize| sequence[*root..] == sequence[..sequence.len() - root];
    (1..=sequence.len()).find(|root| divides(root) && repeats(root)).unwrap_or(sequence.len())
}

/// Returns the rotation of a period that begins after the longest usual pause, if that repeats as
/// clearly.
fn rotated(symbols: &[u32], times_ns: &[u64], period: &Period) -> Option<Period> {
    let pause = |by: usize| {
        let at = period.starts.iter().map(|start| start + by);
        let at = at.filter(|at| (1..times_ns.len()).contains(at));
        let mut pauses: Vec<u64> = at.map(|at| times_ns[at] - times_ns[at - 1]).collect();
        pauses.sort_unstable();
        pauses.get(pauses.len() / 2).copied()
    };
    let by = (0..period.length).max_by_key(|by| (pause(*by), std::cmp::Reverse(*by)))?;
    let whole = |start: &&usize| **start + by + period.length <= symbols.len();
    // Two adjacent repetitions contain each rotation of the period.
    let follows = |pair: &[usize]| pair[1] == pair[0] + period.length;
    let first = period.starts.windows(2).find(|pair| follows(pair)).map(|pair| pair[0])?;
    let first = Some(&first).filter(whole)?;
    let starts = occurrences(symbols, &symbols[first + by..first + by + period.length]);
    // A rotation may have fewer repetitions than the period, because it loses one at each
    // interruption.
    let covers = (starts.len() * period.length) as f64 >= LEAST_SHARE * symbols.len() as f64;
    (covers || starts.len() + 1 >= period.starts.len())
        .then_some(Period { length: period.length, starts })
}

/// Returns the hashes of all stretches of a length, in order of their first index.
fn hashes(symbols: &[u32], length: usize) -> impl Iterator<Item = u64> + '_ {
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    // Similar symbols must have very different hash values.
    let mixed = |symbol: u32| {
        let mixed = (u64::from(symbol) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    };
    let power = (1..length).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = 0_u64;
    symbols.iter().enumerate().filter_map(move |(at, &symbol)| {
        if at >= length {
            hash = hash.wrapping_sub(mixed(symbols[at - length]).wrapping_mul(power));
        }
        hash = hash.wrapping_mul(BASE).wrapping_add(mixed(symbol));
        (at + 1 >= length).then_some(hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the period of a text. Its letters are symbols one microsecond apart, and `_` is a
    /// pause of ten.
    fn found(text: &str) -> Option<Period> {
        let (mut symbols, mut times_ns, mut now_ns) = (Vec::new(), Vec::new(), 0);
        for letter in text.bytes() {
            now_ns += if letter == b'_' { 10_000 } else { 1000 };
            if letter != b'_' {
                symbols.push(u32::from(letter));
                times_ns.push(now_ns);
            }
        }
        of(&symbols, &times_ns)
    }

    /// Returns a head followed by twelve layers of three symbols.
    fn deep(head: &str) -> String {
        format!("{head}{}", "abc".repeat(12))
    }

    #[test]
    fn a_period_begins_after_the_longest_pause() {
        let period = found(&format!("xy{}", "bca_d".repeat(10))).unwrap();
        assert_eq!((period.length, period.starts[0], period.starts.len()), (4, 5, 9));
        let starts = found(&"_aab".repeat(12)).unwrap().starts;
        assert_eq!(starts, (0..12).map(|step| 3 * step).collect::<Vec<_>>());
    }

    #[test]
    fn the_period_is_the_step_and_not_a_repeated_layer() {
        let period = found(&deep("hijklmnopqrstuv").repeat(4)).unwrap();
        assert_eq!((period.length, period.starts.len()), (51, 4));
    }

    #[test]
    fn two_sequences_that_repeat_are_no_clear_period() {
        assert_eq!(found(&deep("hi").repeat(12)), None);
        let epoch = format!("{}vwv", "abcdefgh".repeat(30));
        assert_eq!(found(&epoch.repeat(4)), None);
    }

    #[test]
    fn a_few_repeated_launches_within_a_step_are_not_the_period() {
        let period = found(&format!("xy{}", "ababab_c".repeat(40))).unwrap();
        // The first repetition is missing, since it begins before the first pause.
        assert_eq!((period.length, period.starts.len()), (7, 39));
        // The list could be epochs of six steps or steps of six equal parts, so the period is
        // unknown.
        assert_eq!(found(&format!("{}c", "ab".repeat(6)).repeat(40)), None);
    }

    #[test]
    fn one_symbol_has_no_period() {
        assert_eq!(found(&"a".repeat(500)), None);
        assert_eq!(found(""), None);
        assert_eq!(found("a"), None);
    }

    #[test]
    fn few_repetitions_of_a_short_sequence_may_be_chance() {
        assert_eq!(found(&"abc".repeat(9)), None);
        assert!(found(&"abc".repeat(10)).is_some());
        let long: String = (b'A'..b'z').map(char::from).filter(|c| *c != '_').collect();
        assert_eq!(found(&long.repeat(2)), None);
        assert_eq!(found(&long.repeat(3)).unwrap().starts.len(), 3);
    }

    #[test]
    fn a_few_interruptions_do_not_hide_the_period() {
        let text = format!("{}{}x{}", "init", "abcd".repeat(10), "abcd".repeat(10));
        assert_eq!(found(&text).unwrap().starts.len(), 20);
    }

    #[test]
    fn the_period_is_found_after_a_job_has_tuned_itself() {
        // The text has 36 symbols without a period, ten repetitions of another sequence, and 23 of
        // the period with a pause.
        let tuned: String = (b'A'..=b'Z').chain(b'0'..=b'9').map(char::from).collect();
        let text = format!("{tuned}{}{}", "qrstu".repeat(10), "_abc".repeat(23));
        let period = found(&text).unwrap();
        assert_eq!((period.length, period.starts[0], period.starts.len()), (3, 86, 23));
        // Repetitions after an interruption count as well.
        let again = found(&format!("{text}xyz{}", "_abc".repeat(5))).unwrap();
        assert_eq!(again.starts.len(), 28);
        // A stretch that is only a small part of the list has no meaning.
        let other: String = ('\u{100}'..='\u{1ef}').collect();
        assert_eq!(found(&format!("{other}{}", "abc".repeat(25))), None);
    }

    #[test]
    fn random_symbols_have_no_period() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % 5
        };
        let symbols: Vec<u32> = (0..5000).map(|_| next()).collect();
        let times_ns: Vec<u64> = (0..5000).collect();
        assert_eq!(of(&symbols, &times_ns), None);
    }
}

//! Finds where a series of values leaves its own past, without a threshold that a user sets.
//!
//! Three things count as a change:
//!
//! - A **shift**: the values go to another level and stay there for a while. The series is cut into
//!   blocks, whose medians a few odd values don't move. The past of a block is the median of the 30
//!   blocks before it, and their spread (median absolute deviation). Four blocks in a row must lie on
//!   one side, each at least four spreads away; or two in a row, ten spreads and four times the least
//!   effect away. So a series that wanders needs a larger change than a steady one.
//! - A **drift**: the whole series moves slowly in one direction. It is cut into twelve pieces, of
//!   whose medians almost each must lie beyond those before it (the test of Mann and Kendall).
//! - A **spike**: one value of a series, more than five times the median, and no more than one other
//!   in the whole job is like it. Evaluation and checkpoints come back, so they are no spikes.
//!
//! A change also needs a least effect ([`Effect`]), since a difference of a thousandth may be certain
//! and still deserves no attention. Shifts that come and go at equal distances are how the job is,
//! and don't count.

/// Number of blocks before a block that are its past.
const PAST: usize = 30;
/// Least number of blocks of a past.
const LEAST_PAST: usize = 8;
/// Number of blocks in a row that a shift needs, and by how many spreads each is away.
const LASTING: (usize, f64) = (4, 4.0);
/// The same of a strong shift, which has several times the least effect.
const STRONG: (usize, f64) = (2, 10.0);
/// How many times the least effect a strong shift has.
const STRONG_EFFECT: f64 = 4.0;
/// A shift is over after so many blocks that are back.
const BACK: usize = 2;
/// A level that lasts for so many blocks is the new past.
const NEW_LEVEL: usize = 2 * PAST;
/// The spread is at least this share of the least effect. Values that don't vary at all would make
/// any change certain.
const LEAST_SPREAD: f64 = 0.1;
/// Number of pieces of a drift, and least sum of their signs of 66: it is random with a probability
/// of about 1 in 10,000.
const PIECES: usize = 12;
const LEAST_SIGNS: i32 = 54;
/// A drift is a change by so many spreads of the pieces around their line.
const DRIFT_SPREADS: f64 = 4.0;
/// Number of values of which a series must have at least so many to have spikes or a drift.
const FEWEST: usize = 50;
/// A spike is at least so many times the median.
const SPIKE: f64 = 5.0;
/// Most values in the series that are like a spike: at least half as far from the median.
const MOST_ALIKE: usize = 2;
/// Ratio of the standard deviation to the median absolute deviation, in a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The least change that deserves attention. Both must hold.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// As a share of the value before.
    pub share: f64,
    /// In the figure's unit.
    pub amount: f64,
}

impl Effect {
    fn of(self, before: f64) -> f64 {
        (self.share * before.abs()).max(self.amount)
    }
}

/// How a series changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// The values went to another level.
    Shift,
    /// The values moved slowly over the whole series.
    Drift,
    /// One value was extreme.
    Spike,
}

impl ChangeKind {
    /// Returns the word for the kind.
    pub fn word(self) -> &'static str {
        match self {
            ChangeKind::Shift => "shift",
            ChangeKind::Drift => "drift",
            ChangeKind::Spike => "spike",
        }
    }
}

/// A change of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesChange {
    /// Whether it is a shift, a drift or a spike.
    pub kind: ChangeKind,
    /// Index of the first value after the change.
    pub from: usize,
    /// Index of the first value that is back; `None` if it didn't come back.
    pub until: Option<usize>,
    /// The median of the values before the change.
    pub before: f64,
    /// The spread before, as a standard deviation.
    pub spread: f64,
    /// The median after, or the value of a spike; of a drift the level at its end.
    pub value: f64,
}

/// Returns the changes of a series in which nothing repeats at equal distances.
pub fn changes(values: &[f64], effect: Effect) -> Vec<SeriesChange> {
    // A day of one value a second has blocks of a minute, a run of ten minutes has blocks of eight
    // values.
    let block = (values.len() / 256).clamp(8, 64);
    changes_of_blocks(values, block, effect)
}

/// Like [`changes`], with blocks of this many values.
pub fn changes_of_blocks(values: &[f64], block: usize, effect: Effect) -> Vec<SeriesChange> {
    if let Some(drift) = drift(values, effect) {
        return vec![drift];
    }
    let medians: Vec<f64> = values.chunks_exact(block).map(|of| median(of.to_vec())).collect();
    let mut found = shifts(&medians, effect);
    leave_out_regular(&mut found);
    for change in &mut found {
        change.from *= block;
        change.until = change.until.map(|until| until * block);
    }
    found
}

/// Returns the spikes of a series: its single values that are extreme.
pub fn spikes(values: &[f64]) -> Vec<SeriesChange> {
    // The first values are those of warm-up.
    let first = (values.len() / 20).max(10);
    if values.len() < FEWEST {
        return Vec::new();
    }
    let (before, spread) = center(values.to_vec());
    if before <= 0.0 {
        return Vec::new();
    }
    let spike = |(at, value): (usize, &f64)| {
        let alike = || values.iter().filter(|other| **other - before >= (value - before) / 2.0);
        let is_spike = *value >= SPIKE * before && alike().count() <= MOST_ALIKE;
        is_spike.then_some(SeriesChange {
            kind: ChangeKind::Spike,
            from: at,
            until: Some(at + 1),
            before,
            spread,
            value: *value,
        })
    };
    // Comparing each value with all others would take long: only the largest can be spikes.
    let mut largest: Vec<usize> = (0..values.len()).collect();
    let most = largest.len().min(MOST_ALIKE + 1);
    largest.select_nth_unstable_by(most - 1, |a, b| values[*b].total_cmp(&values[*a]));
    let mut candidates = largest[..most].to_vec();
    candidates.sort_unstable();
    let candidates = candidates.into_iter().filter(|at| *at >= first);
    candidates.filter_map(|at| spike((at, &values[at]))).collect()
}

/// Finds shifts among medians of blocks; their places are numbers of blocks.
fn shifts(medians: &[f64], effect: Effect) -> Vec<SeriesChange> {
    let mut found: Vec<SeriesChange> = Vec::new();
    // The past begins at the last level that was accepted.
    let (mut level, mut at) = (0, 0);
    while at < medians.len() {
        let past = &medians[at.saturating_sub(PAST).max(level)..at];
        let Some((before, spread)) = past_of(past, effect) else {
            at += 1;
            continue;
        };
        if !begins(&medians[at..], before, spread, effect) {
            at += 1;
            continue;
        }
        let away = (LASTING.1 / 2.0 * spread).max(effect.of(before) / 2.0);
        let side = (medians[at] - before).signum();
        let is_back = |median: &f64| (median - before) * side < away;
        let over = medians[at..].windows(BACK).position(|next| next.iter().all(is_back));
        let length = over.unwrap_or(medians.len() - at).min(NEW_LEVEL);
        let is_new_level = over.is_none_or(|over| over > NEW_LEVEL);
        found.push(SeriesChange {
            kind: ChangeKind::Shift,
            from: at,
            until: over.map(|over| at + over),
            before,
            spread,
            value: median(medians[at..at + length].to_vec()),
        });
        // After a shift that came back the past is the one before it, which no block of the shift
        // may spoil.
        let end = at + over.unwrap_or(length).max(1);
        if is_new_level {
            (level, at) = (at, at + length.max(1));
        } else {
            (level, at) = (end, end);
        }
    }
    found
}

/// Returns median and spread of a past; `None` if it is too short.
fn past_of(past: &[f64], effect: Effect) -> Option<(f64, f64)> {
    if past.len() < LEAST_PAST {
        return None;
    }
    let (before, spread) = center(past.to_vec());
    Some((before, spread.max(LEAST_SPREAD * effect.of(before))))
}

/// Whether a shift begins with the first of these blocks.
fn begins(next: &[f64], before: f64, spread: f64, effect: Effect) -> bool {
    let least = effect.of(before);
    let lasts = |(blocks, spreads): (usize, f64), least: f64| {
        let away = least.max(spreads * spread);
        let next = next.get(..blocks).unwrap_or_default();
        !next.is_empty()
            && (next.iter().all(|median| median - before > away)
                || next.iter().all(|median| before - median > away))
    };
    lasts(LASTING, least) || lasts(STRONG, STRONG_EFFECT * least)
}

/// Removes shifts that come and go at equal distances: at least three, in one direction.
fn leave_out_regular(found: &mut Vec<SeriesChange>) {
    for sign in [1.0, -1.0] {
        let is_alike = |change: &SeriesChange| {
            change.until.is_some() && (change.value - change.before) * sign > 0.0
        };
        let starts: Vec<usize> =
            found.iter().filter(|of| is_alike(of)).map(|change| change.from).collect();
        let gaps = starts.windows(2).map(|pair| pair[1] - pair[0]);
        let (least, most) = (gaps.clone().min(), gaps.max());
        let is_regular = least.zip(most).is_some_and(|(least, most)| most * 2 <= least * 3);
        if starts.len() >= 3 && is_regular {
            found.retain(|change| !is_alike(change));
        }
    }
}

/// Returns the drift of a series, if it has one.
fn drift(values: &[f64], effect: Effect) -> Option<SeriesChange> {
    // The first part may be warm-up.
    let from = values.len() / 20;
    let values = &values[from..];
    if values.len() < FEWEST {
        return None;
    }
    let length = values.len() / PIECES;
    let pieces: Vec<f64> =
        values.chunks_exact(length).take(PIECES).map(|of| median(of.to_vec())).collect();
    let pairs = || (0..PIECES).flat_map(|a| (a + 1..PIECES).map(move |b| (a, b)));
    let sign = |(a, b): (usize, usize)| match pieces[b].total_cmp(&pieces[a]) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    };
    let signs: i32 = pairs().map(sign).sum();
    if signs.abs() < LEAST_SIGNS {
        return None;
    }
    let slope = median(pairs().map(|(a, b)| (pieces[b] - pieces[a]) / (b - a) as f64).collect());
    let at = |piece: usize| slope * piece as f64;
    let base = median((0..PIECES).map(|piece| pieces[piece] - at(piece)).collect());
    let mut off: Vec<f64> =
        (0..PIECES).map(|piece| (pieces[piece] - base - at(piece)).abs()).collect();
    // The second largest: one piece may be odd.
    off.sort_unstable_by(f64::total_cmp);
    let rest = off[PIECES - 2];
    let (before, change) = (base, at(PIECES - 1));
    let is_even = rest <= change.abs() / DRIFT_SPREADS;
    let (_, spread) = center(values[..length].to_vec());
    (is_even && change.abs() >= effect.of(before)).then_some(SeriesChange {
        kind: ChangeKind::Drift,
        from,
        until: None,
        before,
        spread,
        value: base + change,
    })
}

/// Returns the median of values, and their spread.
fn center(values: Vec<f64>) -> (f64, f64) {
    let middle = median(values.clone());
    let off = values.into_iter().map(|value| (value - middle).abs()).collect();
    (middle, median(off) * MAD_TO_SIGMA)
}

/// Returns the median, the higher of the two middle values of an even number; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use tprof_fixture::random::Random;

    use super::*;

    const STEP: Effect = Effect { share: 0.05, amount: 0.0 };
    /// Steps of a day of one a second.
    const DAY: usize = 86_400;

    /// A steady job's step times, in seconds: jitter of 3 % whose tail is heavy, a wander of 1 % that
    /// lasts for some ten steps and one of 1 % that lasts for an hour, warm-up, an evaluation each
    /// 500 steps, a checkpoint each 1,800.
    fn steady(steps: usize, seed: u64) -> Vec<f64> {
        let mut random = Random(seed);
        let (mut short, mut long) = (0.0, 0.0);
        (0..steps)
            .map(|step| {
                short = 0.9 * short + 0.01 * (1.0_f64 - 0.81).sqrt() * random.normal();
                let slow: f64 = 1.0 - 1.0 / 3600.0;
                long = slow * long + 0.01 * (1.0 - slow * slow).sqrt() * random.normal();
                let mut time = (0.03 * random.normal() + short + long).exp();
                if random.unit() < 0.02 {
                    // Pareto's distribution with an exponent of 3.
                    time += 0.1 * random.unit().powf(-1.0 / 3.0);
                }
                time *= match step {
                    0..3 => 20.0,
                    3..10 => 1.5,
                    _ => 1.0,
                };
                time += if step % 500 == 499 { 6.0 } else { 0.0 };
                time + if step % 1800 == 1799 { 2.5 } else { 0.0 }
            })
            .collect()
    }

    fn all(values: &[f64]) -> Vec<SeriesChange> {
        let mut found = changes(values, STEP);
        found.extend(spikes(values));
        found
    }

    #[test]
    fn a_steady_job_has_less_than_one_false_alarm_a_day() {
        // Of twenty days each there was none.
        let days = 6;
        let alarms: usize = (0..days).map(|seed| all(&steady(DAY, seed)).len()).sum();
        // The same number of steps in jobs of ten minutes and of two hours.
        let short: usize = (0..days * 144).map(|seed| all(&steady(600, 1000 + seed)).len()).sum();
        let hours: usize = (0..days * 12).map(|seed| all(&steady(7200, 9000 + seed)).len()).sum();
        assert_eq!((alarms, short, hours), (0, 0, 0), "false alarms in {days} days each");
    }

    /// How many of these series have a change of this kind that begins near a step.
    fn found(kind: ChangeKind, near: (usize, usize), make: impl Fn(u64) -> Vec<f64>) -> usize {
        let is_found = |seed: &u64| {
            let found = all(&make(*seed));
            found.iter().any(|of| of.kind == kind && (near.0..near.1).contains(&of.from))
        };
        (0..20).filter(is_found).count()
    }

    fn from_step(mut values: Vec<f64>, step: usize, factor: f64) -> Vec<f64> {
        values[step..].iter_mut().for_each(|value| *value *= factor);
        values
    }

    #[test]
    fn a_shift_of_a_tenth_is_found_where_it_begins() {
        let day = |seed| from_step(steady(DAY, seed), 40_000, 1.1);
        let short = |seed| from_step(steady(1200, seed), 700, 1.1);
        let faster = |seed| from_step(steady(7200, seed), 3000, 0.9);
        let counts = [
            found(ChangeKind::Shift, (39_800, 40_300), day),
            found(ChangeKind::Shift, (640, 740), short),
            found(ChangeKind::Shift, (2900, 3100), faster),
        ];
        // Of twenty each. Short jobs have little past.
        let least = [19, 15, 19];
        assert!(counts.iter().zip(least).all(|(count, least)| *count >= least), "{counts:?}");
    }

    #[test]
    fn a_shift_that_ends_says_until_when() {
        let mut values = steady(DAY, 5);
        values[30_000..33_000].iter_mut().for_each(|value| *value *= 1.3);
        let found = all(&values);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].from.abs_diff(30_000) < 200, "{found:?}");
        assert!(found[0].until.unwrap().abs_diff(33_000) < 200, "{found:?}");
        assert!((found[0].value / found[0].before - 1.3).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn a_drift_of_a_tenth_is_found() {
        let drifts = |steps: usize| {
            move |seed| {
                let values = steady(steps, seed).into_iter().enumerate();
                values.map(|(at, value)| value * (1.0 + 0.1 * at as f64 / steps as f64)).collect()
            }
        };
        assert!(found(ChangeKind::Drift, (0, DAY), drifts(DAY)) >= 18);
        assert!(found(ChangeKind::Drift, (0, DAY), drifts(2000)) >= 18);
    }

    #[test]
    fn memory_that_grows_is_found() {
        // 10 GB that grow by a twentieth an hour, in steps of 64 MB, with noise of 1 %.
        let effect = Effect { share: 0.05, amount: 16e6 };
        let grows = |seed, an_hour: f64| -> Vec<f64> {
            let mut random = Random(seed);
            let level = |at: usize| 10e9 * (1.0 + an_hour * at as f64 / 3600.0);
            (0..14_400)
                .map(|at| ((level(at) / 64e6).floor() * 64e6) * (1.0 + 0.01 * random.normal()))
                .collect()
        };
        for seed in 0..20 {
            let found = changes(&grows(seed, 0.05), effect);
            assert!(found.len() == 1 && found[0].kind == ChangeKind::Drift, "{found:?}");
            assert!((found[0].value / 10e9 - 1.2).abs() < 0.03, "{found:?}");
            assert_eq!(changes(&grows(seed, 0.0), effect), []);
        }
    }

    #[test]
    fn one_extreme_step_is_a_spike_and_those_that_come_back_are_not() {
        let mut values = steady(DAY, 3);
        values[50_000] = 60.0;
        let found = all(&values);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].kind, found[0].from, found[0].value),
            (ChangeKind::Spike, 50_000, 60.0)
        );
        for at in (1000..DAY).step_by(7000) {
            values[at] = 60.0;
        }
        assert_eq!(all(&values), []);
    }

    #[test]
    fn what_comes_and_goes_at_equal_distances_is_how_the_job_is() {
        let mut values = steady(7200, 8);
        for from in (500..7200).step_by(900) {
            values[from..from + 200].iter_mut().for_each(|value| *value *= 1.5);
        }
        assert_eq!(all(&values), []);
    }

    #[test]
    fn few_or_equal_values_have_no_change() {
        assert_eq!(all(&[]), []);
        assert_eq!(all(&[1.0; 40]), []);
        assert_eq!(all(&[2.0; 5000]), []);
        assert_eq!(all(&[0.0; 5000]), []);
    }
}

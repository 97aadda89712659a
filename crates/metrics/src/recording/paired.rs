//! Measures the cost of recording per step by comparison with steps that were not recorded
//! (`--overhead paired`). The steps of a stretch without recording are compared with equally many
//! recorded steps before and after it, so that slow changes (of processor clocks or of other
//! programs) affect both sides. The cost is the median of these differences. Its interval is that
//! of a median by order statistics, which is valid for any distribution.

use tprof_facts::units::counted;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::reading::Reading;
use tprof_rank::run::step_cost::PairedCost;
use tprof_trace::TraceFile;
use tprof_trace::model::{MarkKind, ProcessIndex, counter};

const NOT_ASKED: &str = "all steps were recorded: --overhead paired leaves some out and compares";
/// A step is not compared if it begins sooner than this after recording was switched, because the
/// recording of devices is switched a little later.
const SETTLES_NS: u64 = 100_000_000;
/// Number of steps at the beginning of a job that take longer than others, recorded or not.
const FIRST: usize = 5;
/// The smallest number of differences whose minimum and maximum bound a 95 % interval of their
/// median.
const FEWEST: usize = 6;

/// A stretch of successive steps that were all recorded, or all not recorded.
#[derive(Debug, Default)]
struct PairedSteps {
    recorded: bool,
    /// Durations of the steps that are compared, ns.
    times: Vec<u64>,
}

/// Returns the cost of recording per step of a process.
pub(super) fn of_process(file: &TraceFile, process: ProcessIndex) -> Reading<PairedCost> {
    let begun: Vec<(u64, u64)> = (file.counters().iter())
        .filter(|row| row.process == Some(process))
        .filter(|row| file.name(row.name) == counter::STEPS_BEGUN)
        .map(|row| (row.time_ns, row.value as u64))
        .collect();
    if begun.is_empty() {
        return Reading::missing(NOT_ASKED);
    }
    let mut switches: Vec<(u64, bool)> = (file.marks().iter())
        .filter(|mark| mark.process.is_none_or(|of| of == process))
        .filter_map(|mark| match mark.kind {
            MarkKind::RecordingOn => Some((mark.time_ns, true)),
            MarkKind::RecordingOff => Some((mark.time_ns, false)),
            _ => None,
        })
        .collect();
    switches.sort_unstable();
    compared(&stretches(&steps_of(&begun), &switches))
}

/// Returns the steps from each beginning to the next one.
fn steps_of(begun: &[(u64, u64)]) -> Vec<Interval> {
    let follow = begun.windows(2).filter(|two| two[1].1 == two[0].1 + 1);
    let steps: Vec<Interval> = follow.map(|two| Interval::new(two[0].0, two[1].0)).collect();
    steps.get(FIRST..).unwrap_or_default().to_vec()
}

/// Groups the steps by whether recording was on. A step in which recording was switched belongs to
/// no group.
fn stretches(steps: &[Interval], switches: &[(u64, bool)]) -> Vec<PairedSteps> {
    let mut found: Vec<PairedSteps> = Vec::new();
    let mut of = None;
    for step in steps {
        let before = switches.partition_point(|(at, _)| *at <= step.start);
        let last = before.checked_sub(1).map(|at| switches[at]);
        let next = switches.get(before).filter(|(at, _)| *at < step.end);
        if next.is_some() {
            of = None;
            continue;
        }
        let (since, recorded) = last.unwrap_or((0, true));
        if of != Some(recorded) {
            found.push(PairedSteps { recorded, times: Vec::new() });
            of = Some(recorded);
        }
        if let Some(stretch) = found.last_mut()
            && step.start >= since.saturating_add(SETTLES_NS)
        {
            stretch.times.push(step.length());
        }
    }
    found
}

fn compared(stretches: &[PairedSteps]) -> Reading<PairedCost> {
    let (mut differences, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for (at, stretch) in stretches.iter().enumerate() {
        if stretch.recorded || stretch.times.is_empty() {
            continue;
        }
        let count = stretch.times.len();
        let recorded = |at: Option<usize>| {
            let beside = stretches.get(at?).filter(|beside| beside.recorded)?;
            (!beside.times.is_empty()).then_some(&beside.times[..])
        };
        let before = recorded(at.checked_sub(1)).unwrap_or_default();
        let after = recorded(Some(at + 1)).unwrap_or_default();
        let beside: Vec<u64> = before[before.len().saturating_sub(count)..]
            .iter()
            .chain(&after[..after.len().min(count)])
            .copied()
            .collect();
        let Some((recorded, unrecorded)) = middle(&beside).zip(middle(&stretch.times)) else {
            continue;
        };
        differences.push(recorded - unrecorded);
        with.extend(beside);
        without.extend(&stretch.times);
    }
    let Some((ns_low, ns, ns_high)) = interval_of_median(&mut differences) else {
        return Reading::missing(format!(
            "{} of unrecorded steps could be compared; {FEWEST} are enough",
            counted(differences.len() as u64, "stretch", "stretches")
        ));
    };
    Reading::Is(PairedCost {
        ns,
        ns_low,
        ns_high,
        stretches: differences.len() as u64,
        recorded_ns: middle(&with).unwrap_or(0).unsigned_abs(),
        unrecorded_ns: middle(&without).unwrap_or(0).unsigned_abs(),
    })
}

/// Returns the median of times; `None` if there are no times.
fn middle(times: &[u64]) -> Option<i64> {
    let mut sorted: Vec<i64> =
        times.iter().map(|ns| i64::try_from(*ns).unwrap_or(i64::MAX)).collect();
    sorted.sort_unstable();
    let (low, high) =
        (sorted.get((sorted.len().checked_sub(1)?) / 2)?, sorted.get(sorted.len() / 2)?);
    Some(low.midpoint(*high))
}

/// Sorts the values and returns their median between the ends of its 95 % interval. The ends are
/// two of the values, chosen by their ranks so that the true median lies between them in 95 of 100
/// cases, for any distribution. Returns `None` for fewer than `FEWEST` values.
fn interval_of_median(values: &mut [i64]) -> Option<(i64, i64, i64)> {
    let count = values.len();
    if count < FEWEST {
        return None;
    }
    values.sort_unstable();
    // `beyond` is the number of values that lie beyond an end. It is chosen so that at most 2.5 %
    // of the binomial distribution of the number of values below the median is cut off at each end.
    let (mut beyond, mut probability, mut below) = (0, 0.5_f64.powi(count as i32), 0.0);
    // For many values, 2^-n is 0 in a double, so the binomial distribution is approximated by the
    // normal distribution.
    if count > 1_000 {
        beyond = (count as f64 / 2.0 - 0.98 * (count as f64).sqrt()) as usize;
        probability = 1.0;
    }
    while below + probability <= 0.025 {
        below += probability;
        beyond += 1;
        probability *= (count - beyond + 1) as f64 / beyond as f64;
    }
    let low = values[beyond.saturating_sub(1)];
    let middle = values[(count - 1) / 2].saturating_add(values[count / 2]).div_euclid(2);
    Some((low, middle, values[count - beyond.max(1)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_of_few_values_has_the_ranks_of_the_sign_test() {
        let mut values = [5, 1, 9, 3, 7];
        assert_eq!(interval_of_median(&mut values), None);
        // As in tables of the sign test: of 6 to 8 values, the interval spans all; of 9, it leaves
        // out the lowest and the highest; of 20, it begins with the 6th.
        let of = |count: i64| interval_of_median(&mut (1..=count).collect::<Vec<_>>()).unwrap();
        assert_eq!(of(6), (1, 3, 6));
        assert_eq!(of(9), (2, 5, 8));
        assert_eq!(of(20), (6, 10, 15));
        let many = of(4_000);
        assert_eq!(many, (1938, 2000, 2063));
    }

    #[test]
    fn steps_are_compared_with_the_recorded_ones_around_them() {
        const MS: u64 = 1_000_000;
        let (mut begun, mut switches, mut at) = (Vec::new(), Vec::new(), 1_000 * MS);
        for step in 0..200_u64 {
            begun.push((at, step));
            let recorded = step % 20 < 15;
            // Recording is switched on or off a moment after the step begins.
            match step % 20 {
                0 if step > 0 => switches.push((at + 10, true)),
                15 => switches.push((at + 10, false)),
                _ => {}
            }
            // The machine gets slower; the first steps are slow.
            at += 50 * MS + step * 100_000 + if step < 5 { 400 * MS } else { 0 };
            at += if recorded { 6 * MS } else { 0 };
        }
        let of = compared(&stretches(&steps_of(&begun), &switches));
        let of = of.value().unwrap();
        assert_eq!(of.stretches, 10);
        assert!((5_800_000..6_300_000).contains(&of.ns), "{of:?}");
        assert!(of.ns_low <= of.ns && of.ns <= of.ns_high, "{of:?}");
        // If the record of a step's beginning is lost, the two steps around it do not become one
        // step.
        begun.remove(37);
        let steps = steps_of(&begun);
        assert!(steps.iter().all(|step| step.length() < 100 * MS));
        assert_eq!(compared(&stretches(&steps[..40], &switches)).value(), None);
    }

    proptest! {
        #[test]
        fn the_interval_contains_the_median_and_follows_the_values(
            values in prop::collection::vec(-1000_i64..1000, 6..200),
            by in -500_i64..500,
        ) {
            let mut values = values;
            let (low, middle, high) = interval_of_median(&mut values).unwrap();
            prop_assert!(low <= middle && middle <= high);
            let mut moved: Vec<i64> = values.iter().map(|value| value + by).collect();
            prop_assert_eq!(interval_of_median(&mut moved), Some((low + by, middle + by, high + by)));
            let mut twice: Vec<i64> = values.iter().chain(&values).copied().collect();
            let (closer_low, _, closer_high) = interval_of_median(&mut twice).unwrap();
            prop_assert!(low <= closer_low && closer_high <= high);
        }

        /// If all values have one distribution around 0, the interval contains 0 in 95 of 100
        /// cases.
        #[test]
        fn the_interval_contains_the_median(seed in any::<u64>(), count in 6_usize..40, skewed: bool) {
            let mut state = seed | 1;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as f64 / f64::from(1_u32 << 31)
            };
            let mut held = 0;
            for _ in 0..400 {
                let mut values: Vec<i64> = (0..count)
                    .map(|_| {
                        let value = random() - 0.5;
                        (if skewed && value > 0.0 { value * value * 4e6 } else { value * 1e6 }) as i64
                    })
                    .collect();
                let (low, _, high) = interval_of_median(&mut values).unwrap();
                held += u32::from(low <= 0 && 0 <= high);
            }
            // 95 % of 400 is 380. The limit is six standard deviations lower.
            prop_assert!(held >= 354, "{held}");
        }
    }
}

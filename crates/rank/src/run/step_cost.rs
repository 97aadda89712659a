//! Describes the cost of recording per step of a rank, in figures and in words.

use tprof_facts::units::{duration, percent};

use crate::base::object::object;
use crate::base::reading::Reading;
use crate::base::sort_rows::SortRows;

/// The cost of recording is visible if it is more than this share of a step.
const VISIBLE: f64 = 0.05;
/// The sentence leaves out parts of less than this share of a step. They still count in the sum.
const WORTH_A_WORD: f64 = 0.002;

/// Added to the sentence of an estimate without totals over time.
const OF_OLDER: &str =
    "; with all stacks and waits of the run, as an older tprof recorded no totals over time";

/// The cost of recording per step of a rank, over the steps after warm-up, which reports judge.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    /// The rank: `rank 3`.
    pub rank: String,
    /// Number of steps.
    pub steps: u64,
    /// Median duration of a step, as in `report steps`.
    pub step_ns: u64,
    /// Lower bound of the time that recording took of a step, on average; an estimate from `parts`.
    pub ns_low: Reading<u64>,
    /// Upper bound of that time.
    pub ns_high: Reading<u64>,
    /// The parts of the cost.
    pub parts: Vec<StepPart>,
    /// Mean time of a step in which the rank's devices were idle, which is an upper bound of the
    /// cost. It is missing if no device worked.
    pub device_idle_ns: Reading<u64>,
    /// Whether the run has totals over time of the work of recording. Without these, all stacks and
    /// waits of the run may lie in the steps.
    pub has_totals: bool,
    /// The cost by comparison with steps that were not recorded.
    pub paired: Reading<PairedCost>,
    /// All fields in a sentence without a full stop.
    pub text: String,
}
object! { StepCost {
    plain rank, plain steps, plain step_ns, reading ns_low, reading ns_high, plain parts,
    reading device_idle_ns, plain has_totals, reading paired, plain text,
} }

/// One part of the cost of recording per step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepPart {
    /// `heap`, `stacks`, `operators`, `calls`, `cupti`, `samples`, `in_place`, `waits` or
    /// `collector`.
    pub part: &'static str,
    /// Mean number of actions per step; missing for a part that is measured as time.
    pub count: Reading<f64>,
    /// Lower bound of the time that these actions took of a step.
    pub ns_low: u64,
    /// Upper bound of that time; missing if the unit cost is unknown.
    pub ns_high: Reading<u64>,
}
object! { StepPart { plain part, reading count, plain ns_low, reading ns_high } }

/// The cost of recording per step, by comparison with steps that were not recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedCost {
    /// The median difference.
    pub ns: i64,
    /// The lower end of the median's 95 % interval.
    pub ns_low: i64,
    /// The upper end of that interval.
    pub ns_high: i64,
    /// Number of stretches of steps that were not recorded. Each was compared with the recorded
    /// steps around it.
    pub stretches: u64,
    /// Median duration of the recorded steps that were compared.
    pub recorded_ns: u64,
    /// Median duration of the steps that were not recorded.
    pub unrecorded_ns: u64,
}
object! { PairedCost {
    plain ns, plain ns_low, plain ns_high, plain stretches, plain recorded_ns, plain unrecorded_ns,
} }

impl StepPart {
    /// Name of the part in a sentence.
    fn words(&self) -> &'static str {
        match self.part {
            "calls" => "records of calls and ranges",
            "cupti" => "CUPTI",
            "samples" => "CPU samples",
            "in_place" => "other work of tprof's library",
            "collector" => "the collector on the job's processors",
            other => other,
        }
    }
}

impl StepCost {
    /// Sets `text` to the sentence that is made from all other fields.
    pub fn worded(self) -> StepCost {
        StepCost { text: self.sentence(), ..self }
    }

    /// Returns the bounds of the comparison if there was one, otherwise those of the estimate.
    pub fn bounds(&self) -> Option<(u64, u64)> {
        match &self.paired {
            Reading::Is(paired) => Some((clamped(paired.ns_low), clamped(paired.ns_high))),
            _ => self.estimate().ok(),
        }
    }

    /// Returns the middle between the bounds, or the median of the comparison, as a share of a
    /// step.
    pub fn share(&self) -> Option<f64> {
        let middle = match &self.paired {
            Reading::Is(paired) => clamped(paired.ns),
            _ => self.bounds().map(|(low, high)| low.midpoint(high))?,
        };
        Some(middle as f64 / self.step_ns.max(1) as f64)
    }

    /// Whether the cost is a visible part of a step.
    pub fn is_visible(&self) -> bool {
        self.share().is_some_and(|share| share > VISIBLE)
    }

    /// Returns the duration of a step without the cost: lower and upper bound.
    pub fn step_without(&self) -> Option<(u64, u64)> {
        let (low, high) = self.bounds()?;
        Some((self.step_ns.saturating_sub(high), self.step_ns.saturating_sub(low)))
    }

    /// Returns the idle time of the devices in a step without the cost: lower and upper bound.
    pub fn idle_without(&self) -> Option<(u64, u64)> {
        let ((low, high), idle) = self.bounds().zip(self.device_idle_ns.get())?;
        Some((idle.saturating_sub(high), idle.saturating_sub(low)))
    }

    /// Returns the factor by which a rate of steps would be higher without the cost: lower and
    /// upper bound.
    pub fn rate_without(&self) -> Option<(f64, f64)> {
        let (least, most) = self.step_without()?;
        let factor = |ns: u64| self.step_ns as f64 / ns.max(1) as f64;
        (least > 0).then(|| (factor(most), factor(least)))
    }

    /// Returns the cost and the step that it is a part of: `recording itself took 4.9 ms to 6.6 ms
    /// of a step of 30.7 ms (16 % to 21 %)`.
    pub fn taken(&self) -> Option<String> {
        let (low, high) = self.bounds()?;
        let how = if self.paired.value().is_some() { "measured" } else { "an estimate" };
        Some(format!(
            "recording itself took {} of a step of {} ({}, {how})",
            span(duration(low), duration(high)),
            duration(self.step_ns),
            span(self.percent(low), self.percent(high)),
        ))
    }

    /// Returns the sentence without the parts of the cost.
    pub fn brief(&self) -> String {
        let step = format!("a step took {}", duration(self.step_ns));
        if let Reading::Is(paired) = &self.paired {
            let signed = |ns: i64| match ns {
                ..0 => format!("-{}", duration(ns.unsigned_abs())),
                _ => duration(ns.unsigned_abs()),
            };
            return format!(
                "{step}; recording took {} of it (95 %: {}, by {} stretches of unrecorded steps)",
                signed(paired.ns),
                span(signed(paired.ns_low), signed(paired.ns_high)),
                paired.stretches,
            );
        }
        match self.estimate() {
            Ok((low, high)) => format!(
                "{step}; recording took {} of it, {} (estimate)",
                span(duration(low), duration(high)),
                span(self.percent(low), self.percent(high)),
            ),
            Err(why) => format!("{step}; what recording took of it is unknown: {why}"),
        }
    }

    /// Returns the sentence with the names of the two largest parts of the cost, without their times.
    pub fn short(&self) -> String {
        let names: Vec<_> = self.worth_a_word().iter().take(2).map(|part| part.words()).collect();
        match (names.is_empty(), self.bounds()) {
            (false, Some(_)) => format!("{}, mainly {}", self.brief(), names.join(" and ")),
            _ => self.brief(),
        }
    }

    fn sentence(&self) -> String {
        let brief = self.brief();
        let parts = self.parts_in_words();
        let mut parts = if parts.is_empty() { parts } else { format!(": {parts}") };
        if !self.has_totals {
            parts += OF_OLDER;
        }
        match (&self.paired, self.estimate()) {
            (Reading::Is(_), Ok((low, high))) => {
                let bounds = span(duration(low), duration(high));
                format!("{brief}; estimated from its parts {bounds}{parts}")
            }
            (Reading::Is(_), Err(why)) => format!("{brief}; its parts are unknown: {why}"),
            (_, Ok(_)) => format!("{brief}{parts}"),
            (_, Err(_)) => brief,
        }
    }

    /// Returns the bounds of the estimate from the parts, or the reason why they are not known.
    fn estimate(&self) -> Result<(u64, u64), &str> {
        match (&self.ns_low, &self.ns_high) {
            (Reading::Missing(why), _) | (_, Reading::Missing(why)) => Err(why),
            (low, high) => Ok((low.get().unwrap_or(0), high.get().unwrap_or(0))),
        }
    }

    /// Returns a time as a percentage of the step's time.
    fn percent(&self, ns: u64) -> String {
        percent(ns as f64 / self.step_ns.max(1) as f64)
    }

    /// Returns the parts that are large enough for the sentence, the largest first.
    fn worth_a_word(&self) -> Vec<&StepPart> {
        let most = |part: &StepPart| part.ns_high.get().unwrap_or(part.ns_low);
        let is_worth = |part: &&StepPart| most(part) as f64 > self.step_ns as f64 * WORTH_A_WORD;
        let mut parts: Vec<&StepPart> = self.parts.iter().filter(is_worth).collect();
        parts.sort_rows_by_key(|part| std::cmp::Reverse(most(part)));
        parts
    }

    /// Names the parts that are large enough for the sentence, with their times.
    fn parts_in_words(&self) -> String {
        let parts = self.worth_a_word();
        let words = |part: &&StepPart| {
            let high = part.ns_high.get().map_or("an unknown time".to_owned(), duration);
            format!("{} {}", part.words(), span(duration(part.ns_low), high))
        };
        parts.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// Returns a range, or one figure if both ends are the same.
fn span(low: String, high: String) -> String {
    match low == high {
        true => low,
        false => format!("{low} to {high}"),
    }
}

/// Converts a measured cost, which may be below 0 by chance, to at least 0: recording makes nothing
/// faster.
fn clamped(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(low: u64, high: u64) -> StepCost {
        let part = |part, ns_low, ns_high| StepPart {
            part,
            count: Reading::Is(2.0),
            ns_low,
            ns_high: Reading::Is(ns_high),
        };
        let of = StepCost {
            rank: "rank 0".to_owned(),
            steps: 14,
            step_ns: 30_700_000,
            ns_low: Reading::Is(low),
            ns_high: Reading::Is(high),
            parts: vec![
                part("heap", 600_000, 600_000),
                part("cupti", 1_000_000, 3_000_000),
                part("samples", 10, 20),
            ],
            device_idle_ns: Reading::Is(17_000_000),
            has_totals: true,
            paired: Reading::missing("not asked"),
            text: String::new(),
        };
        of.worded()
    }

    #[test]
    fn the_sentence_has_the_step_its_cost_and_the_largest_parts() {
        assert_eq!(
            cost(4_900_000, 6_600_000).text,
            "a step took 30.7 ms; recording took 4.9 ms to 6.6 ms of it, 16.0 % to 21.5 % (estimate): CUPTI \
             1.0 ms to 3.0 ms, heap 600.0 us"
        );
    }

    #[test]
    fn judged_values_are_computed_as_if_without_recording() {
        let of = cost(4_900_000, 6_600_000);
        assert!(of.is_visible() && !cost(0, 1_000_000).is_visible());
        assert_eq!(of.step_without(), Some((24_100_000, 25_800_000)));
        assert_eq!(of.idle_without(), Some((10_400_000, 12_100_000)));
        let (least, most) = of.rate_without().unwrap();
        assert!((least - 30.7 / 25.8).abs() < 1e-9 && (most - 30.7 / 24.1).abs() < 1e-9);
    }

    #[test]
    fn a_comparison_is_preferred_and_the_sentence_has_both() {
        let paired = PairedCost {
            ns: 5_800_000,
            ns_low: -100_000,
            ns_high: 6_500_000,
            stretches: 12,
            recorded_ns: 30_700_000,
            unrecorded_ns: 24_900_000,
        };
        let of = StepCost { paired: Reading::Is(paired), ..cost(4_900_000, 6_600_000) }.worded();
        assert_eq!(of.bounds(), Some((0, 6_500_000)));
        assert!((of.share().unwrap() - 5.8 / 30.7).abs() < 1e-9);
        assert!(
            of.text.contains("took 5.8 ms of it (95 %: -100.0 us to 6.5 ms, by 12"),
            "{}",
            of.text
        );
        assert!(
            of.text.contains("estimated from its parts 4.9 ms to 6.6 ms: CUPTI"),
            "{}",
            of.text
        );
    }

    #[test]
    fn an_unknown_cost_is_not_0() {
        let of = StepCost { ns_high: Reading::missing("too short"), ..cost(1, 2) }.worded();
        assert_eq!(of.text, "a step took 30.7 ms; what recording took of it is unknown: too short");
        assert_eq!((of.bounds(), of.share(), of.step_without()), (None, None, None));
    }
}

//! Describes how `--budget` reduced what a run recorded, because recording cost more than it allows.
//! The collector writes each change as a property of the file. Reports and exports say since when
//! rows are missing, so that nobody takes their absence for zero.

use serde::{Deserialize, Serialize};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, property};

use crate::units::{counted, duration, percent};

/// Number of ranks whose changes a note lists.
const MOST_RANKS: usize = 3;

/// A part of the recording that `--budget` thins, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinnedPart {
    /// Operators are recorded of some steps only.
    OperatorsOfAllSteps,
    /// No operators are recorded.
    Operators,
    /// No stacks of allocations and mappings are taken.
    Stacks,
    /// CPU samples are taken less often.
    Samples,
    /// Nothing was thinned: what is left can't be, and still costs more than the budget.
    Rest,
}

/// One change of what is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thinning {
    /// Index of the process; `None` if it applies to the whole job.
    pub process: Option<ProcessIndex>,
    /// The part of which less is recorded from then on.
    pub part: ThinnedPart,
    /// Time of the change, ns.
    pub time_ns: u64,
    /// The cost of the part before, as a share of the CPU time of the process or of the job.
    pub share: f64,
    /// The budget, percent.
    pub budget_percent: f64,
    /// For [`ThinnedPart::Samples`], the samples per second from then on.
    pub rate: Option<u32>,
}

impl Thinning {
    /// Returns the key of its property. A process has at most one change of each part.
    pub fn key(&self) -> String {
        let process = self.process.map_or("job".to_owned(), |process| process.to_string());
        let part = serde_json::to_value(self.part).unwrap_or_default();
        let rate = self.rate.map_or(String::new(), |rate| format!(":{rate}"));
        format!("{}{process}:{}{rate}", property::THINNED, part.as_str().unwrap_or_default())
    }

    /// Returns the value of its property, as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the option with its value: `--budget 1%`.
    pub fn option(&self) -> String {
        format!("--budget {}%", self.budget_percent)
    }

    /// Returns what is missing from then on: `without stacks of allocations and mappings`.
    pub fn effect(&self) -> String {
        match (self.part, self.rate) {
            (ThinnedPart::OperatorsOfAllSteps, _) => "with operators of some steps only".to_owned(),
            (ThinnedPart::Operators, _) => "without operators".to_owned(),
            (ThinnedPart::Stacks, _) => "without stacks of allocations and mappings".to_owned(),
            (ThinnedPart::Samples, Some(rate)) if rate > 0 => {
                format!("with {rate} CPU samples a second")
            }
            (ThinnedPart::Samples, _) => "without CPU samples and waits".to_owned(),
            (ThinnedPart::Rest, _) => "with everything thinned that can be".to_owned(),
        }
    }

    /// Returns the reason: `--budget 1% (they cost 3.4 %)`.
    pub fn reason(&self) -> String {
        let cost = percent(self.share);
        match self.part {
            ThinnedPart::Rest => format!("{}, and what is left costs {cost}", self.option()),
            _ => format!("{} (they cost {cost})", self.option()),
        }
    }

    /// Returns the text of the mark at its time.
    pub fn mark(&self) -> String {
        format!("{} from here on: {}", self.effect(), self.reason())
    }

    /// Returns the change in words, for a file that began at `start_ns`: `from 12.3 s on without
    /// operators: --budget 1% (they cost 3.4 %)`.
    fn words(&self, start_ns: u64) -> String {
        let since = duration(self.time_ns.saturating_sub(start_ns));
        format!("from {since} on {}: {}", self.effect(), self.reason())
    }
}

/// Returns all changes of a file, in order of time.
pub fn of_file(file: &TraceFile) -> Vec<Thinning> {
    let of = |(key, value): (&str, &str)| {
        key.starts_with(property::THINNED).then(|| serde_json::from_str(value).ok()).flatten()
    };
    let mut all: Vec<Thinning> = file.properties().filter_map(of).collect();
    all.sort_by_key(|one| (one.time_ns, one.part));
    all
}

/// The changes of a rank, with its name and the time when its file began, ns.
#[derive(Clone, Debug, Default)]
pub struct OfRank {
    /// Displayed name of the rank.
    pub label: String,
    /// The time when the file began, ns.
    pub start_ns: u64,
    /// Its changes in order of time.
    pub all: Vec<Thinning>,
}

impl OfRank {
    /// Returns the changes of the file of a rank.
    pub fn new(label: &str, file: &TraceFile) -> OfRank {
        let start_ns = file.header().start_ns;
        OfRank { label: label.to_owned(), start_ns, all: of_file(file) }
    }

    /// Whether operators of any process are missing because of the budget.
    pub fn lacks_operators(&self) -> bool {
        let parts = [ThinnedPart::OperatorsOfAllSteps, ThinnedPart::Operators];
        self.all.iter().any(|one| parts.contains(&one.part))
    }

    /// Describes the changes of parts for which `concerns` holds. Of several processes with the same
    /// change the first one counts, and the others are counted.
    fn words(&self, concerns: &dyn Fn(ThinnedPart) -> bool) -> Vec<String> {
        let mut texts = Vec::new();
        let mut seen: Vec<(ThinnedPart, Option<u32>)> = Vec::new();
        for one in self.all.iter().filter(|one| concerns(one.part)) {
            if seen.contains(&(one.part, one.rate)) {
                continue;
            }
            seen.push((one.part, one.rate));
            let same = |of: &&Thinning| (of.part, of.rate) == (one.part, one.rate);
            let others = self.all.iter().filter(same).count() as u64 - 1;
            let first = match others {
                0 => String::new(),
                _ => format!("; {} later", counted(others, "more process", "more processes")),
            };
            texts.push(format!("{}: {}{first}", self.label, one.words(self.start_ns)));
        }
        texts
    }
}

/// Returns a note for each change of a part for which `concerns` holds, of the first few ranks.
pub fn notes(ranks: &[OfRank], concerns: &dyn Fn(ThinnedPart) -> bool) -> Vec<String> {
    let mut thinned =
        ranks.iter().map(|rank| rank.words(concerns)).filter(|texts| !texts.is_empty());
    let mut notes: Vec<String> = thinned.by_ref().take(MOST_RANKS).flatten().collect();
    let more = thinned.count() as u64;
    if more > 0 {
        let ranks = counted(more, "more rank", "more ranks");
        notes.push(format!("{ranks} recorded less from some moment on: --budget"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinning(process: u32, part: ThinnedPart, seconds: u64) -> Thinning {
        let (time_ns, rate) = (seconds * 1_000_000_000, None);
        Thinning { process: Some(process), part, time_ns, share: 0.034, budget_percent: 1.0, rate }
    }

    fn rank(number: u32, all: Vec<Thinning>) -> OfRank {
        OfRank { label: format!("rank {number}"), start_ns: 1_000_000_000, all }
    }

    #[test]
    fn a_note_says_from_when_on_and_what_it_cost() {
        let all = vec![
            thinning(0, ThinnedPart::Operators, 5),
            thinning(0, ThinnedPart::Stacks, 8),
            thinning(1, ThinnedPart::Stacks, 9),
        ];
        let ranks = [rank(0, all)];
        let stacks = notes(&ranks, &|part| part == ThinnedPart::Stacks);
        assert_eq!(
            stacks,
            [
                "rank 0: from 7.00 s on without stacks of allocations and mappings: --budget 1% (they \
              cost 3.4 %); 1 more process later"
            ]
        );
        assert_eq!(notes(&ranks, &|_| true).len(), 2);
        assert!(notes(&ranks, &|part| part == ThinnedPart::Samples).is_empty());
    }

    #[test]
    fn only_some_of_many_ranks_are_listed_and_the_others_counted() {
        let one = |number| rank(number, vec![thinning(0, ThinnedPart::Stacks, 3)]);
        let ranks: Vec<OfRank> = (0..8).map(one).chain([rank(8, Vec::new())]).collect();
        let notes = notes(&ranks, &|_| true);
        assert_eq!(notes.len(), 4);
        assert_eq!(notes[3], "5 more ranks recorded less from some moment on: --budget");
    }

    #[test]
    fn a_property_has_all_of_a_change() {
        let samples =
            Thinning { process: None, rate: Some(24), ..thinning(0, ThinnedPart::Samples, 3) };
        assert_eq!(samples.key(), "tprof.thinned:job:samples:24");
        assert_eq!(serde_json::from_str::<Thinning>(&samples.to_json()).unwrap(), samples);
        assert_eq!(samples.effect(), "with 24 CPU samples a second");
        let rest = thinning(2, ThinnedPart::Rest, 3);
        assert_eq!(rest.reason(), "--budget 1%, and what is left costs 3.4 %");
    }
}

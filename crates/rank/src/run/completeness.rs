//! Judges whether a recording is complete, and lists what is missing.

use std::collections::BTreeMap;

use tprof_facts::units;
use tprof_trace::run::{BlindSpot, LossInfo, RunInfo, group_blind_spots};
use tprof_trace::{Recorded, RunDir, TraceFile};

use crate::base::object::object;
use crate::run::{minor, missing};

/// The completeness of a recording: events, losses, and processes that were not recorded.
#[derive(Clone, Debug)]
pub struct Completeness {
    /// Whether the run finished, nothing was lost, no process is blind, and every file is whole.
    pub complete: bool,
    /// Number of recorded events, in the files that are read.
    pub recorded: u64,
    /// Number of recorded CPU samples.
    pub samples: u64,
    /// Number of events that are known to be lost.
    pub lost: u64,
    /// The losses, by kind.
    pub losses: Vec<LossInfo>,
    /// Processes that were not recorded, or only in part.
    pub blind: Vec<BlindSpot>,
    /// The largest share that a loss has of the recorded and lost events of its kind, at most 0.01.
    /// It is set only if all gaps are minor and CPU samples, stacks or names were lost.
    pub minor_loss_share: Option<f64>,
    /// The share that blind processes have of the time that all program images lasted, at most
    /// 0.01. It is set only if all gaps are minor and processes of at most a second are blind.
    pub minor_blind_share: Option<f64>,
    /// Whether all gaps are minor, or what an option or a command of the user left out.
    pub as_asked: bool,
    /// The verdict in words, see [`Completeness::is_whole`]: `COMPLETE`, `COMPLETE but for 0.42 %`,
    /// `PARTIAL, as asked`, or `NOT COMPLETE`.
    pub verdict: String,
    /// A sentence for each kind of loss, then one for each group of processes of which something was
    /// not recorded.
    pub gaps: Vec<String>,
}
object! { Completeness {
    plain complete, plain recorded, plain samples, plain lost, plain losses, plain blind,
    plain minor_loss_share, plain minor_blind_share, plain as_asked, plain verdict, plain gaps,
} }

/// The recorded and lost events of one file.
#[derive(Clone, Debug, Default)]
pub struct FileCompleteness {
    /// Numbers of recorded events.
    pub recorded: Recorded,
    /// Losses of its processes.
    pub losses: Vec<LossInfo>,
    /// Losses of the whole run, which every file repeats.
    pub of_run: Vec<LossInfo>,
}

impl FileCompleteness {
    /// Counts a file's events and losses.
    pub fn of(file: &TraceFile) -> FileCompleteness {
        let (mut losses, mut of_run) = (Vec::new(), Vec::new());
        for loss in file.losses() {
            let info = LossInfo {
                what: file.name(loss.what).to_owned(),
                why: file.name(loss.why).to_owned(),
                count: loss.count,
            };
            if loss.process.is_some() { losses.push(info) } else { of_run.push(info) }
        }
        FileCompleteness { recorded: file.recorded(), losses, of_run }
    }
}

impl Completeness {
    /// Counts recorded events from the files. Losses are read from the collectors' own accounts if
    /// these cover exactly the same files and were closed, otherwise from the files.
    pub fn of(
        infos: &[RunInfo],
        closed: bool,
        whole: bool,
        seen: Vec<FileCompleteness>,
    ) -> Completeness {
        let mut blind: Vec<BlindSpot> =
            infos.iter().flat_map(|info| info.completeness.blind.iter().cloned()).collect();
        blind.extend(missing::ranks(infos));
        let accounts = || infos.iter().map(|info| &info.completeness);
        let of_accounts = merge(accounts().flat_map(|account| account.losses.iter().cloned()));
        let Recorded { events, samples } = seen.iter().map(|seen| seen.recorded).sum();
        let (lost, losses) = if closed {
            let lost = accounts().map(|account| account.lost);
            (lost.fold(0, u64::saturating_add), of_accounts)
        } else {
            // If an account is not closed, either the account or the files may be ahead, so the
            // larger count of each loss is used.
            let of_run = seen.iter().map(|seen| merge(seen.of_run.iter().cloned()));
            let of_run = of_run.fold(of_accounts, most);
            let of_processes = seen.iter().flat_map(|seen| seen.losses.iter().cloned());
            let losses = merge(of_run.into_iter().chain(of_processes));
            (losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add), losses)
        };
        let of_losses = minor::loss_share(Recorded { events, samples }, &losses);
        let (asked, unasked): (Vec<_>, Vec<_>) =
            blind.iter().cloned().partition(|gap| gap.as_asked);
        let of_blind = minor::blind_share(infos, &unasked);
        let is_minor = whole && of_losses.is_some() && of_blind.is_some();
        let minor = |share: Option<f64>, is_there| share.filter(|_| is_there && is_minor);
        let counted = Completeness {
            minor_loss_share: minor(of_losses, !losses.is_empty()),
            minor_blind_share: minor(of_blind, !unasked.is_empty()),
            as_asked: is_minor && !asked.is_empty(),
            verdict: String::new(),
            gaps: losses.iter().map(of_loss).chain(of_blind_spots(&blind)).collect(),
            complete: whole && losses.is_empty() && lost == 0 && blind.is_empty(),
            recorded: events,
            samples,
            lost,
            losses,
            blind,
        };
        Completeness { verdict: counted.verdict_words(), ..counted }
    }

    /// Whether nothing is missing but minor gaps and what the user left out.
    pub fn is_whole(&self) -> bool {
        self.complete || self.as_asked || self.minor_gaps().is_some()
    }

    /// Whether nothing is missing but what the user left out.
    pub fn is_as_asked(&self) -> bool {
        self.complete || self.as_asked && self.minor_gaps().is_none()
    }

    fn verdict_words(&self) -> String {
        match (self.as_asked, self.minor_gaps()) {
            _ if self.complete => "COMPLETE".to_owned(),
            (true, None) => "PARTIAL, as asked".to_owned(),
            (true, Some(gaps)) => format!("PARTIAL, as asked, and complete but for {gaps}"),
            (false, Some(gaps)) => format!("COMPLETE but for {gaps}"),
            (false, None) => "NOT COMPLETE".to_owned(),
        }
    }

    /// Minor gaps in words, e.g. `0.42 %` or `0.42 % and 7 ldconfig (0.08 % of the time)`; `None`
    /// if there is no gap, or if a gap is not minor.
    pub fn minor_gaps(&self) -> Option<String> {
        let lost = self.minor_loss_share.map(units::small_share);
        let blind = self.minor_blind_share.map(|share| {
            let unasked: Vec<_> = self.blind.iter().filter(|gap| !gap.as_asked).cloned().collect();
            let whom: Vec<String> =
                group_blind_spots(&unasked).into_iter().map(|of| of.1).collect();
            format!("{} ({} of the time)", whom.join(" and "), units::small_share(share))
        });
        let words: Vec<String> = [lost, blind].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(" and "))
    }

    /// The number of recorded events, in words.
    pub fn recorded_words(&self) -> String {
        units::recorded(Recorded { events: self.recorded, samples: self.samples })
    }
}

/// Describes a kind of loss.
pub fn of_loss(loss: &LossInfo) -> String {
    match loss.count {
        0 => format!("{} lost ({}), count unknown", loss.what, loss.why),
        1 => format!("1 {} lost ({})", singular(&loss.what), loss.why),
        n => format!("{} {} lost ({})", units::count(n), loss.what, loss.why),
    }
}

/// Returns the name of one of the things that `what` names: `Python frame of CPU samples`. A list of
/// things stays as it is.
fn singular(what: &str) -> String {
    let ends = [" of ", " for ", " after "].iter().filter_map(|word| what.find(word)).min();
    let (noun, rest) = what.split_at(ends.unwrap_or(what.len()));
    match noun.strip_suffix('s').filter(|_| !noun.contains([',', ';']) && !noun.contains(" and ")) {
        Some(one) if one.ends_with("esse") => format!("{}{rest}", &one[..one.len() - 1]),
        Some(one) => format!("{one}{rest}"),
        None => what.to_owned(),
    }
}

/// Describes each group of processes of which something was not recorded.
pub fn of_blind_spots(blind: &[BlindSpot]) -> impl Iterator<Item = String> {
    let words = |(what, whom, why)| format!("{whom}: {what} not recorded ({why})");
    group_blind_spots(blind).into_iter().map(words)
}

/// Joins the losses of each kind into one row, in order of name.
fn merge(losses: impl Iterator<Item = LossInfo>) -> Vec<LossInfo> {
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for loss in losses {
        let count = kinds.entry((loss.what, loss.why)).or_default();
        *count = count.saturating_add(loss.count);
    }
    kinds.into_iter().map(|((what, why), count)| LossInfo { what, why, count }).collect()
}

/// Joins two lists of losses; each kind has the larger of its two counts.
fn most(a: Vec<LossInfo>, b: Vec<LossInfo>) -> Vec<LossInfo> {
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for loss in a.into_iter().chain(b) {
        let count = kinds.entry((loss.what, loss.why)).or_default();
        *count = (*count).max(loss.count);
    }
    kinds.into_iter().map(|((what, why), count)| LossInfo { what, why, count }).collect()
}

/// Returns the note on a file without an end; `None` if the state of the run (cut off or running)
/// explains it.
pub fn unclosed(trace: &TraceFile, name: &str, dir: &RunDir) -> Option<String> {
    if trace.is_closed() {
        return None;
    }
    let end = units::bytes(trace.bytes());
    let of_it = |info: &&RunInfo| info.files.iter().any(|file| file == name);
    match dir.infos().iter().find(of_it) {
        Some(info) if info.finished => {
            Some(format!("{name} was not closed: events after {end} are missing"))
        }
        Some(_) => None,
        None if dir.infos().iter().any(|info| !info.finished) => None,
        None => Some(format!(
            "{name} was not closed: it was cut off after {end}, or is still being written"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(what: &str, count: u64) -> LossInfo {
        LossInfo { what: what.into(), why: "ring full".into(), count }
    }

    #[test]
    fn without_a_collectors_account_losses_are_counted_from_the_files() {
        let seen = |events, count| FileCompleteness {
            recorded: Recorded { events, samples: 2 },
            losses: vec![loss("heap events", count)],
            of_run: vec![loss("map events", 7)],
        };
        let sum = Completeness::of(&[], false, false, vec![seen(10, 2), seen(5, 1)]);
        assert_eq!((sum.recorded, sum.samples), (15, 4));
        assert_eq!((sum.lost, sum.losses.len(), sum.complete), (3 + 7, 2, false));
    }

    #[test]
    fn a_few_lost_stacks_are_minor_and_any_other_gap_is_not() {
        let share = |whole, losses: &[LossInfo]| {
            let recorded = Recorded { events: 990, samples: 99_999 };
            let seen = FileCompleteness { recorded, losses: losses.to_vec(), of_run: Vec::new() };
            let sum = Completeness::of(&[], false, whole, vec![seen]);
            assert!(!sum.complete);
            sum.minor_loss_share
        };
        assert_eq!(share(true, &[loss("whole stacks", 10)]), Some(0.01));
        assert_eq!(share(true, &[loss("whole stacks", 11)]), None);
        assert_eq!(share(true, &[loss("whole stacks", 10), loss("CPU samples", 1)]), Some(0.01));
        assert_eq!(share(true, &[loss("CPU samples", 1)]), Some(0.00001));
        assert_eq!(
            share(true, &[loss("CPU samples", 2_000)]),
            None,
            "few of all events, but many of all samples"
        );
        assert_eq!(share(true, &[loss("CPU samples", u64::MAX), loss("stacks", 9)]), None);
        assert_eq!(share(true, &[loss("whole stacks", 0)]), None);
        assert_eq!(share(true, &[loss("whole stacks", 1), loss("heap events", 1)]), None);
        assert_eq!(share(false, &[loss("whole stacks", 1)]), None);
    }

    #[test]
    fn a_loss_of_unknown_size_is_still_a_loss() {
        let recorded = Recorded { events: 1, samples: 0 };
        let seen =
            FileCompleteness { recorded, losses: vec![loss("heap events", 0)], of_run: Vec::new() };
        assert!(!Completeness::of(&[], false, true, vec![seen]).complete);
    }
}

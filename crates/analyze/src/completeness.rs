//! Is the recording complete, and what is missing?

use std::collections::BTreeMap;

use tprof_trace::TraceFile;
use tprof_trace::run::{Blind, LossInfo, RunInfo};

use crate::reading::object;

/// What was recorded, what was lost, who could not be seen.
#[derive(Clone, Debug)]
pub struct Completeness {
    /// True if the run was finished, nothing was lost, nobody blind, and every file whole.
    pub complete: bool,
    /// Events recorded.
    pub recorded: u64,
    /// Events known to be lost.
    pub lost: u64,
    /// The losses, by kind.
    pub losses: Vec<LossInfo>,
    /// Processes that could not be seen, whole or in part.
    pub blind: Vec<Blind>,
}
object! { Completeness {
    plain complete, plain recorded, plain lost, plain losses, plain blind,
} }

/// What one file tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub recorded: u64,
    /// Losses of its processes.
    pub losses: Vec<LossInfo>,
    /// Losses of the whole run, which every file repeats.
    pub of_run: Vec<LossInfo>,
}

impl Seen {
    /// Counts a file's events and losses.
    pub fn of(file: &TraceFile) -> Seen {
        let (mut losses, mut of_run) = (Vec::new(), Vec::new());
        for loss in file.losses() {
            let info = LossInfo {
                what: file.name(loss.what).to_owned(),
                why: file.name(loss.why).to_owned(),
                count: loss.count,
            };
            if loss.process.is_some() { losses.push(info) } else { of_run.push(info) }
        }
        let maps = file.map_events().count() as u64;
        let recorded = file.heap_event_count() + maps + file.large_row_count();
        Seen { recorded, losses, of_run }
    }
}

impl Completeness {
    /// From the collectors' own account where it covers just these files and was
    /// closed, else from the files.
    pub(crate) fn of(
        infos: &[RunInfo],
        closed: bool,
        whole: bool,
        seen: Vec<Seen>,
    ) -> Completeness {
        let blind: Vec<Blind> =
            infos.iter().flat_map(|info| info.completeness.blind.iter().cloned()).collect();
        let accounts = || infos.iter().map(|info| &info.completeness);
        let told = merge(accounts().flat_map(|account| account.losses.iter().cloned()));
        let (recorded, lost, losses) = if closed {
            let recorded = accounts().map(|account| account.recorded).sum();
            (recorded, accounts().map(|account| account.lost).sum(), told)
        } else {
            // An open account lags behind the files, and files behind an account.
            let of_run = seen.iter().map(|seen| merge(seen.of_run.iter().cloned()));
            let of_run = of_run.fold(told, most);
            let of_processes = seen.iter().flat_map(|seen| seen.losses.iter().cloned());
            let losses = merge(of_run.into_iter().chain(of_processes));
            let lost = losses.iter().map(|loss| loss.count).sum();
            (seen.iter().map(|seen| seen.recorded).sum(), lost, losses)
        };
        Completeness {
            complete: whole && losses.is_empty() && lost == 0 && blind.is_empty(),
            recorded,
            lost,
            losses,
            blind,
        }
    }
}

/// One row for each kind of loss, in order of name.
fn merge(losses: impl Iterator<Item = LossInfo>) -> Vec<LossInfo> {
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for loss in losses {
        let count = kinds.entry((loss.what, loss.why)).or_default();
        *count = count.saturating_add(loss.count);
    }
    kinds.into_iter().map(|((what, why), count)| LossInfo { what, why, count }).collect()
}

/// The larger count of each kind.
fn most(a: Vec<LossInfo>, b: Vec<LossInfo>) -> Vec<LossInfo> {
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    for loss in a.into_iter().chain(b) {
        let count = kinds.entry((loss.what, loss.why)).or_default();
        *count = (*count).max(loss.count);
    }
    kinds.into_iter().map(|((what, why), count)| LossInfo { what, why, count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(what: &str, count: u64) -> LossInfo {
        LossInfo { what: what.into(), why: "ring full".into(), count }
    }

    #[test]
    fn a_run_without_an_account_is_counted_from_its_files() {
        let seen = |recorded, count| Seen {
            recorded,
            losses: vec![loss("heap events", count)],
            of_run: vec![loss("map events", 7)],
        };
        let sum = Completeness::of(&[], false, false, vec![seen(10, 2), seen(5, 1)]);
        assert_eq!((sum.recorded, sum.lost, sum.losses.len(), sum.complete), (15, 3 + 7, 2, false));
    }

    #[test]
    fn a_loss_of_unknown_size_is_still_a_loss() {
        let seen = Seen { recorded: 1, losses: vec![loss("heap events", 0)], of_run: Vec::new() };
        assert!(!Completeness::of(&[], false, true, vec![seen]).complete);
    }
}

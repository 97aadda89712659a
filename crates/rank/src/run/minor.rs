//! Finds out whether all gaps of a recording are minor, so that a report mentions them in a note
//! and not in its headline. Minor are a few samples without their stack, and short-lived helper
//! processes that were not recorded.

use tprof_trace::Recorded;
use tprof_trace::run::{BlindSpot, LossInfo, ProcessInfo, RunInfo};

/// A gap of at most this share is minor.
const MINOR: f64 = 0.01;
/// The longest life of a process that counts as a brief helper, ns: `ldconfig -p`, which PyTorch
/// starts with an empty environment, takes 3 ms.
const MOMENT_NS: u64 = 1_000_000_000;

/// The events that a kind of loss is measured against.
enum LossScope {
    Samples,
    Events,
    Both,
}

/// The kinds of minor losses. None of them changes a count, a size or a time, unlike a lost record
/// of an allocation or of device work.
const LOSSES: [(&str, LossScope); 8] = [
    ("CPU samples", LossScope::Samples),
    ("Python frames of CPU samples", LossScope::Samples),
    ("Python frames in stacks of allocations", LossScope::Events),
    ("stacks", LossScope::Events),
    ("whole stacks", LossScope::Events),
    ("names of functions", LossScope::Both),
    ("names of Python functions", LossScope::Both),
    ("ends of names", LossScope::Both),
];

/// Returns the largest share that a loss has of the recorded and lost events of its kind; `None` if
/// one of the losses is not minor.
pub(super) fn loss_share(recorded: Recorded, losses: &[LossInfo]) -> Option<f64> {
    let share = |loss: &LossInfo| {
        let of = &LOSSES.iter().find(|(what, _)| *what == loss.what)?.1;
        let whole = match of {
            LossScope::Samples => recorded.samples,
            LossScope::Events => recorded.events,
            LossScope::Both => recorded.events.saturating_add(recorded.samples),
        };
        at_most(loss.count, whole.saturating_add(loss.count)).filter(|_| loss.count > 0)
    };
    losses.iter().try_fold(0.0f64, |most, loss| Some(most.max(share(loss)?)))
}

/// Returns the share that blind processes have of the time that all program images lasted; `None`
/// if the life of one of them is unknown, or longer than `MOMENT_NS`.
pub(super) fn blind_share(infos: &[RunInfo], blind: &[BlindSpot]) -> Option<f64> {
    let mut lasted_ns = 0u64;
    for one in blind {
        if !one.what.starts_with("everything") {
            return None;
        }
        lasted_ns = lasted_ns.saturating_add(infos.iter().find_map(|info| of_blind(info, one))?);
    }
    let all = infos.iter().flat_map(|info| {
        let end_ns = info.end_ns.unwrap_or(0);
        info.processes.iter().map(move |of| of.end_ns.unwrap_or(end_ns).saturating_sub(of.start_ns))
    });
    at_most(lasted_ns, all.fold(0, u64::saturating_add))
}

/// Returns the life of a blind process, ns; `None` if it is not known.
fn of_blind(info: &RunInfo, blind: &BlindSpot) -> Option<u64> {
    if !info.completeness.blind.iter().any(|one| one.process == blind.process) {
        return None;
    }
    let (pid, name) = blind.process.split_once(' ')?;
    let pid: u32 = pid.parse().ok()?;
    let is_it = |of: &&ProcessInfo| {
        let program = of.command.split(' ').next().unwrap_or_default();
        of.pid == pid && program.rsplit('/').next() == Some(name)
    };
    let mut images = info.processes.iter().filter(is_it);
    let of = images.next()?;
    let lasted_ns = of.end_ns?.checked_sub(of.start_ns)?;
    (images.next().is_none() && lasted_ns <= MOMENT_NS).then_some(lasted_ns)
}

fn at_most(part: u64, whole: u64) -> Option<f64> {
    let share = part as f64 / whole.max(1) as f64;
    (share <= MINOR).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end_ns: Option<u64>) -> (RunInfo, Vec<BlindSpot>) {
        let image = |pid, command: &str, start_ns, end_ns| ProcessInfo {
            pid,
            command: command.into(),
            start_ns,
            end_ns,
            ..ProcessInfo::default()
        };
        let blind = vec![BlindSpot {
            process: "7 ldconfig".into(),
            what: "everything".into(),
            ..BlindSpot::default()
        }];
        let mut info = RunInfo { end_ns: Some(1_000_000_000), ..RunInfo::default() };
        info.processes = vec![
            image(6, "python train.py", 0, None),
            image(7, "/sbin/ldconfig -p", 100_000_000, end_ns),
        ];
        info.completeness.blind = blind.clone();
        (info, blind)
    }

    #[test]
    fn a_short_lived_helper_is_minor_and_a_longer_process_is_not() {
        let share = |end_ns| {
            let (info, named) = run(end_ns);
            blind_share(&[info], &named)
        };
        assert_eq!(share(Some(105_000_000)), Some(5e6 / 1.005e9));
        assert_eq!(share(Some(120_000_000)), None, "2 % of the time");
        assert_eq!(share(None), None, "its end is not known");
    }

    #[test]
    fn a_gap_that_is_not_one_whole_process_is_not_minor() {
        let (info, named) = run(Some(105_000_000));
        let of = |process: &str, what: &str| {
            let one =
                BlindSpot { process: process.into(), what: what.into(), ..BlindSpot::default() };
            let mut info = info.clone();
            info.completeness.blind = vec![one.clone()];
            blind_share(&[info], &[one])
        };
        assert!(of("7 ldconfig", &named[0].what).is_some());
        assert_eq!(of("7 ldconfig", "allocations"), None);
        assert_eq!(of("rank 3 of 4", "everything"), None);
        assert_eq!(of("8 ldconfig", "everything"), None);
    }
}

//! Sums the resident memory of a rank so that each page counts once. While a single process lives,
//! this is its RSS. While several live, it is the sum of their proportional set sizes (PSS), which
//! divide shared pages among the processes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, counter, property};

use super::curve::{Axis, Curve};
use super::gauges::{GaugeSum, ProcessEnds, Sample, in_part, moments, process_samples};

/// The kind of readings that resident memory is the sum of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// RSS, if processes lived one at a time.
    Rss,
    /// PSS, while several processes lived at once.
    Pss,
}

/// The reason for a missing PSS although several processes lived at once, if the file itself has no
/// reason.
const NOT_READ: &str = "processes shared the rank for too short a time";

/// Sums the resident memory of a file's processes up to `end_ns`, or returns why it is not known.
pub(crate) fn resident(
    file: &TraceFile,
    ends: &ProcessEnds,
    axis: Axis,
    end_ns: u64,
) -> Result<(GaugeSum, Source), String> {
    let rss = in_part(file, process_samples(file, counter::RSS_BYTES));
    let rounds = in_part(file, rounds(process_samples(file, counter::PSS_BYTES)));
    let pids = file.processes().iter().map(|process| (process.process, process.pid)).collect();
    let (mut points, several) = alone(rss, &pids, ends);
    if points.is_empty() && !several {
        return Err("no RSS was sampled".to_owned());
    }
    let source = match (several, rounds.is_empty()) {
        (false, _) => Source::Rss,
        (true, false) => Source::Pss,
        (true, true) => {
            let reason = file.property(property::NO_PSS);
            let reason = reason.and_then(|json| serde_json::from_str::<String>(json).ok());
            return Err(format!("no PSS was read: {}", reason.as_deref().unwrap_or(NOT_READ)));
        }
    };
    points.extend(rounds.into_iter().map(|(time_ns, _, bytes)| (time_ns, bytes)));
    points.sort_by_key(|point| point.0);
    // The last point is a zero, for the end of the last process. It is not a reading.
    let readings = moments(points.iter().filter(|point| point.1 > 0).map(|point| point.0));
    let mut curve = Curve::new(axis);
    let (mut highest, mut highest_at_ns) = (0, 0);
    for (time_ns, bytes) in points {
        curve.set(time_ns, bytes);
        if bytes > highest {
            (highest, highest_at_ns) = (bytes, time_ns);
        }
    }
    curve.extend_to(end_ns);
    Ok((GaugeSum { buckets: curve.buckets(), highest, highest_at_ns, readings }, source))
}

/// Sums the PSS of each round of readings, as if of one process, in order of time.
fn rounds(pss: Vec<Sample>) -> Vec<Sample> {
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for (time_ns, _, bytes) in pss {
        *sums.entry(time_ns).or_default() += bytes;
    }
    sums.into_iter().map(|(time_ns, bytes)| (time_ns, 0, bytes)).collect()
}

/// Returns RSS while at most one process was alive, and whether several ever were. Images of one
/// pid count as one process: the old image ends in the records a little after the new image was
/// first read, so for a moment both seem to live.
fn alone(
    mut rss: Vec<Sample>,
    pids: &FxHashMap<ProcessIndex, u32>,
    ends: &ProcessEnds,
) -> (Vec<(u64, u64)>, bool) {
    rss.sort_by_key(|sample| sample.0);
    let mut over: Vec<(u64, ProcessIndex)> =
        ends.iter().map(|(process, end_ns)| (*end_ns, *process)).collect();
    over.sort_unstable();
    let mut over = over.into_iter().peekable();
    let pid = |process: ProcessIndex| pids.get(&process).copied().unwrap_or(0);
    let mut alive: FxHashMap<u32, ProcessIndex> = FxHashMap::default();
    let (mut points, mut several) = (Vec::new(), false);
    let ended = |gone, end_ns: u64, alive: &mut FxHashMap<u32, ProcessIndex>| {
        if alive.get(&pid(gone)) != Some(&gone) {
            return None;
        }
        alive.remove(&pid(gone));
        alive.is_empty().then_some((end_ns.saturating_add(1), 0))
    };
    for (time_ns, process, bytes) in rss {
        while let Some((end_ns, gone)) = over.next_if(|end| end.0 < time_ns) {
            points.extend(ended(gone, end_ns, &mut alive));
        }
        // The last reading of a process may be later than its end. It must not count: the end was
        // already handled, so the process would seem alive until the end of the run.
        if ends.get(&process).is_some_and(|end_ns| *end_ns < time_ns) {
            continue;
        }
        let newest = alive.entry(pid(process)).or_insert(process);
        if *newest > process {
            continue;
        }
        *newest = process;
        match alive.len() {
            1 => points.push((time_ns, bytes)),
            _ => several = true,
        }
    }
    for (end_ns, gone) in over {
        points.extend(ended(gone, end_ns, &mut alive));
    }
    (points, several)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rss_counts_while_one_process_lives() {
        let rss = vec![(10, 0, 5), (20, 1, 5), (30, 0, 6), (50, 0, 7), (90, 0, 9)];
        let pids = FxHashMap::from_iter([(0, 100), (1, 101), (2, 100)]);
        let (points, several) = alone(rss, &pids, &ProcessEnds::from_iter([(1, 40), (0, 80)]));
        assert_eq!(points, [(10, 5), (50, 7), (81, 0)]);
        assert!(several);
        // The last reading of an image that `exec` replaced comes after the first of the next
        // image.
        let rss = vec![(10, 0, 5), (20, 2, 1), (25, 0, 5), (30, 2, 2)];
        let (points, several) = alone(rss, &pids, &ProcessEnds::from_iter([(0, 28), (2, 50)]));
        assert_eq!((&points[..], several), (&[(10, 5), (20, 1), (30, 2), (51, 0)][..], false));
    }

    #[test]
    fn readings_of_one_round_add_up() {
        let sums = rounds(vec![(10, 0, 5), (10, 1, 7), (20, 1, 1)]);
        assert_eq!(sums, [(10, 0, 12), (20, 0, 1)]);
    }
}

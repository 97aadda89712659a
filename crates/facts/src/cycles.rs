//! Cycles of a schedule, and ranges that were captured: each is a part of the run.

use tprof_trace::TraceFile;
use tprof_trace::model::MarkKind;

/// What a mark that begins a cycle begins with; its number follows.
const PREFIX: &str = "cycle ";

/// One cycle of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// From 1.
    pub number: u32,
    /// As the mark has it: `cycle 2: step 11 (--schedule)`.
    pub name: String,
    /// When it was recorded, from and to before, CLOCK_MONOTONIC nanoseconds. Several where
    /// processes of the file had it one after the other.
    pub times_ns: Vec<(u64, u64)>,
}

/// The cycles of a file, by their numbers. Each lasts until another begins: in between nothing was
/// recorded.
pub fn of(file: &TraceFile) -> Vec<Cycle> {
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::RecordingOn);
    let mut begun: Vec<(u64, u32, &str)> = marks
        .filter_map(|mark| {
            let name = file.name(mark.name);
            Some((mark.time_ns, number(name)?, name))
        })
        .collect();
    begun.sort_unstable();
    begun.dedup_by_key(|(_, number, _)| *number);
    let ends = begun.iter().skip(1).map(|(time_ns, ..)| *time_ns).chain([u64::MAX]);
    let mut cycles: Vec<Cycle> = Vec::new();
    for ((from_ns, number, name), to_ns) in begun.iter().zip(ends) {
        let times = (*from_ns, to_ns);
        match cycles.iter_mut().find(|cycle| cycle.number == *number) {
            Some(cycle) => cycle.times_ns.push(times),
            None => cycles.push(Cycle {
                number: *number,
                name: (*name).to_owned(),
                times_ns: vec![times],
            }),
        }
    }
    cycles.sort_by_key(|cycle| cycle.number);
    cycles
}

/// The number of the cycle in a mark's name.
fn number(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Mark;
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn a_cycle_lasts_until_another_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for (time_ns, process, name) in [
            (100, 0, "cycle 1: step 4 (--schedule)"),
            // A worker follows.
            (103, 1, "cycle 1: step 4 (--schedule)"),
            (300, 0, "cycle 2: step 11 (--schedule)"),
            (303, 1, "cycle 2: step 11 (--schedule)"),
            (400, 0, "by the program"),
            // A second program of the rank begins anew.
            (500, 2, "cycle 1: step 4 (--schedule)"),
        ] {
            let name = writer.name(name);
            let kind = MarkKind::RecordingOn;
            writer.mark(Mark { time_ns, process: Some(process), name, kind });
        }
        writer.finish().unwrap();
        let cycles = of(&TraceFile::open(&path).unwrap());
        let times: Vec<_> = cycles.iter().map(|of| (of.number, &of.times_ns[..])).collect();
        let first: &[(u64, u64)] = &[(100, 300), (500, u64::MAX)];
        assert_eq!(times, [(1, first), (2, &[(300, 500)][..])]);
        assert_eq!(cycles[1].name, "cycle 2: step 11 (--schedule)");
    }
}

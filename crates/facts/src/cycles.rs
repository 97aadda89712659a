//! Finds the parts of a run that were recorded as cycles of a schedule or as captured ranges.

use tprof_trace::model::MarkKind;
use tprof_trace::{FilePart, TraceFile};

/// Prefix of the name of a mark that begins a cycle; the cycle's number follows.
const PREFIX: &str = "cycle ";

/// One cycle of a file's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Number of the cycle, from 1.
    pub number: u32,
    /// Name of the cycle, from its mark: `cycle 2: step 11 (--schedule)`.
    pub name: String,
    /// The part of the file that the cycle covers. The part consists of several intervals if
    /// processes of the file ran the cycle one after the other.
    pub part: FilePart,
}

/// Returns the cycles of a file, in order of their numbers. Each lasts until the next one begins,
/// since nothing was recorded in between.
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
    let (paused, since) = (paused(file), file.kept_since_ns());
    let mut cycles = Vec::<Cycle>::new();
    for ((from_ns, number, name), to_ns) in begun.iter().zip(ends) {
        let times = (*from_ns, to_ns);
        let at = cycles.iter().position(|cycle| cycle.number == *number);
        let at = at.unwrap_or_else(|| {
            let (number, name) = (*number, (*name).to_owned());
            cycles.push(Cycle { number, name, part: FilePart::default() });
            cycles.len() - 1
        });
        cycles[at].part.times_ns.push(times);
        cycles[at].part.recorded_ns.extend(without(&paused, times));
    }
    // Of those that were not kept, nothing is known.
    cycles.retain(|cycle| since.is_none() || !cycle.part.recorded_ns.is_empty());
    cycles.sort_by_key(|cycle| cycle.number);
    cycles
}

/// Returns the part of a file between two times on its clock.
pub fn between(file: &TraceFile, from_ns: u64, to_ns: u64) -> FilePart {
    let times = (from_ns, to_ns);
    let recorded_ns = without(&paused(file), times);
    FilePart { times_ns: vec![times], recorded_ns, device_until_ns: None }
}

/// Returns the times in which a file recorded nothing, each with its beginning and its exclusive
/// end. The file's marks show these times: the times after recording was switched off, and the time
/// before it was first switched on (`--delay`, `--paused`, a schedule). Recording is off while it is
/// off in the session, or while processes have switched off their own. What was recorded and not
/// kept (`--keep`) counts as not recorded.
pub fn paused(file: &TraceFile) -> Vec<(u64, u64)> {
    let mut switches: Vec<(u64, bool, bool)> = (file.marks().iter())
        .filter_map(|mark| match mark.kind {
            MarkKind::RecordingOn => Some((mark.time_ns, true, mark.process.is_some())),
            MarkKind::RecordingOff => Some((mark.time_ns, false, mark.process.is_some())),
            _ => None,
        })
        .collect();
    switches.sort_unstable();
    // Whether recording is off in the session, and in processes. Before the first mark, it is off
    // if that mark switches it on.
    let first = |own: bool| switches.iter().find(|switch| switch.2 == own);
    let mut is_off = [false, true].map(|own| first(own).is_some_and(|switch| switch.1));
    let mut off_since = is_off.contains(&true).then_some(0);
    let mut found = Vec::new();
    for (time_ns, is_on, own) in switches {
        is_off[usize::from(own)] = !is_on;
        match is_off.contains(&true) {
            false => found.extend(off_since.take().map(|since| (since, time_ns))),
            true => off_since = off_since.or(Some(time_ns)),
        }
    }
    found.extend(off_since.map(|since| (since, u64::MAX)));
    if let Some(since_ns) = file.kept_since_ns() {
        found.retain(|(_, to_ns)| *to_ns > since_ns);
        match found.first_mut() {
            Some((from_ns, _)) if *from_ns <= since_ns => *from_ns = 0,
            _ => found.insert(0, (0, since_ns)),
        }
    }
    found
}

/// Returns a time without the paused times, which are in order.
fn without(paused: &[(u64, u64)], (from_ns, to_ns): (u64, u64)) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut since_ns = from_ns;
    for (off_ns, on_ns) in paused {
        left.push((since_ns, (*off_ns).min(to_ns)));
        since_ns = since_ns.max(*on_ns);
    }
    left.push((since_ns, to_ns));
    left.retain(|(from, to)| from < to);
    left
}

/// Returns the number of the cycle in a mark's name.
fn number(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Mark;
    use tprof_trace::{KEEP_MARK, TraceHeader, TraceWriter};

    #[test]
    fn a_cycle_lasts_until_another_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        use MarkKind::{RecordingOff as Off, RecordingOn as On};
        for (time_ns, process, kind, name) in [
            (100, 0, On, "cycle 1: step 4 (--schedule)"),
            // A worker process follows.
            (103, 1, On, "cycle 1: step 4 (--schedule)"),
            (200, 0, Off, "--schedule"),
            (203, 1, Off, "--schedule"),
            (300, 0, On, "cycle 2: step 11 (--schedule)"),
            (303, 1, On, "cycle 2: step 11 (--schedule)"),
            (390, 0, Off, "by the program"),
            (400, 0, On, "by the program"),
            // A second program of the rank begins again with cycle 1.
            (500, 2, On, "cycle 1: step 4 (--schedule)"),
        ] {
            let name = writer.name(name);
            writer.mark(Mark { time_ns, process: Some(process), name, kind });
        }
        writer.finish().unwrap();
        let cycles = of(&TraceFile::open(&path).unwrap());
        let times: Vec<_> = cycles.iter().map(|of| (of.number, &of.part.times_ns[..])).collect();
        let first: &[(u64, u64)] = &[(100, 300), (500, u64::MAX)];
        assert_eq!(times, [(1, first), (2, &[(300, 500)][..])]);
        let recorded: Vec<_> = cycles.iter().map(|of| &of.part.recorded_ns[..]).collect();
        let first: &[(u64, u64)] = &[(100, 200), (500, u64::MAX)];
        assert_eq!(recorded, [first, &[(300, 390), (400, 500)][..]]);
        assert_eq!(cycles[1].name, "cycle 2: step 11 (--schedule)");
    }

    #[test]
    fn recording_is_on_only_while_it_is_on_in_the_session_and_in_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        use MarkKind::{RecordingOff as Off, RecordingOn as On};
        for (time_ns, process, kind, name) in [
            (10, None, Off, "--paused"),
            (100, Some(0), Off, "tprof ctl start --steps"),
            (101, None, On, "tprof ctl start --steps"),
            (200, Some(0), On, "cycle 1: step 4 (tprof ctl start --steps)"),
            (300, Some(0), Off, "tprof ctl start --steps"),
            (400, None, Off, "tprof ctl stop"),
        ] {
            let name = writer.name(name);
            writer.mark(Mark { time_ns, process, name, kind });
        }
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        assert_eq!(paused(&file), [(10, 200), (300, u64::MAX)]);
    }

    #[test]
    fn what_was_not_kept_was_not_recorded() {
        use MarkKind::{RecordingOff as Off, RecordingOn as On};
        let paused_with = |switches: &[(u64, MarkKind)], kept: u64| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("rank-0.tprof");
            let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
            let marks = switches.iter().map(|(time_ns, kind)| (*time_ns, *kind, "tprof ctl"));
            // The next segments have marks as well, of which the earliest counts.
            let segments = [(kept, On, KEEP_MARK), (kept + 20, On, KEEP_MARK)];
            for (time_ns, kind, name) in marks.chain(segments) {
                let name = writer.name(name);
                writer.mark(Mark { time_ns, process: None, name, kind });
            }
            writer.finish().unwrap();
            paused(&TraceFile::open(&path).unwrap())
        };
        assert_eq!(paused_with(&[], 100), [(0, 100)]);
        assert_eq!(paused_with(&[(10, Off), (20, On)], 100), [(0, 100)]);
        assert_eq!(paused_with(&[(10, Off), (150, On)], 100), [(0, 150)]);
        assert_eq!(paused_with(&[(110, Off)], 100), [(0, 100), (110, u64::MAX)]);
        assert_eq!(paused_with(&[(50, Off)], 100), [(0, u64::MAX)]);
    }
}

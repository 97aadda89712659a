//! Adds lanes of host threads that show samples as nested functions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tprof_facts::labels::{self, Ids};
use tprof_trace::model::{Sample, ThreadIndex, ThreadState};

use super::events::{Event, EventKind, Lane, LaneKind, Lanes};
use super::processes::Processes;
use crate::flame::{FrameKind, FrameOwner, FrameTable, Labels, waiting_for};
use crate::rows::wanted;
use crate::{OpenRank, Written};

/// The longest sampling period: every running thread is sampled at least this often.
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;

/// Adds the samples of a file. If consecutive samples have the same outer part of their stacks,
/// this part is shown as one call, although it may have been several.
///
/// A sample of a running thread stands for the period before it. A sample of a wait stands for the
/// time that the wait lasted. A running thread is sampled once per period, so in a shorter time
/// without a sample the thread ran. A thread that was preempted resumes at the same place, and such
/// a wait has no stack of its own. Everything is clipped to the slice.
pub(crate) fn sampled(
    part: &OpenRank<'_>,
    written: &mut Written,
    processes: &mut Processes,
    lanes: &mut Lanes,
) {
    let mut rows = wanted::<Sample>(part, written);
    rows.extend(just_after(part));
    let ran = rows.iter().filter(|row| row.state == ThreadState::Running);
    let period_ns = ran.map(|row| row.weight_ns).max().unwrap_or(0);
    let mut table = FrameTable::default();
    let mut labels = Labels::new(part, Ids::Shown, &mut table);
    let mut threads: BTreeMap<ThreadIndex, Vec<Sample>> = BTreeMap::new();
    rows.into_iter().for_each(|row| threads.entry(row.thread).or_default().push(row));
    for (thread, mut rows) in threads {
        rows.sort_by_key(|row| row.time_ns);
        let process = rows[0].process;
        let mut calls = Calls { longest_gap_ns: period_ns + period_ns / 2, ..Calls::default() };
        for row in rows {
            let waits = row.state != ThreadState::Running;
            let from_ns = row.time_ns.saturating_sub(if waits { 0 } else { row.weight_ns });
            // The period that a sample stands for is only an estimate, so it must not reach beyond
            // the slice.
            let (from_ns, to_ns) = part.window.clip(from_ns, row.weight_ns);
            let (start_ns, end_ns) = (part.since_start(from_ns), part.since_start(to_ns));
            let mut frames = match row.stack {
                0 if waits && calls.is_near(start_ns) => calls.frames(EventKind::Waiting),
                _ => {
                    let stack = labels.stack(process, row.stack, &mut table).to_vec();
                    without_interpreter(stack, &table)
                }
            };
            if let Some(what) = waiting_for(row.state) {
                frames.push(table.frame(FrameKind::Unknown, what, ""));
            }
            calls.see(start_ns, end_ns, &frames, |frame, start_ns| {
                let kind = match table.kinds[frame as usize] {
                    _ if table.owners[frame as usize] == FrameOwner::Own => EventKind::Own,
                    FrameKind::Python => EventKind::Python,
                    FrameKind::Unknown if waits => EventKind::Waiting,
                    _ => EventKind::Native,
                };
                Event {
                    start_ns,
                    duration_ns: 0,
                    name: lanes.names.of(&name(&table, frame)),
                    kind,
                    detail: lanes.details.of(&table.places[frame as usize]),
                    correlation: None,
                    kin: 0,
                }
            });
        }
        lanes.lanes.push(Lane {
            kind: LaneKind::Samples,
            process: processes.index(part, process),
            name: labels::thread(&part.trace, thread, Ids::Shown),
            thread: Some(thread),
            device: None,
            events: calls.finish(),
        });
    }
}

/// Returns the samples just after the slice, of threads that ran in its last moments.
fn just_after(part: &OpenRank<'_>) -> Vec<Sample> {
    let to_ns = part.window.to_ns;
    let until_ns = to_ns.saturating_add(LONGEST_PERIOD_NS);
    let rows = part.trace.in_order::<Sample>(to_ns, until_ns).flatten();
    let ran = |row: &Sample| {
        let before_ns = row.time_ns.saturating_sub(row.weight_ns);
        row.state == ThreadState::Running && row.time_ns >= to_ns && before_ns < to_ns
    };
    rows.filter(ran).collect()
}

/// Returns a stack without frames that its Python frames represent. These are native frames above
/// the innermost Python frame, those of the interpreter below it, and frames of Python's import
/// system, which only pass calls on.
fn without_interpreter(mut stack: Vec<u32>, table: &FrameTable) -> Vec<u32> {
    let is_python = |&frame: &u32| table.kinds[frame as usize] == FrameKind::Python;
    let Some(innermost) = stack.iter().rposition(is_python) else { return stack };
    let mut at = 0;
    stack.retain(|frame| {
        at += 1;
        match table.owners[*frame as usize] {
            FrameOwner::Import | FrameOwner::Interpreter => false,
            _ => at > innermost || is_python(frame),
        }
    });
    stack
}

/// Returns the name of a frame. Module-level code is named after its file and the file's directory.
fn name(table: &FrameTable, frame: u32) -> Cow<'_, str> {
    let (name, place) = (&table.names[frame as usize], &table.places[frame as usize]);
    match &**name {
        "<module>" if !place.is_empty() => {
            let folders = place.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
            format!("{} {name}", &place[folders..]).into()
        }
        name => name.into(),
    }
}

/// The calls that a thread's samples show. Calls nest and never overlap. If a call began before the
/// previous sample ended, it is shown from the end of that sample.
#[derive(Default)]
struct Calls {
    open: Vec<(u32, Event)>,
    done: Vec<Event>,
    end_ns: u64,
    /// In a time without a sample up to this long, the thread counts as running.
    longest_gap_ns: u64,
}

impl Calls {
    /// Whether the open calls can have lasted until `start_ns`.
    fn is_near(&self, start_ns: u64) -> bool {
        start_ns <= self.end_ns.saturating_add(self.longest_gap_ns)
    }

    /// Returns the frames of the open calls, leaving out calls of the kind `but`.
    fn frames(&self, but: EventKind) -> Vec<u32> {
        self.open.iter().filter(|(_, event)| event.kind != but).map(|(frame, _)| *frame).collect()
    }

    fn see(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        frames: &[u32],
        mut event: impl FnMut(u32, u64) -> Event,
    ) {
        let mut same = match self.is_near(start_ns) {
            true => self.open.iter().zip(frames).take_while(|((a, _), b)| a == *b).count(),
            // After a long time without a sample, all open calls count as ended.
            false => 0,
        };
        let end_ns = end_ns.max(self.end_ns);
        let start_ns = start_ns.clamp(self.end_ns, end_ns);
        // Two waits in the same place are separate calls, because the thread ran in between.
        let waited = self.open.last().is_some_and(|(_, event)| event.kind == EventKind::Waiting);
        if waited && same == self.open.len() && start_ns > self.end_ns {
            same -= 1;
        }
        // A wait ends with its sample. A call continues until a sample shows something else.
        if self.is_near(start_ns) {
            for (_, event) in self.open.iter_mut().filter(|(_, e)| e.kind != EventKind::Waiting) {
                event.duration_ns = start_ns - event.start_ns;
            }
        }
        self.done.extend(self.open.drain(same..).map(|(_, event)| event));
        self.end_ns = end_ns;
        self.open.extend(frames[same..].iter().map(|&frame| (frame, event(frame, start_ns))));
        for (_, event) in &mut self.open {
            event.duration_ns = end_ns - event.start_ns;
        }
    }

    fn finish(mut self) -> Vec<Event> {
        self.done.extend(self.open.into_iter().map(|(_, event)| event));
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Selection, Slice};
    use tprof_trace::{RunDir, TraceHeader, TraceWriter};

    fn calls(seen: &[(u64, u64, &[u32])]) -> Vec<(u32, u64, u64)> {
        let mut calls = Calls { longest_gap_ns: 5, ..Calls::default() };
        for (start_ns, end_ns, frames) in seen {
            calls.see(*start_ns, *end_ns, frames, |name, start_ns| Event {
                start_ns,
                duration_ns: 0,
                name,
                kind: EventKind::Native,
                detail: 0,
                correlation: None,
                kin: 0,
            });
        }
        let mut events: Vec<_> = calls
            .finish()
            .iter()
            .map(|e| (e.name, e.start_ns, e.start_ns + e.duration_ns))
            .collect();
        events.sort_unstable();
        events
    }

    #[test]
    fn consecutive_samples_share_the_outer_part_of_their_stacks() {
        let seen = calls(&[(0, 10, &[1, 2]), (10, 20, &[1, 3]), (30, 40, &[1, 3])]);
        assert_eq!(seen, [(1, 0, 20), (1, 30, 40), (2, 0, 10), (3, 10, 20), (3, 30, 40)]);
    }

    #[test]
    fn a_gap_shorter_than_a_period_counts_as_running() {
        let seen = calls(&[(0, 10, &[1, 2]), (14, 20, &[1, 3]), (26, 30, &[1, 3])]);
        assert_eq!(seen, [(1, 0, 20), (1, 26, 30), (2, 0, 14), (3, 14, 20), (3, 26, 30)]);
    }

    #[test]
    fn two_waits_in_one_place_are_separate_if_the_thread_ran() {
        let mut calls = Calls { longest_gap_ns: 5, ..Calls::default() };
        for (start_ns, end_ns) in [(0, 10), (12, 20), (20, 30)] {
            calls.see(start_ns, end_ns, &[1, 2], |name, start_ns| Event {
                start_ns,
                duration_ns: 0,
                name,
                kind: if name == 2 { EventKind::Waiting } else { EventKind::Native },
                detail: 0,
                correlation: None,
                kin: 0,
            });
        }
        let times = |e: &Event| (e.name, e.start_ns, e.start_ns + e.duration_ns);
        let mut events: Vec<_> = calls.finish().iter().map(times).collect();
        events.sort_unstable();
        assert_eq!(events, [(1, 0, 30), (2, 0, 10), (2, 12, 30)]);
    }

    #[test]
    fn overlapping_samples_become_calls_that_do_not_overlap() {
        let seen = calls(&[(0, 100, &[1, 2]), (60, 90, &[4]), (95, 120, &[5])]);
        assert_eq!(seen, [(1, 0, 100), (2, 0, 100), (4, 100, 100), (5, 100, 120)]);
    }

    #[test]
    fn calls_last_to_the_slices_end_if_the_next_sample_shows_them() {
        let dir = tempfile::tempdir().unwrap();
        let header = TraceHeader::default();
        let mut writer = TraceWriter::create(&dir.path().join("rank-0.tprof"), &header).unwrap();
        let sample = |time_ns, state| Sample { time_ns, state, weight_ns: 10, ..Sample::default() };
        let [running, waiting] = [ThreadState::Running, ThreadState::Sleep];
        let rows = [(10, running), (16, waiting), (20, running), (26, running)];
        writer.write(&mut rows.map(|(time_ns, state)| sample(time_ns, state)).to_vec()).unwrap();
        writer.finish().unwrap();
        let run = RunDir::open(dir.path()).unwrap();
        let slice = Slice { to_ns: Some(15), ..Slice::default() };
        let selection = Selection::new(&run, &slice, None).unwrap();
        let part = selection.open(selection.files[0]).unwrap();
        let times: Vec<u64> = just_after(&part).iter().map(|row| row.time_ns).collect();
        assert_eq!(times, [20]);
    }

    #[test]
    fn python_frames_replace_frames_of_the_interpreter() {
        let mut table = FrameTable::default();
        let [native, python, leaf] = [
            table.frame(FrameKind::Native, "_PyEval_EvalFrame", ""),
            table.frame(FrameKind::Python, "main", ""),
            table.frame(FrameKind::Native, "sgemm", ""),
        ];
        let shown = without_interpreter(vec![native, python, native, python, leaf], &table);
        assert_eq!(shown, [python, python, leaf]);
        assert_eq!(without_interpreter(vec![native, leaf], &table), [native, leaf]);
        let own = FrameOwner::Interpreter;
        let interpreter = table.code(FrameKind::Native, "cfunction_call", "python3.11", own);
        let shown = without_interpreter(vec![python, interpreter, leaf], &table);
        assert_eq!(shown, [python, leaf]);
        assert_eq!(without_interpreter(vec![interpreter, leaf], &table), [interpreter, leaf]);
        let file = "<frozen importlib._bootstrap>";
        let import = table.code(FrameKind::Python, "_find_and_load", file, FrameOwner::Import);
        let shown = without_interpreter(vec![python, import, native, python, leaf], &table);
        assert_eq!(shown, [python, python, leaf]);
    }
}

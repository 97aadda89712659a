//! Converts CPU samples of a trace: the top-level list `samples`, and events of phase `P`.
//!
//! A sample of the list names its thread without a process, and no sample says how much time it
//! stands for. Both are known only after the whole trace has been read, so samples wait until then.

use crate::error::ImportError;
use crate::event::Event;
use crate::frames::StackFrames;
use crate::losses::LossReason;
use crate::number;
use crate::output::{Output, Rows};
use crate::stacks::Stacks;
use crate::threads::{Id, Threads};
use rustc_hash::FxHashMap;
use tprof_facts::units::duration;
use tprof_trace::model::{NameId, Sample, ThreadIndex, ThreadState};

/// Largest number of pending samples.
const MAX_SAMPLES: usize = 4 << 20;

/// A sample that waits.
#[derive(Debug)]
struct Waiting {
    time_ns: u64,
    owner: Owner,
    /// Event whose count triggered the sample: CPU cycles, cache misses.
    event: NameId,
    /// Index of the sample's innermost frame.
    frame: u32,
    cpu: Option<u32>,
    /// Number of samples that this sample stands for.
    weight: u64,
}

/// Owner of a sample.
#[derive(Clone, Debug)]
enum Owner {
    Thread(ThreadIndex),
    /// A thread with this id, in some process.
    Id(Id),
}

/// The samples of a file.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    waiting: Vec<Waiting>,
    /// Ids of frames, and the index of each.
    frames: Vec<Box<[u8]>>,
    place_of: FxHashMap<Box<[u8]>, u32>,
}

impl Samples {
    /// Adds a sample. An element of the top-level list may lack a stack. An event without a frame
    /// id is counted as lost, because its stack is in a format that isn't read.
    pub fn add(
        &mut self,
        event: &Event<'_>,
        (time_ns, is_event): (u64, bool),
        threads: &mut Threads,
        output: &mut Output,
    ) {
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let frame = event.inner(fields.frame);
        if is_event && frame.is_empty() {
            output.tally.count_loss(LossReason::Sample);
            return;
        }
        if self.waiting.len() == MAX_SAMPLES {
            output.tally.count_loss(LossReason::SamplesFull);
            return;
        }
        let owner = match pid.is_empty() {
            true => Owner::Id(Id::of(tid)),
            false => Owner::Thread(threads.thread(pid, tid, time_ns, time_ns, output).1),
        };
        let of = |place| number::unsigned(event.inner(place));
        let weight = of(fields.weight).unwrap_or(1);
        let cpu = of(fields.cpu).and_then(|cpu| u32::try_from(cpu).ok());
        let event = output.name(event.inner(fields.name));
        let frame = self.frame(frame);
        self.waiting.push(Waiting { time_ns, owner, event, frame, cpu, weight });
    }

    /// Writes the samples, and returns notes for the reader.
    pub fn write(
        self,
        threads: &mut Threads,
        stack_frames: &mut StackFrames,
        stacks: &mut Stacks,
        output: &mut Output,
    ) -> Result<Option<String>, ImportError> {
        let Samples { mut waiting, frames, .. } = self;
        keep_one_event(&mut waiting, output);
        let mut rows: Vec<(ThreadIndex, Waiting)> = Vec::new();
        let by_id = threads.by_id();
        for one in waiting {
            let thread = match &one.owner {
                Owner::Thread(thread) => *thread,
                Owner::Id(id) => match by_id.get(id) {
                    Some(thread) => *thread,
                    None => threads.main_process_thread(id.clone(), output),
                },
            };
            rows.push((thread, one));
        }
        rows.sort_by_key(|(thread, one)| (*thread, one.time_ns));
        let Some(period_ns) = period(&rows) else {
            output.tally.count_losses(LossReason::SamplePeriod, rows.len() as u64);
            return Ok(None);
        };
        rows.sort_by_key(|(_, one)| one.time_ns);
        let count = rows.len();
        let mut table: Rows<Sample> = Rows::default();
        for (thread, one) in rows {
            let process = threads.touch(thread, one.time_ns, one.time_ns);
            let sample = Sample {
                time_ns: one.time_ns,
                process,
                thread,
                stack: stack_frames.stack(process, &frames[one.frame as usize], stacks),
                weight_ns: period_ns.saturating_mul(one.weight),
                state: ThreadState::Running,
                cpu: one.cpu,
                ..Sample::default()
            };
            table.push(sample, output)?;
        }
        table.write(output)?;
        Ok(Some(format!(
            "the trace names no period of its {count} CPU samples: each stands for {}, the median \
             distance of two samples of a thread",
            duration(period_ns)
        )))
    }

    fn frame(&mut self, id: &[u8]) -> u32 {
        if let Some(place) = self.place_of.get(id) {
            return *place;
        }
        let place = self.frames.len() as u32;
        self.frames.push(id.into());
        self.place_of.insert(id.into(), place);
        place
    }
}

/// Keeps only the samples of the most frequent event. Samples of another event, such as cache
/// misses, do not measure CPU time.
fn keep_one_event(waiting: &mut Vec<Waiting>, output: &mut Output) {
    let mut counts: FxHashMap<NameId, u64> = FxHashMap::default();
    waiting.iter().for_each(|one| *counts.entry(one.event).or_default() += 1);
    let most = counts.iter().max_by_key(|(event, count)| (**count, std::cmp::Reverse(event.0)));
    let Some(most) = most.map(|(event, _)| *event) else { return };
    let all = waiting.len();
    waiting.retain(|one| one.event == most);
    output.tally.count_losses(LossReason::OtherSamples, (all - waiting.len()) as u64);
}

/// Returns the usual interval between two samples of a thread; `None` if no thread has two samples.
fn period(rows: &[(ThreadIndex, Waiting)]) -> Option<u64> {
    let pairs = rows.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let distances = pairs.map(|pair| pair[1].1.time_ns - pair[0].1.time_ns);
    let mut distances: Vec<u64> = distances.filter(|distance| *distance > 0).collect();
    let middle = distances.len() / 2;
    if distances.is_empty() {
        return None;
    }
    Some(*distances.select_nth_unstable(middle).1)
}

//! Reads a file's samples and adds them up by thread, stack and state.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadIndex, ThreadState};

use super::names::{FrameFunctions, FuncId, FunctionTable, Stack};
use super::part::Part;
use super::stretch::Stretch;
use super::unsampled_share::UnsampledShare;
use super::unsampled_waits::{self, ShortWaits};
use super::waits::wait_of;

/// The CPU samples of a file.
#[derive(Debug, Default)]
pub struct CpuTrace {
    /// The functions of all stacks.
    pub names: FunctionTable,
    /// The stretches, in any order.
    pub stretches: Vec<Stretch>,
    /// Times of the first and the last sample.
    pub extent_ns: Option<(u64, u64)>,
    /// Number of rows that were read.
    pub rows: u64,
    /// The functions and lines of each stack.
    stacks: HashMap<(ProcessIndex, StackId), Stack>,
}

/// Stands for the stack of a sample without one.
static NO_STACK: Stack = Stack { functions: Vec::new(), lines: Vec::new(), cut: false };

type SampleKey = (ProcessIndex, ThreadIndex, StackId, ThreadState);

/// Sums of rows with the same key.
#[derive(Default)]
struct SampleSums {
    weight_ns: u64,
    count: u64,
    gil_ns: Option<u64>,
    short: ShortWaits,
}

impl CpuTrace {
    /// Reads the samples of a file.
    pub fn load(file: &TraceFile) -> CpuTrace {
        CpuTrace::load_where(file, |_| true)
    }

    /// The functions and lines of a stack.
    pub fn stack(&self, process: ProcessIndex, stack: StackId) -> &Stack {
        self.stacks.get(&(process, stack)).unwrap_or(&NO_STACK)
    }

    /// Returns the part that a thread with this stack and state is in; `None` if no row with this
    /// stack was read.
    pub fn part(&self, process: ProcessIndex, stack: StackId, state: ThreadState) -> Option<Part> {
        self.part_by(Part::of, process, stack, state)
    }

    /// Like [`Self::part`], for a thread that drives a rank.
    pub fn driver_part(
        &self,
        process: ProcessIndex,
        stack: StackId,
        state: ThreadState,
    ) -> Option<Part> {
        self.part_by(Part::of_driver, process, stack, state)
    }

    fn part_by(
        &self,
        part_of: fn(ThreadState, &[FuncId], &FunctionTable) -> Part,
        process: ProcessIndex,
        stack: StackId,
        state: ThreadState,
    ) -> Option<Part> {
        let functions = &self.stacks.get(&(process, stack))?.functions;
        let state = wait_of(state, functions, &self.names);
        Some(part_of(state, functions, &self.names))
    }

    /// Returns the state of a thread with this stack, with waits separated by cause.
    pub fn state(&self, process: ProcessIndex, stack: StackId, state: ThreadState) -> ThreadState {
        wait_of(state, &self.stack(process, stack).functions, &self.names)
    }

    /// Reads the rows of a file that `keep` selects.
    pub fn load_where(file: &TraceFile, keep: impl Fn(&Sample) -> bool) -> CpuTrace {
        CpuTrace::of_rows(file, file.blocks::<Sample>().flatten().filter(keep))
    }

    /// Adds up rows of a file. The rows may have been limited to a window.
    pub fn of_rows(file: &TraceFile, rows: impl Iterator<Item = Sample>) -> CpuTrace {
        let mut sums: FxHashMap<SampleKey, SampleSums> = FxHashMap::default();
        let mut extent: Option<(u64, u64)> = None;
        let mut count = 0;
        for row in rows {
            let key = (row.process, row.thread, row.stack, row.state);
            let sum = sums.entry(key).or_default();
            sum.weight_ns = sum.weight_ns.saturating_add(row.weight_ns);
            sum.count += 1;
            sum.short.add(&row);
            if let Some(held) = row.gil {
                let held_ns = if held { row.weight_ns } else { 0 };
                sum.gil_ns = Some(sum.gil_ns.unwrap_or(0).saturating_add(held_ns));
            }
            let end_ns = match row.state {
                ThreadState::Running => row.time_ns,
                _ => row.time_ns.saturating_add(row.weight_ns),
            };
            let (first, last) = extent.unwrap_or((row.time_ns, end_ns));
            extent = Some((first.min(row.time_ns), last.max(end_ns)));
            count += 1;
        }
        let mut trace = CpuTrace { extent_ns: extent, rows: count, ..CpuTrace::default() };
        let mut frames = FrameFunctions::new(file);
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        let mut shorts = Vec::with_capacity(sums.len());
        for ((process, thread, id, state), rows) in sums {
            let CpuTrace { names, stacks, stretches, .. } = &mut trace;
            let stack =
                stacks.entry((process, id)).or_insert_with(|| frames.stack(process, id, names));
            stretches.push(Stretch {
                process,
                thread,
                state: wait_of(state, &stack.functions, names),
                stack: stack.functions.clone(),
                id,
                cut: stack.cut,
                weight_ns: rows.weight_ns,
                shared: UnsampledShare::default(),
                samples: rows.count,
                gil_ns: rows.gil_ns,
            });
            shorts.push(rows.short);
        }
        unsampled_waits::add_unsampled_waits(&mut trace.stretches, &shorts);
        trace
    }
}

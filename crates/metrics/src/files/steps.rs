//! Sums up a rank's calls on files by step.

use tprof_facts::units::{bytes, counted, duration};
use tprof_rank::{RankTrace, steps_of_one_process};
use tprof_trace::model::{FileCalls, FileKind, FileOperation};

/// What a rank's processes transferred in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepFiles {
    /// Number of the step.
    pub number: u64,
    /// Time of the step, ns.
    pub duration_ns: u64,
    /// Bytes that were read from files.
    pub read: u64,
    /// Time in these reads, summed over threads, ns.
    pub read_ns: u64,
    /// Bytes that were written to files.
    pub written: u64,
    /// Time in these writes and in waits for the disk, summed over threads, ns.
    pub write_ns: u64,
    /// Bytes received from sockets and pipes.
    pub received: u64,
    /// Bytes sent to sockets and pipes.
    pub sent: u64,
}

/// Finds the steps of calls.
#[derive(Default)]
pub(super) struct StepSums {
    /// The beginnings and ends, in order.
    times: Vec<(u64, u64)>,
    sums: Vec<StepFiles>,
}

impl StepSums {
    pub fn of(rank: &RankTrace<'_>) -> StepSums {
        let steps = steps_of_one_process(rank);
        let times = steps.iter().map(|step| (step.interval.start, step.interval.end)).collect();
        let sum = |step: &tprof_rank::Step| StepFiles {
            number: step.number,
            duration_ns: step.interval.length(),
            ..StepFiles::default()
        };
        StepSums { times, sums: steps.iter().map(sum).collect() }
    }

    /// Adds calls to the step in which the first of them began.
    pub fn add(&mut self, row: &FileCalls) {
        let after = self.times.partition_point(|(start, _)| *start <= row.start_ns);
        let Some(at) = after.checked_sub(1).filter(|at| row.start_ns < self.times[*at].1) else {
            return;
        };
        let sum = &mut self.sums[at];
        let is_file = row.kind == FileKind::File;
        let is_peer = matches!(row.kind, FileKind::Socket | FileKind::Pipe);
        match row.operation {
            FileOperation::Read if is_file => {
                sum.read += row.bytes;
                sum.read_ns += row.busy_ns;
            }
            FileOperation::Write | FileOperation::Sync if is_file => {
                sum.written += row.bytes;
                sum.write_ns += row.busy_ns;
            }
            FileOperation::Read if is_peer => sum.received += row.bytes,
            FileOperation::Write if is_peer => sum.sent += row.bytes,
            _ => {}
        }
    }

    pub fn finish(self) -> Vec<StepFiles> {
        self.sums
    }
}

/// Says what a step transfers on average, and which step transferred most; `None` without steps.
pub(super) fn mean_text(steps: &[StepFiles]) -> Option<String> {
    let of_files = |step: &StepFiles| step.read + step.written;
    let most = steps.iter().max_by_key(|step| (of_files(step), std::cmp::Reverse(step.number)))?;
    let count = steps.len() as u64;
    let mean = |of: fn(&StepFiles) -> u64| steps.iter().map(of).sum::<u64>() / count;
    let mut text = format!(
        "a step reads {} from files in {} and writes {} in {}, on average over {}",
        bytes(mean(|step| step.read)),
        duration(mean(|step| step.read_ns)),
        bytes(mean(|step| step.written)),
        duration(mean(|step| step.write_ns)),
        counted(count, "step", "steps"),
    );
    let mean_bytes = steps.iter().map(of_files).sum::<u64>() / count;
    if count > 1 && of_files(most) > 2 * mean_bytes {
        text.push_str(&format!(
            "; step {} transfers most: {} read, {} written",
            most.number,
            bytes(most.read),
            bytes(most.written)
        ));
    }
    Some(text)
}

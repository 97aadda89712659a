//! Flushes and closes the rank files, and counts the rows that can't be written.

use crate::output::files::{Files, WriteHistory};
use crate::output::losses::Losses;
use tprof_trace::model::Loss;

/// Longest time that rows wait in a file whose waiting rows only refine rows that are written, ns.
const REFINING_NS: u64 = 3_000_000_000;

/// The reason for losses because a trace file can't be written.
pub const UNWRITTEN: &str = "the trace file could not be written";

/// Flushes every file. An error is reported once, and the rows that can't be written wait for the
/// next call. Rows that only refine other rows wait until they fill a block.
pub fn flush_files(files: &mut Files, losses: &mut Losses, now: u64) {
    let mut errors = Vec::new();
    for open in &mut files.open {
        if open.writer.can_wait() && now.saturating_sub(open.flushed_ns) < REFINING_NS {
            continue;
        }
        match open.writer.flush() {
            Ok(()) => {
                open.failed = None;
                open.flushed_ns = now;
            }
            Err(e) => {
                let text = e.to_string();
                if open.failed.as_deref() != Some(&text) {
                    errors.push(text.clone());
                    open.failed = Some(text);
                }
            }
        }
    }
    errors.iter().for_each(|error| losses.complain(error));
    count_dropped(files, losses);
}

/// Writes the figures of steps that are complete.
pub fn write_history(files: &mut Files, losses: &mut Losses, now: u64, when: WriteHistory) {
    for open in &mut files.open {
        if let Err((lost, error)) = open.write_history(now, when) {
            losses.lose("figures of steps", UNWRITTEN, lost);
            losses.complain(&error.to_string());
        }
    }
}

/// Counts rows that the writers have dropped because too many could not be written.
fn count_dropped(files: &mut Files, losses: &mut Losses) {
    for open in &mut files.open {
        let dropped = open.writer.take_dropped();
        if dropped > 0 {
            losses.lose("processes, stacks, counters", UNWRITTEN, dropped);
        }
    }
}

/// Writes all waiting rows. Rows that can't be written now are dropped and counted, so that the
/// losses are final after this.
pub fn settle_files(files: &mut Files, losses: &mut Losses) {
    for open in &mut files.open {
        let samples = open.samples_waiting() as u64;
        let result = open.write_all_samples();
        if let Err(e) = &result {
            losses.lose("CPU samples", UNWRITTEN, samples);
            losses.complain(&e.to_string());
        }
        if let Err(e) = result.and_then(|()| open.writer.flush()) {
            losses.complain(&e.to_string());
            open.writer.give_up();
        }
    }
    count_dropped(files, losses);
}

/// Appends the losses and the indexes to the files and closes them. The caller has called
/// [`settle_files`].
pub fn close_files(files: &mut Files, losses: &mut Losses, time_ns: u64) {
    write_losses(files, losses, time_ns);
    for open in files.open.drain(..) {
        if let Err(e) = open.writer.finish() {
            losses.complain(&e.to_string());
        }
    }
}

/// Writes the run's losses into every file, so that each file can be read without the others.
fn write_losses(files: &mut Files, losses: &Losses, time_ns: u64) {
    for open in &mut files.open {
        for (what, why, count) in losses.iter() {
            let (what, why) = (open.writer.name(what), open.writer.name(why));
            open.writer.loss(Loss { time_ns, process: None, what, count, why });
        }
    }
}

//! Moves waiting rows to the files of the run, and writes `run.json`.

use super::finish::STATUS_NS;
use super::main_loop::{Engine, MS};
use super::run_info;
use crate::error::CollectError;
use crate::output::files::WriteHistory;
use crate::output::{flushing, run_json};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use tprof_os::sys;
use tprof_trace::unwritten_marker;

/// Least time between two writes of `run.json`. If a write takes long, the next one is due later.
const INFO_NS: u64 = 500 * MS;
/// The time between two writes of `run.json` is at least this multiple of the time that a write
/// takes.
const INFO_SHARE: u64 = 50;
/// Time between two writes of samples, which is long because small blocks are expensive.
const SAMPLES_NS: u64 = 1000 * MS;
/// Stacks that were taken longer ago than this are assumed to have been read from the rings.
const SETTLED_NS: u64 = 200 * MS;

impl Engine {
    /// Writes the waiting rows that fill a block, and `run.json` if its next write is due.
    pub(super) fn flush(&mut self, now: u64) {
        self.flush_rows(now, now.saturating_sub(SETTLED_NS), false);
        self.forget_old(now);
        flushing::flush_files(&mut self.out.files, &mut self.out.processes.losses, now);
        if now >= self.timers.info_due_ns {
            self.refresh_info();
            self.write_info_now();
            let took = sys::monotonic_ns() - now;
            self.timers.info_due_ns = now + INFO_NS.max(took * INFO_SHARE);
        }
    }

    /// Writes all waiting rows, even if they don't fill a block. The caller has read all stacks
    /// that were taken before `settled_ns` from the rings.
    pub(super) fn flush_all(&mut self, now: u64, settled_ns: u64) {
        self.flush_rows(now, settled_ns, true);
        self.out.files.open.iter_mut().for_each(|open| open.flushed_ns = 0);
        flushing::flush_files(&mut self.out.files, &mut self.out.processes.losses, now);
        self.refresh_info();
        self.write_info_now();
    }

    /// Moves the waiting rows to the writers of their files.
    fn flush_rows(&mut self, now: u64, settled_ns: u64, all: bool) {
        let numbers: Vec<u64> = self.targets.keys().copied().collect();
        for number in numbers {
            let Some(mut target) = self.targets.remove(&number) else { continue };
            target.learn_modules(&mut self.out, settled_ns);
            self.ask_symbols(&mut target);
            self.judge_allocators(&mut target);
            target.flush(&mut self.out, now, self.recording.always_on);
            self.targets.insert(number, target);
        }
        self.flush_samples(now, settled_ns, all);
        self.write_devices(false);
        self.machine.write(&mut self.out.files);
        let when = if all { WriteHistory::All } else { WriteHistory::Blocks };
        flushing::write_history(&mut self.out.files, &mut self.out.processes.losses, now, when);
        self.parts.prices.begin();
    }

    /// Writes the waiting readings and samples of devices. `is_last`: none follow.
    pub(super) fn write_devices(&mut self, is_last: bool) {
        let Engine { devices, gpu_metrics, out, targets, .. } = self;
        if let Some(metrics) = gpu_metrics {
            metrics.follow(&out.files, || targets.values().map(|image| image.pid).collect());
            metrics.write(&mut out.files, |uuid| devices.index_of(uuid), is_last);
        }
        devices.write(&mut out.files, |device, name, time_ns| {
            gpu_metrics.as_ref().is_some_and(|known| known.replaces(device, name, time_ns))
        });
    }

    /// Writes the rows of processes that did not attach. Also writes samples, if they fill a block
    /// or if `all` is set.
    pub(super) fn flush_samples(&mut self, now: u64, settled_ns: u64, all: bool) {
        let explained_ns = now.saturating_sub(STATUS_NS);
        self.attribution.write_ends(explained_ns, &mut self.out);
        for own in self.attribution.flush_own(settled_ns, &mut self.out) {
            self.request_names(own);
        }
        let due = now - self.timers.samples_ns >= SAMPLES_NS;
        if due || all {
            self.timers.samples_ns = now;
        }
        for open in &mut self.out.files.open {
            let count = open.samples_waiting() as u64;
            let written = match all {
                true => open.write_all_samples(),
                false if count > 0 && (due || count >= 4096) => open.write_samples(),
                false => continue,
            };
            if let Err(e) = written {
                self.out.processes.losses.lose("CPU samples", flushing::UNWRITTEN, count);
                self.out.processes.losses.complain(&e.to_string());
            }
        }
    }

    pub(super) fn refresh_info(&mut self) {
        let clock = &self.out.clock;
        let mut work = self.written_off;
        self.targets.values().for_each(|target| work += target.recorded_work(clock));
        let Engine { out, parts, .. } = self;
        let interruptions = parts.sampler.as_ref().map(|sampler| &*sampler.interruptions);
        run_info::refresh(&mut parts.info, out, work, interruptions, &parts.prices);
        let not_kept = self.not_kept(sys::monotonic_ns());
        let over_budget: Vec<_> = self.over_budget().collect();
        self.parts.info.completeness.blind.extend(not_kept.into_iter().chain(over_budget));
    }

    /// Writes `run.json`. A failure is reported only at the end of the run, because until then a
    /// later write may succeed.
    pub(super) fn write_info_now(&mut self) {
        if self.parts.config.redact {
            run_json::redact(&mut self.parts.info);
        }
        match run_json::write(&self.parts.info_path, &self.parts.info) {
            Ok(bytes) => {
                if std::mem::take(&mut self.is_marked_unwritten) {
                    let _ = fs::remove_file(unwritten_marker(&self.parts.info_path));
                }
                self.info_bytes = bytes;
                self.reserve.hold(bytes, self.out.files.open.len());
            }
            Err(source) => {
                self.mark_unwritten(&source);
                if self.parts.info.finished {
                    let path = self.parts.info_path.clone();
                    let error = CollectError::Unwritable { path, source };
                    self.out.processes.losses.complain(&error.to_string());
                }
            }
        }
    }

    /// Creates a file which says that the other files could not be written. Without this marker a
    /// reader would conclude that the collector was killed.
    fn mark_unwritten(&mut self, why: &io::Error) {
        if !std::mem::replace(&mut self.is_marked_unwritten, true) {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let marker = options.open(unwritten_marker(&self.parts.info_path));
            let _ = marker.and_then(|mut file| file.write_all(why.to_string().as_bytes()));
        }
    }
}

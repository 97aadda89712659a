//! Writes what has gathered, and `run.json`.

use super::main_loop::{Engine, MS};
use super::summary;
use super::write_off::STATUS_NS;
use crate::error::CollectError;
use crate::os::sys;
use crate::out::info;

/// How often `run.json` is written, at most; less often where that is dear.
const INFO_NS: u64 = 500 * MS;
/// Share of the time that writing `run.json` may take.
const INFO_SHARE: u64 = 50;
/// How often samples are written, at least: small blocks are dear.
const SAMPLES_NS: u64 = 1000 * MS;
/// Stacks that were taken this long ago have been read from the rings.
const SETTLED_NS: u64 = 200 * MS;

impl Engine {
    /// Writes what has gathered, where that is worth a block.
    pub(super) fn flush(&mut self, now: u64) {
        self.flush_rows(now, now.saturating_sub(SETTLED_NS), false);
        info::flush_files(&mut self.out.files, &mut self.out.processes.losses, now);
        if now >= self.timers.info_due_ns {
            self.refresh_info();
            self.write_info_now();
            let took = sys::monotonic_ns() - now;
            self.timers.info_due_ns = now + INFO_NS.max(took * INFO_SHARE);
        }
    }

    /// Writes all that has gathered, however little. Stacks that were taken until `settled_ns` have
    /// been read from the rings.
    pub(super) fn flush_all(&mut self, now: u64, settled_ns: u64) {
        self.flush_rows(now, settled_ns, true);
        self.out.files.open.iter_mut().for_each(|open| open.flushed_ns = 0);
        info::flush_files(&mut self.out.files, &mut self.out.processes.losses, now);
        self.refresh_info();
        self.write_info_now();
    }

    /// Has the rows that have gathered ready for their files.
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
        self.devices.write(&mut self.out.files);
        self.parts.prices.begin();
    }

    /// Writes samples once a block is worth it (or all of them), and what processes that did not
    /// attach have gathered.
    pub(super) fn flush_samples(&mut self, now: u64, settled_ns: u64, all: bool) {
        let explained_ns = now.saturating_sub(STATUS_NS);
        self.attribution.write_ends(explained_ns, &mut self.out);
        for own in self.attribution.flush_own(settled_ns, &mut self.out) {
            self.have_named(own);
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
                self.out.processes.losses.lose("CPU samples", info::UNWRITTEN, count);
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
        summary::refresh(&mut parts.info, out, work, interruptions, &parts.prices);
    }

    /// Writes `run.json`. A disk that refuses it may take it later: that is reported at the end.
    pub(super) fn write_info_now(&mut self) {
        match info::write(&self.parts.info_path, &self.parts.info) {
            Ok(bytes) => {
                self.info_bytes = bytes;
                self.reserve.hold(bytes, self.out.files.open.len());
            }
            Err(source) if self.parts.info.finished => {
                let path = self.parts.info_path.clone();
                self.out
                    .processes
                    .losses
                    .complain(&CollectError::Unwritable { path, source }.to_string());
            }
            Err(_) => {}
        }
    }
}

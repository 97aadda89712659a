//! Ends a run: decides when the run is over, and writes everything that isn't written yet.

use super::main_loop::{Engine, LEAST_INFO_BYTES, MS, OpenQuestions};
use super::messages::{NO_FILE, READINGS};
use super::overhead_estimate;
use crate::engine::workers::{ModuleTask, SymbolTask};
use crate::output::files::WriteHistory;
use crate::output::flushing;
use crate::output::survivors::{self, Survivor};
use crate::targets::target::Target;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use tprof_os::sys;
use tprof_os::wall_clock::{self, WallClock};
use tprof_trace::run::RunInfo;
use tprof_wire::region::off;

/// Time between two searches for running processes of the job after its command has ended, ns. A
/// search takes about 10 us for each process of the machine.
const ENDING_NS: u64 = 20 * MS;
/// The same as [`ENDING_NS`], while the run continues because processes have outlived the command.
const FOLLOWING_NS: u64 = 500 * MS;
/// Longest time that the end of a run waits for tables to be cached, which may be on a slow disk.
const KEEPING: Duration = Duration::from_secs(1);

impl Engine {
    pub(super) fn is_over(&mut self, now: u64) -> bool {
        if let Some(by) = self.ending.finish_by_ns {
            return now >= by || self.no_survivors(now, 1);
        }
        if self.ending.follows {
            return self.recording.over || self.no_survivors(now, 2);
        }
        let Some(linger) = self.parts.linger else { return false };
        if let closing @ Some(_) = self.parts.socket.closing() {
            return self.ending.all_accepted == closing && self.release_session();
        }
        if !self.targets.is_empty() {
            self.ending.empty_since_ns = None;
            return false;
        }
        let since = *self.ending.empty_since_ns.get_or_insert(now);
        if now - since >= linger.as_nanos() as u64 {
            self.parts.socket.hide();
        }
        false
    }

    /// Whether the job's last process has ended: `checks` searches in a row must find no process.
    /// One search isn't always enough, because a process that ends during a search may have left a
    /// child that the search missed.
    fn no_survivors(&mut self, now: u64, checks: u32) -> bool {
        if !self.targets.is_empty() {
            self.ending.survivors.nobody = 0;
            return false;
        }
        self.find_survivors(now);
        self.ending.survivors.nobody >= checks
    }

    /// Searches for processes of the job that still run, at most once every [`ENDING_NS`] or
    /// [`FOLLOWING_NS`].
    fn find_survivors(&mut self, now: u64) {
        let pause = match (self.ending.survivors.found.is_empty(), self.ending.follows) {
            (false, true) => FOLLOWING_NS,
            _ => ENDING_NS,
        };
        if now.saturating_sub(self.ending.survivors.at_ns) < pause {
            return;
        }
        let session = PathBuf::from(&self.parts.info.session);
        let images = self.targets.values().filter(|image| image.end.is_none());
        let images = images.map(|image| (image.pid, image.start_ns));
        let root = self
            .out
            .processes
            .root
            .filter(|_| !self.out.processes.root_ended)
            .map(|pid| (pid, u64::MAX));
        let known = images
            .chain(root)
            .chain(self.out.processes.unseen_pids())
            .chain(self.attribution.pids());
        let found = survivors::find(known, &session);
        let looked = &mut self.ending.survivors;
        looked.nobody = if found.is_empty() { looked.nobody + 1 } else { 0 };
        (looked.at_ns, looked.found) = (now, found);
    }

    /// Returns the processes of a launched job that still run when recording ends; none for other
    /// runs.
    fn survivors(&mut self, now: u64) -> Vec<Survivor> {
        // The collectors of `tprof attach` and `tprof env` launched no job, so they don't search.
        if self.out.processes.root.is_none() {
            return Vec::new();
        }
        if !self.targets.is_empty() {
            self.ending.survivors.at_ns = 0;
        }
        self.find_survivors(now);
        std::mem::take(&mut self.ending.survivors.found)
    }

    /// Releases the session to the next collector, unless a process attached while the socket was
    /// being closed. Returns whether the session was released.
    fn release_session(&mut self) -> bool {
        self.ending.empty_since_ns = None;
        let empty = self.targets.is_empty();
        match empty {
            true => self.parts.socket.leave(),
            false => self.parts.socket.show(),
        }
        empty
    }

    /// Ends the run and writes all files, whether or not processes still run.
    pub(super) fn end(mut self) -> RunInfo {
        let page = self.parts.session.page();
        let off = page.off.swap(off::SESSION, SeqCst);
        self.targets.values_mut().for_each(|target| target.switch(off::SESSION));
        page.closed.store(1, SeqCst);
        let now = sys::monotonic_ns();
        self.pass(now);
        let survivors = self.survivors(now);
        self.recording.ends_on = off == 0;
        if let Some(sampler) = &self.parts.sampler {
            sampler.finish();
        }
        if let Some(metrics) = &mut self.gpu_metrics {
            metrics.finish();
        }
        self.take_messages();
        self.assign_samples(u64::MAX);
        self.wait_for_workers(|open| open.modules > 0, Duration::from_secs(5));
        if self.parts.config.table_cache.is_some() {
            self.open.writing_cache +=
                usize::from(self.parts.workers.modules.send(ModuleTask::WriteCache).is_ok());
        }
        let numbers: Vec<u64> = self.targets.keys().copied().collect();
        for number in numbers {
            self.finish_image(number, now);
        }
        self.write_schedule(now);
        self.write_pauses(now);
        self.flush_samples(u64::MAX, u64::MAX, true);
        self.finish_dumps();
        let last = self.parts.workers.symbols.send(SymbolTask::Finish);
        self.open.writing_cache += usize::from(last.is_ok());
        self.wait_for_workers(|open| open.symbols > 0, Duration::from_secs(120));
        let still = self.open.symbols;
        if still > 0 {
            self.out.processes.losses.lose("symbols", "resolving them took too long", 0);
        }
        self.targets.values_mut().for_each(Target::read_cpu_time);
        self.observe(sys::monotonic_ns(), true);
        self.parts.info.end_ns = Some(match survivors.is_empty() {
            true => self.out.processes.last_end_ns.unwrap_or(now),
            false => now,
        });
        if self.parts.config.modules {
            let session = Path::new(&self.parts.info.session);
            self.out.processes.hooked.judge(session, &mut self.out.processes.losses);
        }
        let mut blind = self.out.processes.blind(&self.parts.config, &survivors);
        self.read_machine();
        self.machine.write(&mut self.out.files);
        self.write_devices(true);
        if self.devices.waiting() > 0 {
            self.out.processes.losses.lose(READINGS, NO_FILE, self.devices.waiting());
        }
        flushing::write_history(
            &mut self.out.files,
            &mut self.out.processes.losses,
            now,
            WriteHistory::Last,
        );
        flushing::settle_files(&mut self.out.files, &mut self.out.processes.losses);
        if overhead_estimate::has_share(self.out.processes.tree_cpu_ns.max(self.written_off.cpu_ns))
        {
            self.parts.prices.all();
        }
        self.refresh_info();
        for judge in std::mem::take(&mut self.ending.blind_spot_finders) {
            blind.extend(judge(&self.parts.info.processes));
        }
        self.parts.info.completeness.blind = blind;
        let notes = &mut self.parts.info.notes;
        notes.extend(self.wall_at_start.set_until(&WallClock::now()));
        notes.extend(wall_clock::faketime_programs(self.out.processes.bent));
        self.parts.info.finished = true;
        // The reserved space is released in two steps, so that the trace files do not use the part
        // for `run.json`.
        self.reserve.reserve_for_info(self.info_bytes.max(LEAST_INFO_BYTES));
        flushing::close_files(&mut self.out.files, &mut self.out.processes.losses, now);
        self.reserve.release();
        self.write_info_now();
        self.wait_for_workers(|open| open.writing_cache > 0, KEEPING);
        self.parts.info
    }

    fn wait_for_workers(&mut self, is_open: fn(&OpenQuestions) -> bool, most: Duration) {
        let by = sys::monotonic_ns() + most.as_nanos() as u64;
        while is_open(&self.open) && sys::monotonic_ns() < by {
            let session = Arc::clone(&self.parts.session);
            let page = session.page();
            let seen = page.sleep.load(Acquire);
            if !self.has_messages() {
                sys::futex_wait(&page.sleep, seen, Duration::from_millis(20));
            }
        }
    }
}

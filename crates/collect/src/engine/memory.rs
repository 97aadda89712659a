//! Reads the host's CPU use, the errors of the machine, and the memory of the job: of its cgroup, of
//! each process, and of the pages that processes share.

use super::main_loop::Engine;
use super::pss::{PssProcess, PssRound, PssSizes};
use crate::output::common_rows;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;
use tprof_os::sys;
use tprof_trace::model::{Counter, counter, property};

/// Longest wait of the end of a run for a reading of the machine's errors, ns.
const MOST_WAIT_NS: u64 = 200_000_000;

impl Engine {
    pub(super) fn observe(&mut self, now: u64, is_last: bool) {
        if let Some(reading) = self.host_cpu.read(now, is_last) {
            common_rows::write_host_cpu(&mut self.out.files, now, &reading);
        }
        let reading = self.cgroup.read(counter::CGROUP_CACHE_SHARE);
        let oom =
            reading.oom_kills.zip(self.oom_at_start).map(|(now, start)| now.saturating_sub(start));
        common_rows::write_cgroup(&mut self.out.files, now, &reading, oom);
        self.notice_lack_of_memory(oom);
        self.out.transfers.read();
        for target in self.targets.values_mut() {
            target.observe(&mut self.out, now);
        }
        self.ask_sizes(now);
        self.tell_watcher();
    }

    /// Tells the reader of the machine which processes the job has now.
    fn tell_watcher(&self) {
        let live = self.targets.values().filter(|target| target.end.is_none());
        let pids = live.map(|target| target.pid).collect();
        *self.parts.watched.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }

    /// Reads the errors of the machine for the last time, unless they are being read and that takes
    /// long. What the watcher has sent before is among the messages.
    pub(super) fn read_machine(&mut self) {
        let Some(watcher) = self.parts.watcher.take() else { return };
        let begun_ns = sys::monotonic_ns();
        let messages = loop {
            match watcher.try_lock() {
                Ok(mut watcher) => break watcher.read(true).0,
                Err(_) if sys::monotonic_ns() - begun_ns > MOST_WAIT_NS => break Vec::new(),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.take_messages();
        for message in messages {
            self.machine.take(message, &mut self.out.processes.losses);
        }
    }

    /// Requests the proportional set sizes of ranks that have several live processes. A rank with
    /// one process doesn't need them, because its RSS counts no page twice.
    fn ask_sizes(&mut self, now: u64) {
        let Some(sizer) = self.parts.sizer.as_mut().filter(|sizer| sizer.is_due(now)) else {
            return;
        };
        let mut files: BTreeMap<usize, Vec<PssProcess>> = BTreeMap::new();
        for target in self.targets.values().filter(|target| target.end.is_none()) {
            let process =
                PssProcess { image: target.number, pid: target.pid, rss_bytes: target.usage.rss };
            files.entry(target.file).or_default().push(process);
        }
        files.retain(|_, processes| processes.len() > 1);
        if !files.is_empty() {
            sizer.request_round(files);
        }
    }

    /// Writes the sizes that a round has read. All sizes of a file get the same time, so that a
    /// reader can add them up.
    pub(super) fn take_sizes(&mut self, round: PssRound) {
        if let Some(sizer) = &mut self.parts.sizer {
            let min_pause = self.parts.config.rss_interval;
            sizer.round_completed(round.took_ns, sys::monotonic_ns(), min_pause);
        }
        for PssSizes { file, time_ns, sizes } in round.files {
            let Some(open) = self.out.files.open.get_mut(file) else { continue };
            let sizes = match sizes {
                Ok(sizes) => sizes,
                Err(why) => {
                    if open.sizes_missing.as_ref() != Some(&why) {
                        open.write_property(property::NO_PSS, &serde_json::json!(why).to_string());
                        open.sizes_missing = Some(why);
                    }
                    continue;
                }
            };
            let name = open.writer.name(counter::PSS_BYTES);
            for (image, bytes) in sizes {
                if let Some(target) = self.targets.get(&image) {
                    let process = Some(target.hooks.index);
                    let value = bytes as f64;
                    open.writer.counter(Counter { time_ns, process, device: None, name, value });
                }
            }
        }
    }
}

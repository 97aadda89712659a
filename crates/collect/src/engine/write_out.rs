//! Replies to requests to write everything that was recorded before a moment into the run's files.
//! A program sends such a request to get the results of a part that has just ended.
//!
//! When the request arrives, the sampler still has CPU samples, because it sorts them before it
//! delivers them, and the workers still read the mappings and names of the samples' stacks. The
//! reply waits for both, and lists under `missing` what did not arrive in time.

use super::inbox::Reply;
use super::main_loop::{Engine, MS, WriteRequest};
use super::workers::SymbolTask;
use crate::targets::target::{Pass, Target};
use std::sync::mpsc::Sender;
use tprof_os::sys;

/// Longest time from a request to its reply. It is shorter than the time after which the server
/// tells the client that the collector is busy.
const MAX_WAIT_NS: u64 = 2_000 * MS;

/// Largest number of passes over the rings for one request. Without a limit, threads that keep
/// writing could keep the engine here.
const MAX_PASSES: u32 = 64;

impl Engine {
    /// Adds a request to write what was recorded before `until_ns`, or before now. The main loop
    /// replies to it later.
    pub(super) fn add_write_request(&mut self, until_ns: Option<u64>, reply: Sender<Reply>) {
        let now = sys::monotonic_ns();
        let sampled_ns = self.parts.sampler.as_ref().map_or(0, |sampler| sampler.deliver_now());
        let _ = self.parts.workers.symbols.send(SymbolTask::KernelNow);
        self.idle = 0;
        self.write_requests.push(WriteRequest {
            until_ns: until_ns.map_or(now, |until| until.min(now)),
            sampled_ns,
            reply_by_ns: now + MAX_WAIT_NS,
            is_written: false,
            reply,
        });
    }

    /// Replies to the requests for which all data has arrived or that have waited long enough.
    pub(super) fn reply_to_write_requests(&mut self) {
        let requests = std::mem::take(&mut self.write_requests);
        let sampled_until_ns = self.sampled_until_ns;
        let is_sampled = |request: &WriteRequest| sampled_until_ns >= request.sampled_ns;
        // Of many requests, the first writes for all that are as far.
        let sampled = requests.iter().filter(|request| is_sampled(request));
        let settled_ns = sampled.map(|request| request.until_ns).max().unwrap_or(0);
        let mut written_ns = 0;
        for mut request in requests {
            let now = sys::monotonic_ns();
            let is_late = now >= request.reply_by_ns;
            let is_sampled = is_sampled(&request);
            let until_ns = if is_sampled { settled_ns } else { request.until_ns };
            let mappings_are_read = self.open.modules == 0;
            if !request.is_written && (is_sampled && mappings_are_read || is_late) {
                request.is_written = true;
                self.write_out_once(&mut written_ns, now, until_ns);
            }
            // Writing may have sent more tasks to the workers.
            let mappings_are_read = self.open.modules == 0;
            let names_are_resolved = self.open.symbols == 0;
            let any_target = |needs: fn(&Target, u64) -> bool| {
                self.targets.values().any(|target| needs(target, request.until_ns))
            };
            let has_operations = !any_target(Target::needs_operations);
            let workers_are_done = mappings_are_read && names_are_resolved;
            let has_all = request.is_written && workers_are_done && has_operations;
            if !has_all && !is_late {
                self.write_requests.push(request);
                continue;
            }
            let awaited = [
                (is_sampled, "CPU samples of the last moments"),
                (mappings_are_read, "mappings of code"),
                (names_are_resolved, "names of functions"),
                (has_operations, "NCCL operations of the last moments"),
                (!any_target(Target::needs_memory), "changes of device memory of the last seconds"),
            ];
            let missing: Vec<&str> = awaited
                .into_iter()
                .filter_map(|(has_arrived, what)| (!has_arrived).then_some(what))
                .collect();
            // Names and mappings may have arrived since the last write.
            self.write_out_once(&mut written_ns, now, until_ns);
            let _ = request.reply.send(Reply::with(serde_json::json!({ "missing": missing })));
        }
    }

    /// Writes all data that has arrived, unless that was done for so late a time.
    fn write_out_once(&mut self, written_ns: &mut u64, now: u64, settled_ns: u64) {
        if settled_ns > *written_ns {
            *written_ns = settled_ns;
            self.write_out(now, settled_ns);
        }
    }

    /// Writes all data that has arrived, and requests the names for it. Stacks from before
    /// `settled_ns` are resolved with the mappings of their own time.
    fn write_out(&mut self, now: u64, settled_ns: u64) {
        for _ in 0..MAX_PASSES {
            if self.read_rings(now, Pass::Partial) == 0 {
                break;
            }
        }
        self.targets.values_mut().for_each(Target::write_all_next);
        self.read_rings(now, Pass::Partial);
        self.assign_samples(now);
        self.flush_all(now, settled_ns);
    }
}

//! Reads a target's memory and CPU time from `/proc`, and writes the totals of its heap.

use super::target::Target;
use crate::output::destination::Output;
use crate::output::transfers::largest;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use tprof_os::proc::{self, Transferred};
use tprof_symbols::ModuleFile;
use tprof_trace::model::*;
use tprof_wire::region::{REGION_BYTES, SESSION_BYTES, TABLES_BYTES};

/// Bytes of address space that tprof itself maps in an attached process. They are subtracted.
const OWN_MAPPINGS: u64 = (REGION_BYTES + SESSION_BYTES + TABLES_BYTES) as u64;
/// Bytes of anonymous memory that a module has to map before it is reported as an allocator in use.
/// jemalloc maps 8 MiB when it is loaded, and Arrow's libraries with their jemalloc map 11 MiB.
const MAPPER_BYTES: u64 = 16 << 20;

impl Target {
    /// Returns the modules that map memory for themselves, as far as they were not returned before.
    pub fn mapping_modules(&mut self) -> Vec<Arc<ModuleFile>> {
        if self.memory == MemoryRecording::Off {
            return Vec::new();
        }
        let mut found = self.code.mappers(MAPPER_BYTES);
        found.retain(|module| self.mappers.insert(module.path.clone()));
        found
    }

    /// Reads the CPU time that the process has used so far.
    pub fn read_cpu_time(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Some(cpu) = proc::Stat::of(self.pid).and_then(|stat| stat.cpu_ns()) {
            self.usage.cpu_ns = cpu.saturating_sub(self.usage.cpu_before_ns);
        }
    }

    /// Shows the CPU time to what adds up the figures of steps.
    pub fn show_cpu_time(&mut self, out: &mut Output, now: u64) {
        let (process, start_ns) = (self.hooks.index, self.start_ns);
        let watcher = out.files.open.get_mut(self.file).and_then(|open| open.writer.watcher());
        let Some(watcher) = watcher.filter(|_| self.end.is_none()) else { return };
        if !std::mem::replace(&mut self.usage.is_shown, true) {
            watcher.cpu_time(process, start_ns, 0);
        }
        watcher.cpu_time(process, now, self.usage.cpu_ns);
    }

    /// Reads and writes RSS, mapped bytes, transferred bytes and the live bytes of the heap.
    pub fn observe(&mut self, out: &mut Output, now: u64) {
        if self.end.is_some() {
            return;
        }
        // A zombie has no memory, but it still has these counters.
        self.observe_transfers(out, now);
        let Some((rss, mapped)) = proc::memory_of(self.pid) else { return };
        if rss == 0 {
            return; // a zombie
        }
        self.usage.rss = rss;
        let values = [
            (counter::RSS_BYTES, Some(rss)),
            (counter::MAPPED_BYTES, mapped.checked_sub(OWN_MAPPINGS)),
        ];
        self.write_readings(out, now, &values);
        self.observe_heap(out, now);
    }

    /// Writes the live bytes. The time is read after the value, so every block that the value
    /// includes has a record before that time.
    pub fn observe_heap(&self, out: &mut Output, now: u64) {
        let live = self.heap_now().map(|(live, _)| live);
        let now = now.max(out.clock.ns(out.clock.now()));
        self.write_readings(out, now, &[(counter::HEAP_BYTES, live)]);
    }

    /// Writes that a process had transferred nothing when it was forked: it may have read much by the
    /// time of the first reading.
    pub(super) fn begin_transfers_at_zero(&mut self, out: &mut Output, forked_ns: u64) {
        if out.transfers.own(self.pid).is_none() {
            return; // it can't be read
        }
        self.usage.transferred = Some(Transferred::default());
        let zero = [
            counter::READ_BYTES,
            counter::WRITTEN_BYTES,
            counter::STORAGE_READ_BYTES,
            counter::STORAGE_WRITTEN_BYTES,
        ];
        self.write_readings(out, forked_ns, &zero.map(|name| (name, Some(0))));
    }

    /// Writes how many bytes the process itself has read and written, as far as that has changed.
    pub(super) fn observe_transfers(&mut self, out: &mut Output, now: u64) {
        let Some(own) = out.transfers.own(self.pid) else { return };
        let all = self.usage.transferred.map_or(own, |known| largest(known, own));
        let known = self.usage.transferred.replace(all);
        let moved = |of: fn(&Transferred) -> u64| {
            Some(of(&all)).filter(|bytes| known.as_ref().map(of) != Some(*bytes))
        };
        let values = [
            (counter::READ_BYTES, moved(|all| all.read)),
            (counter::WRITTEN_BYTES, moved(|all| all.written)),
            (counter::STORAGE_READ_BYTES, moved(|all| all.storage_read)),
            (counter::STORAGE_WRITTEN_BYTES, moved(|all| all.storage_written)),
        ];
        self.write_readings(out, now, &values);
    }

    /// Writes readings of the process, such as those of its memory, at the time `now`.
    pub(super) fn write_readings(
        &self,
        out: &mut Output,
        now: u64,
        values: &[(&str, Option<u64>)],
    ) {
        let Some(open) = out.files.open.get_mut(self.file) else { return };
        for (name, value) in values {
            if let Some(value) = value {
                let name = open.writer.name(name);
                open.counter(Counter {
                    time_ns: now,
                    process: Some(self.hooks.index),
                    device: None,
                    name,
                    value: *value as f64,
                });
            }
        }
    }

    /// Returns the live bytes and their peak, if they are known.
    fn heap_now(&self) -> Option<(u64, u64)> {
        match self.memory {
            MemoryRecording::Exact => {
                Some((self.hooks.heap.live_bytes, self.hooks.heap.peak_bytes))
            }
            MemoryRecording::Sampled { .. } if !self.counts_live_bytes() => None,
            MemoryRecording::Sampled { .. } => {
                let header = self.hooks.region.header();
                let live = header
                    .live_bytes
                    .load(Relaxed)
                    .wrapping_add(self.hooks.slot_totals().live_delta);
                let live = live.max(0) as u64;
                Some((live, live.max(header.peak_bytes.load(Relaxed).max(0) as u64)))
            }
            MemoryRecording::Off => None,
        }
    }

    /// Whether live bytes are known because every allocation and free of the process was counted.
    /// With `--mem sampled` its threads also count while the program or a schedule has switched
    /// recording off, but not while it is off in the session.
    fn is_balance_known(&self, always_on: bool) -> bool {
        match self.memory {
            MemoryRecording::Off => false,
            MemoryRecording::Exact => self.whole_life && always_on && !self.spans.was_switched,
            MemoryRecording::Sampled { .. } => self.counts_live_bytes(),
        }
    }

    /// Whether the hooks of a process with `--mem sampled` have counted every allocation and free.
    fn counts_live_bytes(&self) -> bool {
        !self.is_late && self.hooks.region.header().is_balanced()
    }

    pub(super) fn write_totals(&mut self, out: &mut Output, now: u64, always_on: bool) {
        let whole = self.is_balance_known(always_on);
        let process = self.hooks.index;
        let row = match self.memory {
            MemoryRecording::Off => return,
            MemoryRecording::Exact => {
                let heap = &self.hooks.heap;
                HeapTotals {
                    time_ns: now,
                    process,
                    allocations: heap.allocations,
                    frees: heap.frees,
                    allocated_bytes: heap.allocated_bytes,
                    live_bytes: whole.then_some(heap.live_bytes),
                    peak_bytes: whole.then_some(heap.peak_bytes),
                    peak_at_ns: whole.then_some(if heap.peak_ns == 0 {
                        self.start_ns
                    } else {
                        heap.peak_ns
                    }),
                }
            }
            MemoryRecording::Sampled { .. } => self.counted_totals(out, now, whole),
        };
        let same =
            self.last_totals.is_some_and(|last| HeapTotals { time_ns: row.time_ns, ..last } == row);
        if !same && let Some(open) = out.files.open.get_mut(self.file) {
            open.writer.totals(row);
            self.last_totals = Some(row);
        }
    }

    /// Returns the sums that the process's threads have counted. The time is read after the values,
    /// so every block that they include has a record before that time.
    fn counted_totals(&mut self, out: &Output, now: u64, whole: bool) -> HeapTotals {
        let header = self.hooks.region.header();
        let (flushed, clock) =
            (header.peak_bytes.load(Acquire).max(0) as u64, header.peak_clock.load(Acquire));
        let known = self.heap_now().filter(|_| whole);
        let totals = self.hooks.slot_totals();
        let time_ns = match self.end {
            Some(_) => now,
            None => now.max(out.clock.ns(out.clock.now())),
        };
        if clock != self.peak.0 {
            self.peak = (clock, out.clock.ns(clock));
        }
        // The clock of the peak is 0 if no thread has added to the region's sum yet, so it is
        // clamped.
        let flushed_ns = self.peak.1.clamp(self.start_ns, time_ns.max(self.start_ns));
        let peak_at_ns = known.map(|(live, peak)| match peak > flushed && live == peak {
            true => time_ns,
            false => flushed_ns,
        });
        HeapTotals {
            time_ns,
            process: self.hooks.index,
            allocations: totals.allocations,
            frees: totals.frees,
            allocated_bytes: totals.allocated_bytes,
            live_bytes: known.map(|known| known.0),
            peak_bytes: known.map(|known| known.1),
            peak_at_ns,
        }
    }
}

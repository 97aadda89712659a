//! Converts events without a duration: marks, memory, counters, arrows, metadata.

use crate::builder::Builder;
use crate::categories::{is_launch_arrow, stream_of};
use crate::error::ImportError;
use crate::event::Event;
use crate::key::Key;
use crate::losses::LossReason;
use crate::number;
use crate::threads::MAIN;
use tprof_trace::hash::fnv1a;
use tprof_trace::model::*;

/// When the pending rows of small tables reach this many bytes, they are written.
const MAX_PENDING_BYTES: usize = 4 << 20;

impl Builder {
    /// Reads an instant: PyTorch's memory events, or a mark.
    pub fn instant(&mut self, mut event: Event<'_>) -> Result<(), ImportError> {
        let Some(time_ns) = self.time(&event) else { return Ok(()) };
        let fields = event.fields();
        let name = event.inner(fields.name);
        if name == b"[memory]" && event.has(Key::Bytes) {
            return self.memory(event, time_ns);
        }
        let pid = event.text(fields.pid);
        // Kineto writes its own marks with a text in place of a pid. No process has it.
        let process = match number::integer(number::unquoted(pid)) {
            Some(_) => Some(self.threads.process(pid, time_ns)),
            None => None,
        };
        self.leave_out(&mut event, Key::EventIndex);
        let scope = event.inner(fields.scope);
        if event.members().next().is_some() || process.is_some() && scope != b"g" && scope != b"p" {
            self.output.tally.count_loss(LossReason::InstantDetails);
        }
        let name = self.output.name(name);
        self.output.writer.mark(Mark { time_ns, process, name, kind: MarkKind::Mark });
        self.small_row()
    }

    /// Reads a CPU sample, which is either an event or an element of the top-level list.
    pub fn sample(&mut self, event: &Event<'_>, is_event: bool) {
        if let Some(time_ns) = self.time(event) {
            self.samples.add(event, (time_ns, is_event), &mut self.threads, &mut self.output);
        }
    }

    /// Writes the pending rows of small tables if there are many.
    fn small_row(&mut self) -> Result<(), ImportError> {
        self.output.tally.kept += 1;
        if self.output.writer.pending_bytes() > MAX_PENDING_BYTES {
            self.output.writer.flush()?;
        }
        Ok(())
    }

    /// Reads a memory event of PyTorch's allocator.
    fn memory(&mut self, mut event: Event<'_>, time_ns: u64) -> Result<(), ImportError> {
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let (process, thread) = self.threads.thread(pid, tid, time_ns, time_ns, &mut self.output);
        let Some(bytes) = event.take_inner(Key::Bytes).and_then(number::integer) else {
            self.output.tally.count_loss(LossReason::MemoryDetails);
            return Ok(());
        };
        // PyTorch's device type 0 is the host.
        let on_host = event.take_u64(Key::DeviceType) == Some(0);
        let device = event.take_u32(Key::DeviceId).filter(|_| !on_host);
        self.leave_out(&mut event, Key::EventIndex);
        let row = DeviceAllocation {
            time_ns,
            process,
            thread,
            allocator: Allocator::Framework,
            free: bytes < 0,
            device,
            address: event.take_u64(Key::Address).unwrap_or(0),
            bytes: Some(bytes.unsigned_abs()),
            kind: if device.is_some() { MemoryKind::Device } else { MemoryKind::Unknown },
            total_allocated_bytes: event.take_u64(Key::AllocatedTotal),
            total_reserved_bytes: event.take_u64(Key::ReservedTotal),
            external: event.take_u64(Key::External),
            ..DeviceAllocation::default()
        };
        self.allocations.push(row, &mut self.output)
    }

    /// Reads a counter: one value for each member of its `args`.
    pub fn counter(&mut self, event: Event<'_>) -> Result<(), ImportError> {
        let Some(time_ns) = self.time(&event) else { return Ok(()) };
        let fields = event.fields();
        let pid = event.text(fields.pid);
        let (process, device) = match event.inner(fields.category) {
            // These counters belong to a device, whose number is in the place of the pid. Kineto
            // writes the first category, and tprof's own export writes the second.
            b"mtia_counters" | b"gpu_counters" => {
                let device = number::unsigned(number::unquoted(pid));
                (None, device.and_then(|device| u32::try_from(device).ok()))
            }
            _ => ((!pid.is_empty()).then(|| self.threads.process(pid, time_ns)), None),
        };
        let name = event.inner(fields.name);
        for (key, value) in event.members() {
            let Some(value) = number::float(number::unquoted(value)) else {
                self.output.tally.count_loss(LossReason::CounterValue);
                continue;
            };
            let name = match key {
                b"" | b"value" => self.output.name(name),
                _ if key == name => self.output.name(name),
                _ => self.output.name(&[name, b" ", key].concat()),
            };
            self.output.writer.counter(Counter { time_ns, process, device, name, value });
            self.small_row()?;
        }
        Ok(())
    }

    /// Reads one end of an arrow.
    pub fn flow(&mut self, event: Event<'_>) -> Result<(), ImportError> {
        let fields = event.fields();
        let (category, name) = (event.inner(fields.category), event.inner(fields.name));
        if is_launch_arrow(category, name) {
            self.output.tally.launch_arrows += 1;
            return Ok(());
        }
        let Some(time_ns) = self.time(&event) else { return Ok(()) };
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let stream = stream_of(number::unquoted(tid));
        let (process, thread) = match stream {
            Some(_) => (MAIN, None),
            None => {
                let output = &mut self.output;
                let (process, thread) = self.threads.thread(pid, tid, time_ns, time_ns, output);
                (process, Some(thread))
            }
        };
        let device = stream.and(number::unsigned(number::unquoted(pid)));
        let row = FlowPoint {
            time_ns,
            process,
            thread,
            device: device.and_then(|device| u32::try_from(device).ok()),
            stream,
            end: match event.inner(fields.phase) {
                b"s" => FlowEnd::Start,
                b"t" => FlowEnd::Step,
                _ => FlowEnd::End,
            },
            id: arrow(event.inner(fields.id)),
            category: self.output.name(category),
            name: self.output.name(name),
        };
        self.flows.push(row, &mut self.output)
    }

    /// Reads metadata: names and display order of processes and threads.
    pub fn metadata(&mut self, mut event: Event<'_>) {
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        match event.inner(fields.name) {
            b"process_name" => {
                let name = event.take_inner(Key::Name).unwrap_or_default();
                self.threads.name_process(pid, name);
            }
            b"thread_name" => {
                let name = event.take_inner(Key::Name).unwrap_or_default();
                let name = self.output.name(name);
                self.threads.name_thread(pid, tid, name);
            }
            kind => self.facts.metadata(kind, &event, &mut self.output),
        }
    }
}

/// Returns an arrow's number. If the id is a text, the number is derived from it.
fn arrow(id: &[u8]) -> u64 {
    let hex = id
        .strip_prefix(b"0x")
        .and_then(|hex| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
    number::unsigned(id).or(hex).unwrap_or_else(|| fnv1a(id))
}

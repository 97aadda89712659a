//! Turns what PyTorch's allocator reports into rows of the trace.

use super::Calls;
use super::note::AllocatorReport;
use serde_json::json;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::calls::Report;

impl Calls {
    /// Whether a device had no memory left since the last call.
    pub fn lacks_memory(&mut self) -> bool {
        let told = std::mem::replace(&mut self.told_out_of_memory, self.times_out_of_memory);
        self.times_out_of_memory > told
    }

    /// Adds a report. A block becomes a row of memory, and a lack of memory an event of the
    /// allocator.
    pub(super) fn reported(
        &mut self,
        report: &AllocatorReport,
        thread: ThreadIndex,
        time_ns: u64,
        writer: &mut TraceWriter,
    ) {
        let AllocatorReport { of, address, bytes, allocated, reserved, device, stack, .. } =
            *report;
        if of == Report::OutOfMemory {
            let args = json!({"allocated": allocated, "reserved": reserved, "thread": thread});
            let order = self.times_out_of_memory;
            self.times_out_of_memory += 1;
            self.out_of_memory.push(AllocatorEvent {
                order,
                time_ns: Some(time_ns),
                process: self.process,
                device: Some(device),
                action: writer.name("oom"),
                bytes: bytes.unsigned_abs(),
                device_free_bytes: report.device_free,
                stack,
                args: writer.name(&args.to_string()),
                ..AllocatorEvent::default()
            });
            // This event is often the last one of a process, so it doesn't wait for others.
            self.first_waiting_ns = Some(0);
            return;
        }
        self.allocations.push(DeviceAllocation {
            time_ns,
            process: self.process,
            thread,
            allocator: Allocator::Framework,
            free: bytes < 0,
            device: Some(device),
            address,
            bytes: Some(bytes.unsigned_abs()),
            kind: MemoryKind::Device,
            total_allocated_bytes: allocated,
            total_reserved_bytes: reserved,
            stack,
            ..DeviceAllocation::default()
        });
    }
}

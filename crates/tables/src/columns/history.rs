//! Defines the columns of the figures of steps that are kept for the whole job.

use tprof_facts::history::{Energy, word};
use tprof_trace::model::{HistoryRow, HistorySource};

use crate::column::{Cell, columns};

/// The figures of a step, or of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepFigures {
    pub row: HistoryRow,
    /// Whether they were computed from recorded events now.
    pub is_computed: bool,
}

impl StepFigures {
    /// Returns a value that only a row with steps has.
    fn of_steps(&self, value: u64) -> Cell<'static> {
        Cell::opt((self.row.steps > 0).then_some(value))
    }
}

fn millionths(value: Option<u64>) -> Cell<'static> {
    value.map_or(Cell::Null, |value| Cell::Float(value as f64 / 1e6))
}

columns! { pub(crate) HISTORY of StepFigures:
    "start_ns" Int "when its first step began, nanoseconds since the run began" |r, c| c.time(r.row.start_ns);
    "duration_ns" Int "time from there to the end of the last step" |r, _| Cell::uint(r.row.duration_ns);
    "process" Id "row of `processes` that made the steps; null of a row without steps" |r, _| match r.row.source {
        HistorySource::None => Cell::Null,
        _ => Cell::uint(r.row.process.into()),
    };
    "source" Text "what names the steps: explicit, profiler, optimizer, loader, or inferred, an estimate; null of a stretch of time without steps" |r, _| match r.row.source {
        HistorySource::None => Cell::Null,
        source => Cell::Text(word(source)),
    };
    "first_step" Int "number of the first step" |r, _| r.of_steps(r.row.first_step);
    "steps" Int "steps; 0 of a stretch of time without steps" |r, _| Cell::uint(r.row.steps);
    "steps_ns" Int "sum of the steps' durations; of a stretch, its length" |r, _| Cell::uint(r.row.steps_ns);
    "shortest_ns" Int "duration of the shortest step" |r, _| r.of_steps(r.row.shortest_ns);
    "median_ns" Int "median duration" |r, _| r.of_steps(r.row.median_ns);
    "longest_ns" Int "duration of the longest step" |r, _| r.of_steps(r.row.longest_ns);
    "longest_step" Int "number of that step" |r, _| r.of_steps(r.row.longest_step);
    "devices" Int "devices that the rank has used so far; null, as the next five, where no work of one was recorded" |r, _| Cell::opt(r.row.devices);
    "busy_ns" Int "time in the steps in which devices ran anything, added up over devices" |r, _| Cell::opt(r.row.busy_ns);
    "compute_ns" Int "time in which they computed" |r, _| Cell::opt(r.row.compute_ns);
    "communication_ns" Int "time in which they communicated" |r, _| Cell::opt(r.row.communication_ns);
    "exposed_communication_ns" Int "the part of that in which they did not compute" |r, _| Cell::opt(r.row.exposed_communication_ns);
    "copied_bytes" Int "bytes of copies and memsets that began in the steps" |r, _| Cell::opt(r.row.copied_bytes);
    "collectives" Int "operations between ranks that began in the steps" |r, _| Cell::opt(r.row.collectives);
    "collective_bytes" Int "their bytes, if those of each are known" |r, _| Cell::opt(r.row.collective_bytes);
    "collective_ns" Int "time in the steps in which the host was in one" |r, _| Cell::opt(r.row.collective_ns);
    "cpu_ns" Int "CPU time of the rank's processes during the row" |r, _| Cell::opt(r.row.cpu_ns);
    "heap_bytes" Int "live bytes of the heaps at its end" |r, _| Cell::opt(r.row.heap_bytes);
    "resident_bytes" Int "resident memory of the processes at its end" |r, _| Cell::opt(r.row.resident_bytes);
    "read_bytes" Int "bytes that the processes read by calls during the row" |r, _| Cell::opt(r.row.read_bytes);
    "written_bytes" Int "bytes that they wrote by calls" |r, _| Cell::opt(r.row.written_bytes);
    "storage_read_bytes" Int "bytes that were read from storage for them" |r, _| Cell::opt(r.row.storage_read_bytes);
    "storage_written_bytes" Int "bytes that were written to storage for them" |r, _| Cell::opt(r.row.storage_written_bytes);
    "device_memory_bytes" Int "memory of the devices in use at its end, by any program" |r, _| Cell::opt(r.row.device_memory_bytes);
    "temperature_celsius" Int "highest temperature of a device" |r, _| Cell::opt(r.row.temperature_celsius);
    "power_watts" Float "mean power draw of the devices, added up" |r, _| r.row.power_milliwatts.map_or(Cell::Null, |power| Cell::Float(power as f64 / 1e3));
    "sm_clock_hz" Int "mean clock of the multiprocessors, of the slowest device" |r, _| Cell::opt(r.row.sm_clock_hz);
    "throttle_reasons" Int "NVML's bits of the reasons for low clocks, of all devices" |r, _| Cell::opt(r.row.throttle_reasons);
    "throttled_ns" Int "time for which the CPU limit of the cgroup kept its tasks off the processors" |r, _| Cell::opt(r.row.throttled_ns);
    "energy_joules" Float "energy that the devices took between beginning and end of the row, added up" |r, _| Energy::of(&r.row).map_or(Cell::Null, |energy| Cell::Float(energy.joules));
    "energy_source" Text "what the energy comes from: counter, of the devices, or power, mean readings by time" |r, _| Energy::of(&r.row).and_then(|energy| energy.sources.words()).map_or(Cell::Null, Cell::Text);
    "sm_active" Float "share of the devices' multiprocessors that were busy; null, as the next two, where no device told it" |r, _| millionths(r.row.sm_active_millionths);
    "tensor_active" Float "share of the time in which tensor cores worked" |r, _| millionths(r.row.tensor_active_millionths);
    "dram_bandwidth_utilization" Float "share of the devices' memory bandwidth in use" |r, _| millionths(r.row.dram_bandwidth_millionths);
    "computed" Bool "whether it was computed from recorded events, without CPU time, because the recording has none or was cut off" |r, _| Cell::Bool(r.is_computed);
}

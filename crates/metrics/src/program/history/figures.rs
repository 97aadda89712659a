//! Lists the figures of rows in which changes are looked for.

use tprof_facts::units;
use tprof_trace::model::HistoryRow;

use super::changes::Effect;

/// A figure of a row. Shares are of the time of the steps, times of several devices added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    StepTime,
    Busy,
    Compute,
    /// Communication while nothing is computed.
    ExposedCommunication,
    /// Copies while no kernel runs.
    Copies,
    /// Share of the steps that a rank waits less in operations between ranks than the others do: they
    /// wait for it.
    Late,
    /// Number of processors that the rank's processes keep busy.
    Cpu,
    Heap,
    Resident,
    DeviceMemory,
    /// Temperature of the hottest device.
    Temperature,
    Power,
    /// Clock of the slowest device.
    Clock,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    Nanoseconds,
    Share,
    Cores,
    Bytes,
    Celsius,
    Watts,
    Hertz,
}

/// Least change of a memory that deserves attention, bytes.
const LEAST_BYTES: f64 = (16_u64 << 20) as f64;

impl Figure {
    /// All figures of a rank by itself.
    pub const OF_RANK: [Figure; 12] = [
        Figure::StepTime,
        Figure::Busy,
        Figure::Compute,
        Figure::ExposedCommunication,
        Figure::Copies,
        Figure::Cpu,
        Figure::Heap,
        Figure::Resident,
        Figure::DeviceMemory,
        Figure::Temperature,
        Figure::Power,
        Figure::Clock,
    ];

    /// Returns the name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Figure::StepTime => "step_time",
            Figure::Busy => "busy",
            Figure::Compute => "compute",
            Figure::ExposedCommunication => "exposed_communication",
            Figure::Copies => "copies",
            Figure::Late => "late",
            Figure::Cpu => "cpu",
            Figure::Heap => "heap",
            Figure::Resident => "resident_memory",
            Figure::DeviceMemory => "device_memory",
            Figure::Temperature => "temperature",
            Figure::Power => "power",
            Figure::Clock => "clock",
        }
    }

    /// Returns the words for readers.
    pub fn words(self) -> &'static str {
        match self {
            Figure::StepTime => "step time",
            Figure::Busy => "device busy",
            Figure::Compute => "device computes",
            Figure::ExposedCommunication => "exposed communication",
            Figure::Copies => "device only copies",
            Figure::Late => "others wait for the rank",
            Figure::Cpu => "processors in use",
            Figure::Heap => "heap",
            Figure::Resident => "RSS",
            Figure::DeviceMemory => "device memory",
            Figure::Temperature => "temperature",
            Figure::Power => "power",
            Figure::Clock => "clock",
        }
    }

    /// Returns the unit of the figure's values.
    pub(super) fn unit(self) -> FigureUnit {
        match self {
            Figure::StepTime => FigureUnit::Nanoseconds,
            Figure::Busy
            | Figure::Compute
            | Figure::ExposedCommunication
            | Figure::Copies
            | Figure::Late => FigureUnit::Share,
            Figure::Cpu => FigureUnit::Cores,
            Figure::Heap | Figure::Resident | Figure::DeviceMemory => FigureUnit::Bytes,
            Figure::Temperature => FigureUnit::Celsius,
            Figure::Power => FigureUnit::Watts,
            Figure::Clock => FigureUnit::Hertz,
        }
    }

    /// Returns the least change that deserves attention.
    pub(super) fn effect(self) -> Effect {
        match self.unit() {
            FigureUnit::Nanoseconds => Effect { share: 0.05, amount: 0.0 },
            FigureUnit::Share => Effect { share: 0.0, amount: 0.05 },
            FigureUnit::Cores => Effect { share: 0.2, amount: 0.2 },
            FigureUnit::Bytes => Effect { share: 0.05, amount: LEAST_BYTES },
            FigureUnit::Celsius => Effect { share: 0.0, amount: 5.0 },
            FigureUnit::Watts => Effect { share: 0.1, amount: 10.0 },
            FigureUnit::Hertz => Effect { share: 0.05, amount: 0.0 },
        }
    }

    /// Returns the figure of a row; `None` if it isn't known, or if the row has no steps and the
    /// figure is one of steps.
    pub(super) fn of(self, row: &HistoryRow) -> Option<f64> {
        let share = |ns: Option<u64>| {
            let devices = row.devices.filter(|_| row.steps_ns > 0)?;
            Some(ns? as f64 / (row.steps_ns as f64 * f64::from(devices)))
        };
        match self {
            Figure::StepTime => (row.steps > 0).then_some(row.median_ns as f64),
            Figure::Busy => share(row.busy_ns),
            Figure::Compute => share(row.compute_ns),
            Figure::ExposedCommunication => share(row.exposed_communication_ns),
            Figure::Copies => share(copies_ns(row)),
            Figure::Cpu => {
                let time_ns = row.duration_ns;
                row.cpu_ns.filter(|_| time_ns > 0).map(|ns| ns as f64 / time_ns as f64)
            }
            Figure::Heap => row.heap_bytes.map(|bytes| bytes as f64),
            Figure::Resident => row.resident_bytes.map(|bytes| bytes as f64),
            Figure::DeviceMemory => row.device_memory_bytes.map(|bytes| bytes as f64),
            Figure::Temperature => row.temperature_celsius.map(|degrees| degrees as f64),
            Figure::Power => row.power_milliwatts.map(|power| power as f64 / 1e3),
            Figure::Clock => row.sm_clock_hz.map(|hz| hz as f64),
            Figure::Late => None,
        }
    }

    /// Returns a value of the figure in words.
    pub(super) fn shown(self, value: f64) -> String {
        let whole = value.max(0.0).round() as u64;
        match self.unit() {
            FigureUnit::Nanoseconds => units::duration(whole),
            FigureUnit::Share => units::percent(value),
            FigureUnit::Cores => format!("{value:.2}"),
            FigureUnit::Bytes => units::bytes(whole),
            FigureUnit::Celsius => format!("{value:.0} C"),
            FigureUnit::Watts => format!("{value:.0} W"),
            FigureUnit::Hertz => format!("{:.0} MHz", value / 1e6),
        }
    }
}

/// Returns the time in which devices only copied, ns.
pub(super) fn copies_ns(row: &HistoryRow) -> Option<u64> {
    let kernels = row.compute_ns?.saturating_add(row.exposed_communication_ns?);
    Some(row.busy_ns?.saturating_sub(kernels))
}

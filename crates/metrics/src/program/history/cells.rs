//! Adds the rows of a rank up by time, in little memory.

use std::collections::BTreeMap;

use tprof_facts::history::{Energy, meeting_ns};
use tprof_trace::model::HistoryRow;

use super::figures::copies_ns;

/// Most cells of a rank. They get wider with the job.
const MOST: u64 = 1024;
/// Least width of a cell, ns.
const LEAST_NS: u64 = 1_000_000_000;

/// A part and its whole. Rows in which either isn't known are left out of both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    of: f64,
    whole: f64,
}

impl Part {
    fn add(&mut self, of: Option<u64>, whole: u64) {
        if let Some(of) = of {
            self.of += of as f64;
            self.whole += whole as f64;
        }
    }

    /// Adds another part and its whole.
    pub fn plus(self, other: Part) -> Part {
        Part { of: self.of + other.of, whole: self.whole + other.whole }
    }

    /// Returns the part as a share of the whole; `None` if nothing is known.
    pub fn share(self) -> Option<f64> {
        (self.whole > 0.0).then(|| self.of / self.whole)
    }

    /// Returns the part; `None` if nothing is known.
    pub fn sum(self) -> Option<f64> {
        (self.whole > 0.0).then_some(self.of)
    }
}

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Beginning of its first row and end of its last one, ns since the run began; `None` without
    /// rows. Rows belong to the cell in which they begin, and may be longer than that.
    pub extent_ns: Option<(u64, u64)>,
    /// Number of steps that began in it.
    pub steps: u64,
    /// Medians of rows, with their numbers of steps.
    pub medians: Vec<(u64, u64)>,
    /// Duration of the longest step.
    pub longest_ns: u64,
    /// Time of devices by what they did, of the time of the steps.
    pub busy: Part,
    pub compute: Part,
    pub exposed: Part,
    pub copies: Part,
    /// Time in operations between ranks, of the time of the steps.
    pub meeting: Part,
    /// CPU time, of the time of the rows.
    pub cpu: Part,
    /// Power by time, mW ns, of the time of the rows.
    pub power: Part,
    /// Energy of the devices; `None` if no row knows it.
    pub energy: Option<Energy>,
    /// What the devices' units did, in millionths by time, of the time of the rows.
    pub sm_active: Part,
    pub tensor_active: Part,
    pub dram_bandwidth: Part,
    pub read: Part,
    pub written: Part,
    /// Memory at the end of the last row that knows it, bytes.
    pub heap_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub device_memory_bytes: Option<u64>,
    /// The highest temperature of a device.
    pub temperature_celsius: Option<u64>,
    pub throttle_reasons: Option<u64>,
    pub throttled: Part,
}

impl Cell {
    fn add(&mut self, begun_ns: u64, row: &HistoryRow) {
        let (steps_ns, time_ns) = (row.steps_ns, row.duration_ns);
        self.extend((begun_ns, begun_ns.saturating_add(time_ns)));
        self.steps += row.steps;
        if row.steps > 0 {
            self.medians.push((row.median_ns, row.steps));
        }
        self.longest_ns = self.longest_ns.max(row.longest_ns);
        let of_devices = steps_ns.saturating_mul(row.devices.unwrap_or(0).into());
        self.busy.add(row.busy_ns, of_devices);
        self.compute.add(row.compute_ns, of_devices);
        self.exposed.add(row.exposed_communication_ns, of_devices);
        self.copies.add(copies_ns(row), of_devices);
        self.meeting.add(meeting_ns(row), steps_ns);
        self.cpu.add(row.cpu_ns, time_ns);
        let by_time = |value: Option<u64>| value.map(|value| value.saturating_mul(time_ns));
        self.power.add(by_time(row.power_milliwatts), time_ns);
        self.sm_active.add(by_time(row.sm_active_millionths), time_ns);
        self.tensor_active.add(by_time(row.tensor_active_millionths), time_ns);
        self.dram_bandwidth.add(by_time(row.dram_bandwidth_millionths), time_ns);
        self.add_energy(Energy::of(row));
        self.read.add(row.read_bytes, time_ns);
        self.written.add(row.written_bytes, time_ns);
        self.throttled.add(row.throttled_ns, time_ns);
        self.heap_bytes = row.heap_bytes.or(self.heap_bytes);
        self.resident_bytes = row.resident_bytes.or(self.resident_bytes);
        self.device_memory_bytes = row.device_memory_bytes.or(self.device_memory_bytes);
        self.temperature_celsius = self.temperature_celsius.max(row.temperature_celsius);
        self.join_reasons(row.throttle_reasons);
    }

    fn extend(&mut self, (from_ns, until_ns): (u64, u64)) {
        let (from, until) = self.extent_ns.unwrap_or((from_ns, until_ns));
        self.extent_ns = Some((from.min(from_ns), until.max(until_ns)));
    }

    fn add_energy(&mut self, more: Option<Energy>) {
        self.energy = self.energy.into_iter().chain(more).reduce(Energy::plus);
    }

    fn join_reasons(&mut self, reasons: Option<u64>) {
        self.throttle_reasons = match (self.throttle_reasons, reasons) {
            (Some(a), Some(b)) => Some(a | b),
            (a, b) => a.or(b),
        };
    }

    /// Joins the cell with a later one of the same rank.
    fn join(&mut self, later: Cell) {
        if let Some(extent_ns) = later.extent_ns {
            self.extend(extent_ns);
        }
        self.steps += later.steps;
        self.medians.extend(later.medians);
        self.longest_ns = self.longest_ns.max(later.longest_ns);
        for (of, other) in [
            (&mut self.busy, later.busy),
            (&mut self.compute, later.compute),
            (&mut self.exposed, later.exposed),
            (&mut self.copies, later.copies),
            (&mut self.meeting, later.meeting),
            (&mut self.cpu, later.cpu),
            (&mut self.power, later.power),
            (&mut self.sm_active, later.sm_active),
            (&mut self.tensor_active, later.tensor_active),
            (&mut self.dram_bandwidth, later.dram_bandwidth),
            (&mut self.read, later.read),
            (&mut self.written, later.written),
            (&mut self.throttled, later.throttled),
        ] {
            *of = of.plus(other);
        }
        self.add_energy(later.energy);
        self.heap_bytes = later.heap_bytes.or(self.heap_bytes);
        self.resident_bytes = later.resident_bytes.or(self.resident_bytes);
        self.device_memory_bytes = later.device_memory_bytes.or(self.device_memory_bytes);
        self.temperature_celsius = self.temperature_celsius.max(later.temperature_celsius);
        self.join_reasons(later.throttle_reasons);
    }

    /// Replaces the medians of rows by their median, which takes less memory.
    fn shrink(&mut self) {
        if let Some(median) = quantile(&mut self.medians, 0.5) {
            self.medians = vec![(median, self.steps)];
        }
    }
}

/// Returns the value that this share of the weights don't exceed. Sorts the values.
pub fn quantile(values: &mut [(u64, u64)], share: f64) -> Option<u64> {
    values.sort_unstable();
    let all: u64 = values.iter().map(|(_, weight)| weight).sum();
    // Of an even number the median is the higher of the two middle values.
    let place = (all as f64 * share).floor().min(all.saturating_sub(1) as f64) as u64;
    let mut before = 0;
    let found = values.iter().find(|(_, weight)| {
        before += weight;
        before > place
    });
    found.map(|(value, _)| *value)
}

/// The rows of a rank, added up by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// Width of a cell, ns: a second, or a power of two of them.
    width_ns: u64,
    /// Cells by the number of their place since the run began.
    cells: BTreeMap<u64, Cell>,
}

impl Cells {
    /// Adds up rows, with the times since the run began at which they begin.
    pub fn of<'r>(rows: impl Iterator<Item = (u64, &'r HistoryRow)> + Clone) -> Cells {
        let times = || rows.clone().map(|(time_ns, _)| time_ns);
        let span_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let mut width_ns = LEAST_NS;
        while span_ns / width_ns >= MOST {
            width_ns *= 2;
        }
        let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
        for (time_ns, row) in rows {
            cells.entry(time_ns / width_ns).or_default().add(time_ns, row);
        }
        if width_ns > LEAST_NS {
            cells.values_mut().for_each(Cell::shrink);
        }
        Cells { width_ns, cells }
    }

    /// Returns the width of a cell, ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Returns the first and the last place with rows.
    pub fn places(&self) -> Option<(u64, u64)> {
        Some((*self.cells.first_key_value()?.0, *self.cells.last_key_value()?.0))
    }

    /// Joins cells so that each is this wide: a multiple of the width.
    pub fn widened(&self, width_ns: u64) -> Cells {
        let times = (width_ns / self.width_ns.max(1)).max(1);
        let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
        for (place, cell) in &self.cells {
            cells.entry(place / times).or_default().join(cell.clone());
        }
        Cells { width_ns, cells }
    }

    /// Returns the cell at a place.
    pub fn at(&self, place: u64) -> Option<&Cell> {
        self.cells.get(&place)
    }

    /// Returns all cells with their places.
    pub fn each(&self) -> impl Iterator<Item = (u64, &Cell)> {
        self.cells.iter().map(|(place, cell)| (*place, cell))
    }
}

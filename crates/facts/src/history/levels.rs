//! Remembers readings of quantities, and tells what they were in a stretch of time.

use std::collections::{BTreeMap, VecDeque};

use tprof_trace::model::{ProcessIndex, counter};

/// A reading older than this says nothing about now: its reader may hang.
const STALE_NS: u64 = 60_000_000_000;
/// Longest time for which a mean holds: the recorder writes one that doesn't change once a second,
/// and reads it at least every 12 s.
const HOLDS_NS: u64 = 25_000_000_000;
/// Largest number of readings of one quantity that are remembered. Beyond it every second one is
/// dropped.
const MOST: usize = 1 << 16;

/// A quantity that is read from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gauge {
    Heap,
    Resident,
    Read,
    Written,
    StorageRead,
    StorageWritten,
    Throttled,
    DeviceMemory,
    Temperature,
    Power,
    Clock,
    ThrottleReasons,
    Energy,
    SmActive,
    TensorActive,
    DramBandwidth,
    /// CPU time of a process so far; it isn't a counter of the file.
    Cpu,
}

impl Gauge {
    /// Returns the quantity that a counter with this name is.
    pub fn of(name: &str) -> Option<Gauge> {
        Some(match name {
            counter::HEAP_BYTES => Gauge::Heap,
            counter::RSS_BYTES => Gauge::Resident,
            counter::READ_BYTES => Gauge::Read,
            counter::WRITTEN_BYTES => Gauge::Written,
            counter::STORAGE_READ_BYTES => Gauge::StorageRead,
            counter::STORAGE_WRITTEN_BYTES => Gauge::StorageWritten,
            counter::CGROUP_THROTTLED_NS => Gauge::Throttled,
            counter::GPU_MEMORY_BYTES => Gauge::DeviceMemory,
            counter::GPU_TEMPERATURE => Gauge::Temperature,
            counter::GPU_POWER => Gauge::Power,
            counter::GPU_SM_CLOCK => Gauge::Clock,
            counter::GPU_THROTTLE => Gauge::ThrottleReasons,
            counter::GPU_ENERGY => Gauge::Energy,
            counter::GPU_SM_ACTIVE => Gauge::SmActive,
            counter::GPU_TENSOR_ACTIVE => Gauge::TensorActive,
            counter::GPU_DRAM_BANDWIDTH => Gauge::DramBandwidth,
            _ => return None,
        })
    }
}

/// What a quantity is read of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GaugeOwner {
    Process(ProcessIndex),
    Device(u32),
    Host,
}

/// The readings of one quantity.
#[derive(Debug, Default)]
struct Series {
    /// Time, ns, and value.
    readings: VecDeque<(u64, f64)>,
    /// Time when its process ended, ns.
    ended_ns: Option<u64>,
}

impl Series {
    fn add(&mut self, time_ns: u64, value: f64) {
        if value.is_infinite() || self.readings.back().is_some_and(|last| last.0 > time_ns) {
            return;
        }
        if self.readings.len() >= MOST {
            let mut at = 0;
            self.readings.retain(|(_, value)| {
                at += 1;
                at % 2 == 0 || value.is_nan()
            });
        }
        self.readings.push_back((time_ns, value));
    }

    /// Returns how many readings there are up to a time.
    fn until(&self, time_ns: u64) -> usize {
        self.readings.partition_point(|(at, _)| *at <= time_ns)
    }

    /// Returns the last reading up to a time.
    fn last(&self, time_ns: u64) -> Option<(u64, f64)> {
        self.readings.get(self.until(time_ns).checked_sub(1)?).copied()
    }

    /// Returns the value at a time, unless nobody read it for long or its process has ended.
    fn at(&self, time_ns: u64) -> Option<f64> {
        if self.ended_ns.is_some_and(|ended| ended <= time_ns) {
            return None;
        }
        let (read_ns, value) = self.last(time_ns)?;
        (time_ns - read_ns <= STALE_NS).then_some(value)
    }

    /// Returns the readings in a stretch of time; of none the last one before.
    fn within(&self, start_ns: u64, end_ns: u64) -> Vec<f64> {
        let (from, to) = (self.until(start_ns), self.until(end_ns));
        match from < to {
            true => self.readings.range(from..to).map(|(_, value)| *value).collect(),
            false => self.at(end_ns).into_iter().collect(),
        }
    }

    /// Returns by how much a quantity that only grows has grown; `None` before the first reading.
    /// `is_even`: it grew evenly between two readings.
    fn grown(&self, start_ns: u64, end_ns: u64, is_even: bool) -> Option<f64> {
        let first = *self.readings.front()?;
        if first.0 > end_ns {
            return None;
        }
        let value = |time_ns: u64| {
            let (before, after) = (self.last(time_ns), self.readings.get(self.until(time_ns)));
            match (before, after) {
                (Some(a), Some(b)) if is_even => {
                    let share = (time_ns - a.0) as f64 / (b.0 - a.0).max(1) as f64;
                    a.1 + (b.1 - a.1) * share
                }
                (Some(a), _) => a.1,
                (None, _) => first.1,
            }
        };
        Some((value(end_ns) - value(start_ns)).max(0.0))
    }

    /// Returns by how much a quantity has grown that grows evenly between two readings; `None`
    /// unless it was read before the beginning and after the end.
    fn grown_between(&self, start_ns: u64, end_ns: u64) -> Option<f64> {
        let is_read_before = self.readings.front()?.0 <= start_ns;
        let is_read_after = self.readings.back()?.0 >= end_ns;
        (is_read_before && is_read_after).then(|| self.grown(start_ns, end_ns, true))?
    }

    /// Returns the mean by time of a quantity whose value holds until the next reading, and the time
    /// in which it is known, ns. Of a reading that crosses the beginning or the end, that part
    /// counts which is inside.
    fn held(&self, start_ns: u64, end_ns: u64) -> (f64, u64) {
        let first = self.until(start_ns).saturating_sub(1);
        let (mut area, mut time_ns) = (0.0, 0);
        for (now, next) in self.readings.range(first..).zip(self.readings.range(first..).skip(1)) {
            if now.0 >= end_ns {
                break;
            }
            // Nobody knows what was in the time in which it wasn't read.
            let is_gap = next.0 - now.0 > HOLDS_NS || now.1.is_nan();
            let held_ns = next.0.min(end_ns).saturating_sub(now.0.max(start_ns));
            if !is_gap {
                area += now.1 * held_ns as f64;
                time_ns += held_ns;
            }
        }
        (area / time_ns.max(1) as f64, time_ns)
    }

    fn forget(&mut self, before_ns: u64) {
        // The last reading before that time tells the value at it.
        while self.readings.get(1).is_some_and(|next| next.0 <= before_ns) {
            self.readings.pop_front();
        }
    }
}

/// The readings of all quantities of a rank.
#[derive(Debug, Default)]
pub(super) struct Levels {
    all: BTreeMap<(Gauge, GaugeOwner), Series>,
}

impl Levels {
    /// Adds a reading. Of a mean, a value that isn't a number says that nothing is known from then on.
    pub fn add(&mut self, gauge: Gauge, owner: GaugeOwner, time_ns: u64, value: f64) {
        let is_mean = [Gauge::SmActive, Gauge::TensorActive, Gauge::DramBandwidth].contains(&gauge);
        if value.is_nan() && !is_mean {
            return;
        }
        self.all.entry((gauge, owner)).or_default().add(time_ns, value);
    }

    /// Notes the end of a process.
    pub fn ended(&mut self, process: ProcessIndex, end_ns: u64) {
        for (_, series) in
            self.all.iter_mut().filter(|(key, _)| key.1 == GaugeOwner::Process(process))
        {
            series.ended_ns = Some(end_ns);
        }
    }

    fn of(&self, gauge: Gauge) -> impl Iterator<Item = &Series> {
        let all = self.all.range((gauge, GaugeOwner::Process(0))..=(gauge, GaugeOwner::Host));
        all.map(|(_, series)| series)
    }

    /// Returns the sum of the values at a time, or, if all processes have ended by then, just before
    /// the last one ended.
    pub fn sum_at(&self, gauge: Gauge, time_ns: u64) -> Option<u64> {
        let ends = || self.of(gauge).map(|series| series.ended_ns.unwrap_or(u64::MAX));
        let last_ns = ends().max().map_or(time_ns, |end_ns| time_ns.min(end_ns.saturating_sub(1)));
        sum(self.of(gauge).filter_map(|series| series.at(last_ns)))
    }

    /// Returns by how much all have grown together.
    pub fn grown(&self, gauge: Gauge, start_ns: u64, end_ns: u64) -> Option<u64> {
        let is_even = gauge == Gauge::Cpu;
        sum(self.of(gauge).filter_map(|series| series.grown(start_ns, end_ns, is_even)))
    }

    /// Returns by how much the energy of all devices has grown together; `None` unless that is known
    /// of each device.
    pub fn energy(&self, (start_ns, end_ns): (u64, u64)) -> Option<f64> {
        let is_of_all = self.of(Gauge::Power).count() <= self.of(Gauge::Energy).count();
        let grown = self.of(Gauge::Energy).map(|series| series.grown_between(start_ns, end_ns));
        let sum = grown.reduce(|a, b| Some(a? + b?))?;
        sum.filter(|_| is_of_all)
    }

    /// Returns the mean over devices and time of a quantity whose value holds until the next
    /// reading, multiplied by `scale`; `None` unless it is known for at least half of the time.
    pub fn held_mean(&self, gauge: Gauge, time: (u64, u64), scale: f64) -> Option<u64> {
        let (mut sum, mut known_ns, mut count) = (0.0, 0, 0);
        for (mean, time_ns) in self.of(gauge).map(|series| series.held(time.0, time.1)) {
            sum += mean * time_ns as f64;
            known_ns += time_ns;
            count += 1;
        }
        let is_enough = known_ns > 0 && known_ns * 2 >= (time.1 - time.0) * count;
        is_enough.then(|| whole(sum / known_ns as f64 * scale))
    }

    /// Returns the sum of the means in a stretch of time, multiplied by `scale`.
    pub fn sum_of_means(&self, gauge: Gauge, time: (u64, u64), scale: f64) -> Option<u64> {
        sum(self.means(gauge, time).map(|mean| mean * scale))
    }

    /// Returns the lowest mean in a stretch of time.
    pub fn least_mean(&self, gauge: Gauge, time: (u64, u64)) -> Option<u64> {
        self.means(gauge, time).reduce(f64::min).map(whole)
    }

    fn means(&self, gauge: Gauge, (start_ns, end_ns): (u64, u64)) -> impl Iterator<Item = f64> {
        let readings = self.of(gauge).map(move |series| series.within(start_ns, end_ns));
        let known = readings.filter(|readings| !readings.is_empty());
        known.map(|readings| readings.iter().sum::<f64>() / readings.len() as f64)
    }

    /// Returns all readings in a stretch of time, joined by `join`.
    pub fn joined(
        &self,
        gauge: Gauge,
        (start_ns, end_ns): (u64, u64),
        join: fn(u64, u64) -> u64,
    ) -> Option<u64> {
        let all = self.of(gauge).flat_map(|series| series.within(start_ns, end_ns));
        all.map(whole).reduce(join)
    }

    /// Forgets readings that no later stretch needs.
    pub fn forget(&mut self, before_ns: u64) {
        self.all.retain(|_, series| {
            series.forget(before_ns);
            series.ended_ns.is_none_or(|ended| ended > before_ns)
        });
    }
}

fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

fn sum(values: impl Iterator<Item = f64>) -> Option<u64> {
    values.fold(None, |sum: Option<f64>, value| Some(sum.unwrap_or(0.0) + value)).map(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn values_are_those_of_live_processes_and_not_stale() {
        let mut levels = Levels::default();
        for process in 0..2 {
            let owner = GaugeOwner::Process(process);
            levels.add(Gauge::Resident, owner, S, 10.0);
            levels.add(Gauge::Resident, owner, 3 * S, 30.0);
        }
        let at = |levels: &Levels, time_ns| levels.sum_at(Gauge::Resident, time_ns);
        assert_eq!(at(&levels, S - 1), None);
        assert_eq!((at(&levels, 2 * S), at(&levels, 4 * S)), (Some(20), Some(60)));
        levels.ended(1, 4 * S);
        assert_eq!((at(&levels, 3 * S), at(&levels, 4 * S)), (Some(60), Some(30)));
        assert_eq!(at(&levels, 100 * S), None, "stale");
        levels.forget(5 * S);
        assert_eq!(levels.all.len(), 1);
        assert_eq!(at(&levels, 5 * S), Some(30));
        // The row in which the last process ends has what it held until then.
        levels.ended(0, 6 * S);
        assert_eq!(at(&levels, 7 * S), Some(30));
    }

    #[test]
    fn cpu_time_grows_evenly_and_bytes_when_they_are_read() {
        let mut levels = Levels::default();
        for gauge in [Gauge::Cpu, Gauge::Read] {
            levels.add(gauge, GaugeOwner::Process(0), 10, 100.0);
            levels.add(gauge, GaugeOwner::Process(0), 20, 200.0);
        }
        assert_eq!(levels.grown(Gauge::Cpu, 12, 17), Some(50));
        assert_eq!(levels.grown(Gauge::Read, 12, 17), Some(0));
        assert_eq!(levels.grown(Gauge::Read, 12, 20), Some(100));
        assert_eq!(levels.grown(Gauge::Cpu, 0, 99), Some(100));
        assert_eq!(levels.grown(Gauge::Cpu, 0, 9), None);
        assert_eq!(levels.grown(Gauge::Written, 0, 9), None);
    }

    #[test]
    fn energy_is_that_of_all_devices_or_unknown() {
        let mut levels = Levels::default();
        let mut add = |device, at, joules| {
            levels.add(Gauge::Energy, GaugeOwner::Device(device), at * S, joules);
            levels.energy((2 * S, 4 * S))
        };
        add(0, 1, 1000.0);
        assert_eq!(add(0, 3, 1400.0), None, "it was not read after the end");
        assert_eq!(add(0, 5, 1600.0), Some(300.0));
        // The energy of a second device isn't known from the beginning on.
        add(1, 3, 10.0);
        assert_eq!(add(1, 5, 20.0), None);
        levels.add(Gauge::Power, GaugeOwner::Device(0), S, 300.0);
        assert_eq!(levels.energy((3 * S, 4 * S)), Some(105.0));
        for device in 1..3 {
            levels.add(Gauge::Power, GaugeOwner::Device(device), S, 300.0);
        }
        assert_eq!(levels.energy((3 * S, 4 * S)), None, "the third has only power");
    }

    #[test]
    fn means_count_by_the_time_for_which_they_hold() {
        let mut levels = Levels::default();
        for (at, value) in [(1, 0.2), (2, 0.8), (5, 0.5), (60, 1.0), (61, 1.0)] {
            levels.add(Gauge::SmActive, GaugeOwner::Device(0), at * S, value);
        }
        let mean = |levels: &Levels, from, until| {
            levels.held_mean(Gauge::SmActive, (from * S, until * S), 1000.0)
        };
        assert_eq!((mean(&levels, 1, 5), mean(&levels, 2, 4)), (Some(650), Some(800)));
        assert_eq!(mean(&levels, 0, 2), Some(200), "known of half of the time");
        assert_eq!((mean(&levels, 5, 9), mean(&levels, 61, 62)), (None, None));
        for (at, value) in [(1, 0.0), (2, 0.0), (5, 0.0)] {
            levels.add(Gauge::SmActive, GaugeOwner::Device(1), at * S, value);
        }
        assert_eq!(mean(&levels, 1, 5), Some(325));
        assert_eq!(levels.held_mean(Gauge::TensorActive, (S, 5 * S), 1000.0), None);
    }

    #[test]
    fn readings_of_devices_are_joined() {
        let mut levels = Levels::default();
        for (device, values) in [[300.0, 400.0], [100.0, 200.0]].into_iter().enumerate() {
            for (at, value) in (1..).zip(values) {
                for gauge in [Gauge::Power, Gauge::Temperature, Gauge::Clock] {
                    levels.add(gauge, GaugeOwner::Device(device as u32), at * S, value);
                }
            }
        }
        assert_eq!(levels.sum_of_means(Gauge::Power, (0, 2 * S), 1000.0), Some(500_000));
        assert_eq!(levels.joined(Gauge::Temperature, (0, 2 * S), u64::max), Some(400));
        assert_eq!(levels.least_mean(Gauge::Clock, (0, 2 * S)), Some(150));
        assert_eq!(levels.least_mean(Gauge::Clock, (3 * S, 4 * S)), Some(200));
        assert_eq!(levels.joined(Gauge::ThrottleReasons, (0, S), |a, b| a | b), None);
    }
}

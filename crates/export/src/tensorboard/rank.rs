//! Writes the event file of one rank: curves over its steps and over time, and histograms.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use tprof_facts::labels;
use tprof_facts::steps::{self, StepNames, StepRange, StepSource, Steps};
use tprof_facts::{Step, Zero};
use tprof_trace::TraceFile;
use tprof_trace::model::{
    DeviceAllocation, KernelOutline, MemoryRecording, ProcessIndex, SpanOutline, counter,
};

use super::analysis::{CounterKey, Figure, RankFigures, StepFigures};
use super::event_times::{at_step, at_time, start_s, wall_s};
use super::events::{EventFile, EventTime, Tag, code};
use super::histogram::{Durations, Histogram};
use super::program_histograms::{self, SkippedHistograms};
use super::progress::Extent;
use super::series::{Series, series, unique_name};
use super::{graph, peaks, throughput};
use crate::OpenRank;
use crate::counters::{self, Downsampler, POINTS, stretch_ns};

/// Largest number of histograms over the steps of a rank.
const MOST_HISTOGRAMS: usize = 50;
/// Smallest number of steps that share a histogram.
const LEAST_STEPS: usize = 10;
const NS_PER_MS: f64 = 1e6;

/// A rank whose event file is being written.
pub(super) struct RankLog<'a, W> {
    part: &'a OpenRank<'a>,
    zero: Zero,
    /// Steps of the process with the most steps, in order of time.
    steps: Vec<Step>,
    /// The process of these steps. Without steps, the first process.
    process: Option<ProcessIndex>,
    /// Whether the steps were inferred.
    pub steps_inferred: bool,
    extent: Extent,
    file: EventFile<W>,
}

/// Data that the event file of a rank lacks.
#[derive(Debug, Default)]
pub(super) struct MissingData {
    /// Number of values that do not fit a 32-bit float.
    pub wide: u64,
    /// Histograms of the program that were skipped.
    pub own: SkippedHistograms,
    /// Number of nodes that the model's graph lacks.
    pub nodes: u64,
}

impl<'a, W: Write> RankLog<'a, W> {
    /// Prepares to write a rank. `extent` selects the part of its data.
    pub fn new(
        part: &'a OpenRank<'a>,
        zero: Zero,
        extent: Extent,
        file: EventFile<W>,
    ) -> RankLog<'a, W> {
        let found = match extent {
            Extent::SoFar => named_steps(&part.trace),
            Extent::Whole | Extent::Rest => steps::of_file(&part.trace, part.steps_from),
        };
        let steps_inferred = found.are_inferred();
        let mut steps = found.all;
        let mut counts: BTreeMap<ProcessIndex, usize> = BTreeMap::new();
        steps.iter().for_each(|step| *counts.entry(step.process).or_default() += 1);
        let most = counts.iter().rev().max_by_key(|(_, count)| **count);
        let process = most.map(|(process, _)| *process);
        steps.retain(|step| {
            let is_settled = extent != Extent::SoFar || step.end_ns <= part.window.to_ns;
            let is_wanted = is_settled && part.window.touches(step.start_ns, step.end_ns);
            Some(step.process) == process && is_wanted
        });
        let process = process.or(part.trace.processes().first().map(|row| row.process));
        RankLog { part, zero, steps, process, steps_inferred, extent, file }
    }

    /// Writes all data of the rank.
    pub fn write(mut self, figures: &RankFigures) -> io::Result<(EventFile<W>, MissingData)> {
        let all = series(self.part, self.process, self.file.names());
        self.step_times(figures)?;
        if self.extent == Extent::SoFar {
            self.heaps()?;
            self.over_time(&all)?;
            // Histograms after the last step are not written yet, because their step is not known.
            let settled_ns = self.steps.last().map_or(0, |step| step.end_ns);
            let own = self.own_histograms(settled_ns)?;
            let wide = self.file.left_out;
            return Ok((self.file, MissingData { wide, own, nodes: 0 }));
        }
        self.throughput(&all)?;
        self.peaks(&all)?;
        self.counters_by_step(figures, &all)?;
        self.heaps()?;
        self.device_memory()?;
        self.over_time(&all)?;
        self.step_histograms()?;
        self.kernel_histograms()?;
        let own = self.own_histograms(u64::MAX)?;
        let mut nodes = 0;
        if let Some(graph) = graph::of(self.part) {
            self.file.graph(start_s(self.part, self.zero), &graph.encoded)?;
            nodes = graph.left_out;
        }
        let wide = self.file.left_out;
        Ok((self.file, MissingData { wide, own, nodes }))
    }

    /// Writes histograms that the program records itself.
    fn own_histograms(&mut self, until_ns: u64) -> io::Result<SkippedHistograms> {
        program_histograms::write(
            self.part,
            self.zero,
            self.process,
            &self.steps,
            until_ns,
            &mut self.file,
        )
    }

    /// Writes step times, and device time by purpose.
    fn step_times(&mut self, figures: &RankFigures) -> io::Result<()> {
        let by_step: HashMap<(u64, u64), &StepFigures> =
            figures.steps.iter().map(|step| ((step.number, step.start_ns), step)).collect();
        let time = tag("step/step_time_ms", "time of the step on the host, milliseconds");
        for step in &self.steps {
            let at = at_step(self.zero, self.part, step);
            self.file.scalar(&time, at, millis(step))?;
            let figures = by_step.get(&(step.number, self.part.since_start(step.start_ns)));
            for (figure, value) in figures.iter().flat_map(|step| &step.values) {
                let (name, about, scale) = named(*figure);
                self.file.scalar(&tag(&format!("step/{name}"), about), at, value / scale)?;
            }
        }
        Ok(())
    }

    fn throughput(&mut self, all: &BTreeMap<CounterKey, Series>) -> io::Result<()> {
        let mut taken = HashSet::new();
        for series in all.values().filter(|series| series.is_of(self.process)) {
            let Some(unit) = throughput::unit(&series.counter) else { continue };
            let name = unique_name(format!("step/{unit}_per_s"), &mut taken);
            let about = format!("by the counter {}, of the step's time", code(&series.name));
            let tag = Tag { name, about };
            for (place, rate) in throughput::rates(&series.counter, &series.readings, &self.steps) {
                self.file.scalar(&tag, at_step(self.zero, self.part, &self.steps[place]), rate)?;
            }
        }
        Ok(())
    }

    /// Writes the peak memory of each step, for the process that runs the steps.
    fn peaks(&mut self, all: &BTreeMap<CounterKey, Series>) -> io::Result<()> {
        let Some(process) = self.process.filter(|_| !self.steps.is_empty()) else { return Ok(()) };
        let heap = peaks::heap(self.part, process, &self.steps);
        self.peak("heap_bytes", "highest live heap bytes in the step", &heap)?;
        for (device, of_device) in peaks::devices(self.part, process, &self.steps) {
            let name = format!("device_memory_bytes/{}", labels::device(device));
            let about = "highest bytes in the step that the framework's allocator had given out";
            self.peak(&name, about, &of_device)?;
        }
        let resident = [counter::RSS_BYTES, counter::PSS_BYTES];
        for series in all.values().filter(|series| series.process == Some(process)) {
            if resident.contains(&series.counter.as_str()) {
                let highest = peaks::readings(&series.readings, &self.steps);
                self.peak(&series.name, "highest reading in the step", &highest)?;
            }
        }
        Ok(())
    }

    fn peak(&mut self, name: &str, about: &str, highest: &[(usize, u64)]) -> io::Result<()> {
        let tag = tag(&format!("step_peak/{name}"), about);
        for (place, bytes) in highest {
            let at = at_step(self.zero, self.part, &self.steps[*place]);
            self.file.scalar(&tag, at, *bytes as f64)?;
        }
        Ok(())
    }

    /// Writes the mean of each counter during each step.
    fn counters_by_step(
        &mut self,
        figures: &RankFigures,
        all: &BTreeMap<CounterKey, Series>,
    ) -> io::Result<()> {
        let by_number: BTreeMap<u64, &Step> =
            self.steps.iter().map(|step| (step.number, step)).collect();
        for row in &figures.counters {
            let (Some(series), Some(step)) = (all.get(&row.counter), by_number.get(&row.step))
            else {
                continue;
            };
            let tag = tag(&format!("step_mean/{}", series.name), "mean over the step's time");
            self.file.scalar(&tag, at_step(self.zero, self.part, step), row.mean)?;
        }
        Ok(())
    }

    /// Writes live heap bytes over time for each process. If every event was recorded, there are
    /// too many points for a growing file, so this waits until the run has ended.
    fn heaps(&mut self) -> io::Result<()> {
        let (part, zero, is_whole) = (self.part, self.zero, self.extent == Extent::Whole);
        if self.extent != Extent::SoFar {
            let mut tags: BTreeMap<ProcessIndex, Tag> = BTreeMap::new();
            counters::heap(&part.trace, self.stretch_ns(), |of, time_ns, bytes| {
                if !part.window.holds(time_ns) || !is_whole && !is_exact(part, of) {
                    return Ok(());
                }
                let tag = match tags.get(&of) {
                    Some(tag) => tag,
                    None => &*tags.entry(of).or_insert(self.heap_tag(of)),
                };
                self.file.scalar(tag, at_time(zero, part, time_ns), bytes as f64)
            })?;
        }
        if is_whole {
            return Ok(());
        }
        let mut readings: BTreeMap<ProcessIndex, Vec<(u64, f64)>> = BTreeMap::new();
        for row in part.trace.totals().iter().filter(|row| part.window.holds(row.time_ns)) {
            if let Some(bytes) = row.live_bytes.filter(|_| !is_exact(part, row.process)) {
                readings.entry(row.process).or_default().push((row.time_ns, bytes as f64));
            }
        }
        for (process, readings) in readings {
            let tag = self.heap_tag(process);
            for (time_ns, bytes) in self.of_seconds(&readings, true) {
                self.file.scalar(&tag, at_time(zero, part, time_ns), bytes)?;
            }
        }
        Ok(())
    }

    /// Returns the tag of the heap curve of a process.
    fn heap_tag(&mut self, process: ProcessIndex) -> Tag {
        let is_primary = Some(process) == self.process;
        let key =
            CounterKey { name: counter::HEAP_BYTES.to_owned(), pid: Some(process), device: None };
        let trace = &self.part.trace;
        let names = self.file.names();
        if !names.contains_key(&key) {
            let mut taken: HashSet<String> = names.values().cloned().collect();
            let name = match is_primary {
                true => counter::HEAP_BYTES.to_owned(),
                false => {
                    let process = labels::process(trace, process, labels::Ids::LeftOut);
                    format!("{}/{process}", counter::HEAP_BYTES)
                }
            };
            names.insert(key.clone(), unique_name(name, &mut taken));
        }
        tag(&format!("time/{}", names[&key]), "live heap bytes")
    }

    /// Writes bytes in use and bytes reserved on each device over time, as the framework's
    /// allocator counts them.
    fn device_memory(&mut self) -> io::Result<()> {
        let (part, zero, stretch_ns) = (self.part, self.zero, self.stretch_ns());
        let mut curves: BTreeMap<(bool, ProcessIndex, u32), (Tag, Downsampler)> = BTreeMap::new();
        let mut taken = HashSet::new();
        for row in part
            .trace
            .in_order::<DeviceAllocation>(part.window.from_ns, part.window.to_ns)
            .flatten()
        {
            let Some(device) = row.device else { continue };
            let totals = [row.total_allocated_bytes, row.total_reserved_bytes];
            for (held, bytes) in [false, true].into_iter().zip(totals) {
                let Some(bytes) = bytes else { continue };
                let (tag, thin) = curves.entry((held, row.process, device)).or_insert_with(|| {
                    let (what, about) = match held {
                        false => (
                            "device_memory_bytes",
                            "bytes that the framework's allocator has given out",
                        ),
                        true => (
                            "device_memory_held_bytes",
                            "bytes that the framework's allocator holds",
                        ),
                    };
                    let name = format!("time/{what}/{}", labels::device(device));
                    let tag = Tag { name: unique_name(name, &mut taken), about: about.to_owned() };
                    (tag, Downsampler::new(stretch_ns))
                });
                if let Some((time_ns, bytes)) = thin.point(row.time_ns, bytes) {
                    self.file.scalar(tag, at_time(zero, part, time_ns), bytes as f64)?;
                }
            }
        }
        for (tag, thin) in curves.into_values() {
            for (time_ns, bytes) in thin.rest() {
                self.file.scalar(&tag, at_time(zero, part, time_ns), bytes as f64)?;
            }
        }
        Ok(())
    }

    /// Writes counters as they were read. If a counter has more readings than a curve has points,
    /// one reading per stretch is written: the highest for bytes, and the last for other counters.
    fn over_time(&mut self, all: &BTreeMap<CounterKey, Series>) -> io::Result<()> {
        let stretch_ns = self.stretch_ns();
        for series in all.values() {
            let tag = tag(&format!("time/{}", series.name), "as it was read");
            let in_bytes = series.counter.ends_with("_bytes");
            let readings = match self.extent {
                Extent::SoFar | Extent::Rest => self.of_seconds(&series.readings, in_bytes),
                Extent::Whole if series.readings.len() as u64 <= POINTS => series.readings.clone(),
                Extent::Whole if in_bytes => highest(&series.readings, stretch_ns),
                Extent::Whole => last(&series.readings, stretch_ns),
            };
            for (time_ns, value) in readings {
                self.file.scalar(&tag, at_time(self.zero, self.part, time_ns), value)?;
            }
        }
        Ok(())
    }

    /// Selects one reading per second: the highest for bytes, and the last for other counters. So
    /// the reading of a past second never changes.
    fn of_seconds(&self, readings: &[(u64, f64)], in_bytes: bool) -> Vec<(u64, f64)> {
        let second = |reading: &(u64, f64)| self.part.since_start(reading.0) / 1_000_000_000;
        let of_second = |readings: &[(u64, f64)]| match in_bytes {
            true => readings.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)),
            false => readings.last().copied(),
        };
        readings.chunk_by(|a, b| second(a) == second(b)).filter_map(of_second).collect()
    }

    /// Writes histograms of step times. Each histogram has the same number of steps.
    fn step_histograms(&mut self) -> io::Result<()> {
        let tag =
            tag("step_time_ms", "times of consecutive steps, milliseconds; the last one's number");
        for group in groups(&self.steps) {
            let times: Vec<f64> = group.iter().map(millis).collect();
            if let (Some(of), Some(last)) = (Histogram::of(&times), group.last()) {
                self.file.histogram(&tag, at_step(self.zero, self.part, last), &of)?;
            }
        }
        Ok(())
    }

    /// Writes histograms of kernel durations, one for each group of steps. A kernel counts for the
    /// last group that began before it.
    fn kernel_histograms(&mut self) -> io::Result<()> {
        let (part, zero) = (self.part, self.zero);
        let tag = tag(
            "kernel_duration_us",
            "durations of the kernels of consecutive steps, microseconds",
        );
        let kernels = part.trace.blocks::<KernelOutline>().flatten();
        let end_ns = |kernel: &KernelOutline| kernel.start_ns.saturating_add(kernel.duration_ns);
        let kernels = kernels.filter(|kernel| part.window.touches(kernel.start_ns, end_ns(kernel)));
        let groups: Vec<(u64, EventTime)> = groups(&self.steps)
            .filter_map(|group| Some((group.first()?.start_ns, at_step(zero, part, group.last()?))))
            .collect();
        let mut durations = vec![Durations::new(); groups.len().max(1)];
        let mut last_ns = 0;
        for kernel in kernels {
            last_ns = last_ns.max(end_ns(&kernel));
            let after = groups.partition_point(|(start_ns, _)| *start_ns <= kernel.start_ns);
            // Kernels before the first step belong to no group.
            let group = match after {
                0 if groups.is_empty() => 0,
                0 => continue,
                after => after - 1,
            };
            durations[group].add(kernel.duration_ns);
        }
        let whole = EventTime { step: 0, wall_s: wall_s(zero, part.since_start(last_ns)) };
        for (group, durations) in durations.into_iter().enumerate() {
            if let Some(of) = durations.histogram() {
                let at = groups.get(group).map_or(whole, |(_, at)| *at);
                self.file.histogram(&tag, at, &of)?;
            }
        }
        Ok(())
    }

    /// Returns the length of the stretch of time that one point of a curve stands for.
    fn stretch_ns(&self) -> u64 {
        let (first_ns, last_ns) = self.part.trace.extent_ns().unwrap_or_default();
        stretch_ns(last_ns.saturating_sub(first_ns))
    }
}

/// Whether all events of a process's heap were recorded.
fn is_exact(part: &OpenRank<'_>, process: ProcessIndex) -> bool {
    let row = part.trace.process(process);
    row.is_none_or(|row| row.memory == MemoryRecording::Exact)
}

/// Returns the steps of the most trusted source that names any. Steps of a data loader are
/// excluded, because the first update of the optimizer would replace them by other steps.
fn named_steps(trace: &TraceFile) -> Steps {
    let mut names = StepNames::of(trace);
    let spans = trace.blocks::<SpanOutline>().flatten().filter(|span| names.has(span));
    let ranges: Vec<StepRange> = spans.map(|span| StepRange::of(&span)).collect();
    let sources = [StepSource::Explicit, StepSource::Profiler, StepSource::Optimizer];
    let found = sources.map(|source| steps::of_parts(trace, &ranges, Some(source)));
    found.into_iter().find(|steps| !steps.all.is_empty()).unwrap_or_default()
}

/// Groups the steps of each histogram.
fn groups(steps: &[Step]) -> std::slice::Chunks<'_, Step> {
    steps.chunks(steps.len().div_ceil(MOST_HISTOGRAMS).max(LEAST_STEPS))
}

fn millis(step: &Step) -> f64 {
    step.end_ns.saturating_sub(step.start_ns) as f64 / NS_PER_MS
}

fn tag(name: &str, about: &str) -> Tag {
    Tag { name: name.to_owned(), about: about.to_owned() }
}

/// Returns the name of a figure's curve, its description, and the number by which its values are
/// divided.
fn named(figure: Figure) -> (&'static str, &'static str, f64) {
    match figure {
        Figure::Compute => ("compute_ms", "compute on devices, milliseconds", NS_PER_MS),
        Figure::ExposedCommunication => (
            "exposed_communication_ms",
            "communication on devices without compute, milliseconds",
            NS_PER_MS,
        ),
        Figure::ExposedCopies => (
            "exposed_copies_ms",
            "copies on devices without compute and communication, milliseconds",
            NS_PER_MS,
        ),
        Figure::Idle => ("gpu_idle_ms", "nothing ran on a device, milliseconds", NS_PER_MS),
        Figure::Busy => ("gpu_busy", "share of the step with anything on a device, 0 to 1", 1.0),
        Figure::Launches => ("launches", "kernels and copies that the step launched", 1.0),
    }
}

/// Returns the highest reading of each stretch, and the last one.
fn highest(readings: &[(u64, f64)], stretch_ns: u64) -> Vec<(u64, f64)> {
    let mut thin = Downsampler::new(stretch_ns);
    let mut kept: Vec<(u64, f64)> =
        readings.iter().filter_map(|(time_ns, value)| thin.point(*time_ns, *value)).collect();
    kept.extend(thin.rest());
    kept
}

/// Returns the last reading of each stretch.
fn last(readings: &[(u64, f64)], stretch_ns: u64) -> Vec<(u64, f64)> {
    let stretch_ns = stretch_ns.max(1);
    let of_stretch = readings.chunk_by(|a, b| a.0 / stretch_ns == b.0 / stretch_ns);
    of_stretch.filter_map(|stretch| stretch.last().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_a_limited_number_of_histograms() {
        let step = |number| Step { number, start_ns: number, end_ns: number + 1, process: 0 };
        for (steps, histograms) in [(0, 0), (1, 1), (10, 1), (11, 2), (500, 50), (100_001, 50)] {
            let steps: Vec<Step> = (0..steps).map(step).collect();
            assert_eq!(groups(&steps).count(), histograms);
        }
    }

    #[test]
    fn curves_have_one_reading_per_stretch() {
        let read = [(1, 5.0), (2, 9.0), (3, 1.0), (11, 2.0), (12, f64::NAN)];
        let times = |kept: Vec<(u64, f64)>| kept.iter().map(|point| point.0).collect::<Vec<_>>();
        assert_eq!(times(last(&read, 10)), [3, 12]);
        assert_eq!(times(highest(&read[..4], 10)), [2, 11]);
    }
}

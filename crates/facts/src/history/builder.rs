//! Makes the rows of a rank's history from what is recorded of it.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::RowWatcher;
use tprof_trace::model::*;
use tprof_trace::pytorch::PROFILER_STEP;

use super::device_time::{DeviceParts, DeviceTimes, Times};
use super::draft::Draft;
use super::happened::Happened;
use super::levels::{Gauge, GaugeOwner, Levels};
use crate::communication::kernel_operation;
use crate::communication::on_host::host_operation;
use crate::steps::{LiveSteps, Step, StepRange, StepSource, number_of, shows_step};

/// A row is complete so long after its last step: readings come a few times a second.
const WAIT_NS: u64 = 2_000_000_000;
/// The same if devices or operations between ranks are recorded. CUPTI delivers its records about
/// once a second, and these are joined with others before they are written.
const DEVICE_WAIT_NS: u64 = 6_000_000_000;
/// If no step followed for so long, a row gets no more steps.
const OPEN_NS: u64 = 2_000_000_000;
/// Length of a row without steps.
const STRETCH_NS: u64 = 10_000_000_000;
/// While no step was seen, a row without steps is written so much later, since a step may still
/// follow whose end only the next one tells.
const NO_STEP_NS: u64 = 60_000_000_000;
/// After steps, a row without steps is written if none ended for at least so long.
const STEPS_OVER_NS: u64 = 600_000_000_000;
/// The same as a multiple of the longest step so far.
const STEPS_OVER: u64 = 20;
/// If the process whose steps count made none for so long, those of another one count.
const LEADER_NS: u64 = 10_000_000_000;
/// Most pauses of recording that are remembered.
const MOST_PAUSES: usize = 256;

/// What a name says about spans with it.
enum NameSign {
    /// An NVTX range `step N`.
    NvtxStep(u64),
    /// torch.profiler's range of step N.
    ProfilerStep(u64),
    /// Another range that shows steps. The text decides what it shows.
    Range(Box<str>),
    /// An operation between ranks on the host.
    HostOperation,
}

/// The process whose steps count.
struct Leader {
    process: ProcessIndex,
    last_end_ns: u64,
    has_ended: bool,
}

/// Adds up the figures of each step of a rank, and makes a row of them once they are complete.
pub struct HistoryBuilder {
    /// Whether old things are dropped if there are too many.
    is_bounded: bool,
    steps: LiveSteps,
    leader: Option<Leader>,
    open: Option<Draft>,
    waiting: VecDeque<Draft>,
    names: FxHashMap<u32, NameSign>,
    gauges: FxHashMap<u32, Gauge>,
    /// Names of kernels that communicate.
    communicating: FxHashSet<u32>,
    devices: BTreeMap<u32, DeviceTimes>,
    copied: Happened,
    operations: Happened,
    operating: Times,
    levels: Levels,
    /// Times at which recording was switched, ns, the process if only one was, and whether it was on
    /// from then on.
    switches: VecDeque<(u64, Option<ProcessIndex>, bool)>,
    /// Rows have been made for all time up to here, ns. What is recorded later of an earlier time
    /// is in no row.
    settled_ns: u64,
    /// The latest time of anything so far, ns.
    seen_ns: u64,
    longest_ns: u64,
    late_ns: u64,
}

impl HistoryBuilder {
    /// Returns a builder for a file that begins at this time, ns.
    pub fn new(start_ns: u64) -> HistoryBuilder {
        HistoryBuilder {
            is_bounded: true,
            steps: LiveSteps::default(),
            leader: None,
            open: None,
            waiting: VecDeque::new(),
            names: FxHashMap::default(),
            gauges: FxHashMap::default(),
            communicating: FxHashSet::default(),
            devices: BTreeMap::new(),
            copied: Happened::default(),
            operations: Happened::default(),
            operating: Times::default(),
            levels: Levels::default(),
            switches: VecDeque::new(),
            settled_ns: start_ns,
            seen_ns: start_ns,
            longest_ns: 0,
            late_ns: 0,
        }
    }

    /// Returns a builder for a file of which everything is there: nothing is dropped, and what lies
    /// before `start_ns` doesn't count.
    pub(super) fn of_whole(start_ns: u64) -> HistoryBuilder {
        HistoryBuilder { is_bounded: false, ..HistoryBuilder::new(start_ns) }
    }

    /// Adds a step. They come in order of time.
    pub(super) fn step(&mut self, step: Step, source: StepSource) {
        let leader = self.leader.get_or_insert(Leader {
            process: step.process,
            last_end_ns: 0,
            has_ended: false,
        });
        if leader.process != step.process {
            let is_over = leader.has_ended && step.end_ns > leader.last_end_ns;
            if !is_over && step.start_ns < leader.last_end_ns.saturating_add(LEADER_NS) {
                return;
            }
            (leader.process, leader.has_ended) = (step.process, false);
        }
        leader.last_end_ns = leader.last_end_ns.max(step.end_ns);
        self.longest_ns = self.longest_ns.max(step.end_ns.saturating_sub(step.start_ns));
        match &mut self.open {
            Some(open) if open.takes(&step, source) => open.add(&step),
            open => self.waiting.extend(open.replace(Draft::of(&step, source))),
        }
    }

    pub(super) fn kernel(&mut self, device: u32, name: NameId, start_ns: u64, duration_ns: u64) {
        let communicates = self.communicating.contains(&name.0);
        let (start_ns, end_ns) = self.device_interval(start_ns, duration_ns);
        let times = self.devices.entry(device).or_default();
        let of = if communicates { &mut times.communication } else { &mut times.compute };
        of.add(start_ns, end_ns);
    }

    pub(super) fn copy(&mut self, row: &MemoryCopy) {
        let (start_ns, end_ns) = self.device_interval(row.start_ns, row.duration_ns);
        self.devices.entry(row.device).or_default().copies.add(start_ns, end_ns);
        self.copied.add(row.start_ns, row.bytes);
    }

    /// Returns the interval of a device's work, without what comes too late for its row.
    fn device_interval(&mut self, start_ns: u64, duration_ns: u64) -> (u64, u64) {
        let end_ns = start_ns.saturating_add(duration_ns);
        self.seen_ns = self.seen_ns.max(end_ns);
        if start_ns < self.settled_ns && self.is_bounded {
            self.late_ns += end_ns.min(self.settled_ns) - start_ns;
        }
        (start_ns.max(self.settled_ns), end_ns)
    }

    fn operation(&mut self, start_ns: u64, duration_ns: Option<u64>, bytes: Option<u64>) {
        self.operations.add(start_ns, bytes);
        self.operating.add(start_ns, start_ns.saturating_add(duration_ns.unwrap_or(0)));
    }

    /// Adds a span, if it is an operation between ranks.
    pub(super) fn host_operation(&mut self, name: NameId, start_ns: u64, duration_ns: u64) {
        if matches!(self.names.get(&name.0), Some(NameSign::HostOperation)) {
            self.operation(start_ns, Some(duration_ns), None);
        }
    }

    /// Moves the steps that have ended into drafts, and the drafts that get no more steps to those
    /// that wait.
    fn draft(&mut self, now_ns: u64, is_last: bool) {
        let steps = self.steps.take();
        if let Some(source) = self.steps.source() {
            steps.into_iter().for_each(|step| self.step(step, source));
        }
        let is_over = |open: &mut Draft| is_last || now_ns >= open.end_ns().saturating_add(OPEN_NS);
        self.waiting.extend(self.open.take_if(|open| is_over(open)));
    }

    /// Puts everything in order that came since the last call.
    fn settle(&mut self) {
        let is_bounded = self.is_bounded;
        self.devices.values_mut().for_each(|times| times.settle(is_bounded));
        self.copied.settle(is_bounded);
        self.operations.settle(is_bounded);
        self.operating.settle(is_bounded);
    }

    /// Makes the row of a draft, and forgets what no later row needs.
    fn complete(&mut self, mut draft: Draft) -> HistoryRow {
        let mut row = draft.row();
        let (time, windows) = ((draft.start_ns(), draft.end_ns()), &draft.windows[..]);
        // Of a step that began before the end of an earlier row, a part was forgotten.
        let is_whole = time.0 >= self.settled_ns && !self.is_paused_within(time);
        if is_whole && let Some(parts) = self.parts(windows) {
            row.devices = Some(self.devices.len() as u32);
            row.busy_ns = Some(parts.busy_ns);
            row.compute_ns = Some(parts.compute_ns);
            row.communication_ns = Some(parts.communication_ns);
            row.exposed_communication_ns = Some(parts.exposed_ns);
            // If a device works, no copy was recorded only if there was none.
            let copied = self.copied.within(windows).map_or(Some(0), |(_, bytes)| bytes);
            row.copied_bytes = copied;
        }
        if is_whole && let Some((count, bytes)) = self.operations.within(windows) {
            (row.collectives, row.collective_bytes) = (Some(count), bytes);
            row.collective_ns = self.operating.length(windows);
        }
        let levels = &self.levels;
        let grown = |gauge| levels.grown(gauge, time.0, time.1);
        row.cpu_ns = grown(Gauge::Cpu);
        row.heap_bytes = levels.sum_at(Gauge::Heap, time.1);
        row.resident_bytes = levels.sum_at(Gauge::Resident, time.1);
        row.read_bytes = grown(Gauge::Read);
        row.written_bytes = grown(Gauge::Written);
        row.storage_read_bytes = grown(Gauge::StorageRead);
        row.storage_written_bytes = grown(Gauge::StorageWritten);
        row.device_memory_bytes = levels.sum_at(Gauge::DeviceMemory, time.1);
        row.temperature_celsius = levels.joined(Gauge::Temperature, time, u64::max);
        row.power_milliwatts = levels.sum_of_means(Gauge::Power, time, 1000.0);
        row.sm_clock_hz = levels.least_mean(Gauge::Clock, time);
        row.throttle_reasons = levels.joined(Gauge::ThrottleReasons, time, |a, b| a | b);
        row.throttled_ns = grown(Gauge::Throttled);
        row.energy_millijoules = levels.energy(time).map(|joules| (joules * 1e3).round() as u64);
        let mean = |gauge| levels.held_mean(gauge, time, 1e6);
        row.sm_active_millionths = mean(Gauge::SmActive);
        row.tensor_active_millionths = mean(Gauge::TensorActive);
        row.dram_bandwidth_millionths = mean(Gauge::DramBandwidth);
        self.settled_ns = self.settled_ns.max(time.1);
        self.forget();
        row
    }

    fn forget(&mut self) {
        let before_ns = self.settled_ns;
        self.devices.values_mut().for_each(|times| times.forget(before_ns));
        self.copied.forget(before_ns);
        self.operations.forget(before_ns);
        self.operating.forget(before_ns);
        self.levels.forget(before_ns);
    }

    /// Returns what all devices did; `None` if no work of a device was recorded, or if it isn't
    /// known any more.
    fn parts(&self, windows: &[(u64, u64)]) -> Option<DeviceParts> {
        let mut parts = DeviceParts::default();
        for times in self.devices.values() {
            windows.iter().try_for_each(|window| times.measure(*window, &mut parts))?;
        }
        (!self.devices.is_empty()).then_some(parts)
    }

    fn is_paused_within(&self, (start_ns, end_ns): (u64, u64)) -> bool {
        let leader = self.leader.as_ref().map(|leader| leader.process);
        [None, leader].into_iter().any(|process| {
            let of = || self.switches.iter().filter(move |of| of.1 == process);
            let before = of().rev().find(|of| of.0 <= start_ns);
            let within = of().filter(|of| (start_ns..end_ns).contains(&of.0));
            before.into_iter().chain(within).any(|(.., is_on)| !is_on)
        })
    }

    /// Returns the end of the next row without steps, if it is due.
    fn stretch_end(&self, now_ns: u64, is_last: bool) -> Option<u64> {
        let from_ns = self.settled_ns;
        let is_due = match &self.leader {
            Some(leader) => {
                let over_ns = STEPS_OVER_NS.max(self.longest_ns.saturating_mul(STEPS_OVER));
                !is_last && now_ns >= leader.last_end_ns.max(from_ns).saturating_add(over_ns)
            }
            None => is_last || now_ns >= from_ns.saturating_add(STRETCH_NS + NO_STEP_NS),
        };
        let end_ns = match is_last {
            true => from_ns.saturating_add(STRETCH_NS).min(self.seen_ns),
            false => from_ns.saturating_add(STRETCH_NS),
        };
        (is_due && end_ns > from_ns).then_some(end_ns)
    }
}

impl RowWatcher for HistoryBuilder {
    fn named(&mut self, id: NameId, text: &str) {
        if let Some(gauge) = Gauge::of(text) {
            self.gauges.insert(id.0, gauge);
        } else if let Some(number) = number_of(SpanKind::Annotation, text) {
            self.names.insert(id.0, NameSign::ProfilerStep(number));
        } else if let Some(number) = number_of(SpanKind::Nvtx, text) {
            self.names.insert(id.0, NameSign::NvtxStep(number));
        } else if shows_step(SpanKind::Annotation, text) {
            self.names.insert(id.0, NameSign::Range(text.into()));
        } else if host_operation(text).is_some() {
            self.names.insert(id.0, NameSign::HostOperation);
        }
        if kernel_operation(text).is_some() {
            self.communicating.insert(id.0);
        }
    }

    fn marked(&mut self, row: &Mark, name: &str) {
        self.seen_ns = self.seen_ns.max(row.time_ns);
        let is_on = match row.kind {
            MarkKind::RecordingOn => Some(true),
            MarkKind::RecordingOff => Some(false),
            _ => None,
        };
        if let Some(is_on) = is_on {
            if self.switches.len() == MOST_PAUSES {
                self.switches.pop_front();
            }
            self.switches.push_back((row.time_ns, row.process, is_on));
        }
        self.steps.mark(row.process, row.kind, row.time_ns, name);
    }

    fn counted(&mut self, row: &Counter) {
        let Some(gauge) = self.gauges.get(&row.name.0) else { return };
        let owner = match (row.process, row.device) {
            (Some(process), _) => GaugeOwner::Process(process),
            (None, Some(device)) => GaugeOwner::Device(device),
            (None, None) => GaugeOwner::Host,
        };
        self.seen_ns = self.seen_ns.max(row.time_ns);
        self.levels.add(*gauge, owner, row.time_ns, row.value);
    }

    fn ended(&mut self, process: ProcessIndex, end_ns: u64) {
        self.levels.ended(process, end_ns);
        if let Some(leader) = self.leader.as_mut().filter(|leader| leader.process == process) {
            leader.has_ended = true;
        }
    }

    fn cpu_time(&mut self, process: ProcessIndex, time_ns: u64, cpu_ns: u64) {
        self.levels.add(Gauge::Cpu, GaugeOwner::Process(process), time_ns, cpu_ns as f64);
    }

    fn spans(&mut self, rows: &[Span]) {
        for row in rows {
            let may_show = matches!(
                row.kind,
                SpanKind::Annotation | SpanKind::Nvtx | SpanKind::Operator | SpanKind::Other
            );
            if !may_show {
                continue;
            }
            let sign = self.names.get(&row.name.0);
            let end_ns = row.start_ns.saturating_add(row.duration_ns);
            let Span { kind, name, process, start_ns, .. } = *row;
            let range = StepRange { kind, name, process, start_ns, end_ns };
            match (sign, kind) {
                (Some(NameSign::NvtxStep(number)), SpanKind::Nvtx) => {
                    self.steps.range(range, &format!("step {number}"));
                }
                (Some(NameSign::ProfilerStep(number)), SpanKind::Annotation) => {
                    self.steps.range(range, &format!("{PROFILER_STEP}{number}"));
                }
                // NVTX ranges may have torch.profiler's names.
                (Some(NameSign::ProfilerStep(number)), SpanKind::Nvtx) => {
                    self.steps.range(range, &format!("step {number}"));
                }
                (Some(NameSign::Range(text)), SpanKind::Annotation) => {
                    self.steps.range(range, text);
                }
                (Some(NameSign::HostOperation), kind) if kind != SpanKind::Nvtx => {
                    self.operation(start_ns, Some(row.duration_ns), None);
                }
                _ => {}
            }
        }
    }

    fn kernels(&mut self, rows: &[Kernel]) {
        for row in rows {
            self.kernel(row.device, row.name, row.start_ns, row.duration_ns);
        }
    }

    fn copies(&mut self, rows: &[MemoryCopy]) {
        rows.iter().for_each(|row| self.copy(row));
    }

    fn collectives(&mut self, rows: &[Collective]) {
        rows.iter().for_each(|row| self.operation(row.start_ns, row.duration_ns, row.bytes));
    }

    fn figures(&mut self, now_ns: u64, is_last: bool) -> Vec<HistoryRow> {
        self.draft(now_ns, is_last);
        self.settle();
        let is_slow = !self.devices.is_empty() || self.operations.is_seen;
        let wait_ns = if is_slow { DEVICE_WAIT_NS } else { WAIT_NS };
        let mut rows = Vec::new();
        while let Some(first) = self.waiting.front() {
            if !(is_last || now_ns >= first.end_ns().saturating_add(wait_ns)) {
                break;
            }
            let Some(draft) = self.waiting.pop_front() else { break };
            rows.push(self.complete(draft));
        }
        while self.open.is_none()
            && self.waiting.is_empty()
            && let Some(end_ns) = self.stretch_end(now_ns, is_last)
        {
            rows.push(self.complete(Draft::stretch(self.settled_ns, end_ns)));
        }
        rows
    }

    fn late_ns(&self) -> u64 {
        self.late_ns
    }
}

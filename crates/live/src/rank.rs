//! Follows one rank's file: reads what is new since the last poll, and updates the state of the
//! rank.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

use tprof_facts::steps::{StepRange, shows_step};
use tprof_facts::units::duration;
use tprof_facts::zero::{Clock, Zero};
use tprof_facts::{Step, labels};
use tprof_trace::model::{Counter, Mark, MarkKind, ProcessEnd};
use tprof_trace::{TailDecoder, TailOptions, TailUpdate, TraceHeader, TraceTail};

use crate::failed_requests::FailedRequests;
use crate::figures::RankFigures;
use crate::history::{MetricCourses, Scale};
use crate::main_thread::MainThreadActivity;
use crate::metric::Metric;
use crate::pace::{StalledSteps, StepPace};
use crate::readings::{Reading, Readings, Running, describe_end};
use crate::snapshot::EventKind;

/// A stall counts only up to this long after the newest data in the rank's file. If nothing is
/// written for longer, the collector may have stopped, so that steps may be missing from the file.
const EVIDENCE_NS: u64 = 10_000_000_000;
/// A process that has run for no longer than this is not announced yet.
const SHORT_NS: u64 = 1_000_000_000;
/// Largest number of processes to remember that called `exec` and whose new image is not in the
/// file yet.
const MOST_REPLACED: usize = 64;

/// A rank's file and its state.
#[derive(Debug)]
pub struct Rank {
    /// Name of the file.
    pub name: String,
    /// Inode number of the file.
    pub inode: u64,
    tail: TraceTail,
    /// Whether there is more to read immediately.
    pub more: bool,
    pub pace: StepPace,
    pub readings: Readings,
    pub figures: RankFigures,
    activity: MainThreadActivity,
    pub courses: MetricCourses,
    /// The last polls: their times, and the values by metric index.
    pub recent: VecDeque<(u64, Vec<f32>)>,
    recording: bool,
    /// Why the file cannot be read.
    pub error: Option<String>,
    /// Pids of processes that called `exec`, and whether their beginnings were announced.
    replaced: Vec<(u32, bool)>,
    stalled: Option<StalledSteps>,
    pub failed_requests: FailedRequests,
}

/// An event of a rank, on its file's clock.
#[derive(Clone, Debug)]
pub struct RankEvent {
    /// When it happened.
    pub time_ns: u64,
    /// Kind of event.
    pub kind: EventKind,
    /// Description in words.
    pub text: String,
    /// Whether the event concerns the whole run.
    pub of_run: bool,
}

/// Facts about the run that are needed to read one of its files.
pub struct Context<'a> {
    /// When the run began.
    pub zero: Zero,
    /// Length of the stretches.
    pub scale: Scale,
    /// Latest plausible moment, in nanoseconds since 1970.
    pub limit_unix_ns: u64,
    /// Decodes blocks of the file.
    pub decoder: &'a mut TailDecoder,
    /// Returns the index of a gauge, by name, among the run's metrics; `None` if there are too
    /// many.
    pub gauge: &'a mut dyn FnMut(&str) -> Option<usize>,
}

impl Rank {
    /// Creates a rank whose file has not been read yet.
    pub fn new(directory: &Path, name: String, inode: u64) -> Rank {
        let wants = TailOptions { spans: Some(shows_step), samples: true, allocator_events: true };
        Rank {
            tail: TraceTail::new(&directory.join(&name), wants),
            name,
            inode,
            more: false,
            pace: StepPace::default(),
            readings: Readings::default(),
            figures: RankFigures::default(),
            activity: MainThreadActivity::default(),
            courses: MetricCourses::default(),
            recent: VecDeque::new(),
            recording: true,
            error: None,
            replaced: Vec::new(),
            stalled: None,
            failed_requests: FailedRequests::default(),
        }
    }

    /// Returns the file's header, if it has been read.
    pub fn header(&self) -> Option<&TraceHeader> {
        self.tail.header()
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.tail.bytes()
    }

    /// Returns the number of damaged parts that were skipped.
    pub fn damaged(&self) -> u64 {
        self.tail.damaged()
    }

    /// Whether the recorder closed the file.
    pub fn is_closed(&self) -> bool {
        self.tail.is_closed()
    }

    /// Returns the newest moment in the file, on its clock.
    pub fn last_ns(&self) -> u64 {
        self.tail.last_ns()
    }

    /// Returns whether the rank is being recorded; `None` until the file has a header.
    pub fn recording(&self) -> Option<bool> {
        self.header().map(|_| self.recording)
    }

    /// Returns the file's clock.
    pub fn clock(&self, zero: Zero) -> Clock {
        match self.header() {
            Some(header) if header.start_unix_ns > 0 => {
                zero.at(header.start_ns, header.start_unix_ns)
            }
            Some(header) => Clock { start_ns: header.start_ns, ..Clock::default() },
            None => Clock::default(),
        }
    }

    /// Reads the new data of the file, and returns the events in it.
    pub fn read(&mut self, file: &File, context: &mut Context<'_>) -> Vec<RankEvent> {
        let mut news = match self.tail.read_more(file, context.decoder) {
            Ok(news) => news,
            Err(error) => {
                self.error = Some(error.to_string());
                return Vec::new();
            }
        };
        self.error = None;
        if news.restarted {
            (self.pace, self.readings) = (StepPace::default(), Readings::default());
            self.figures = RankFigures::default();
            self.activity = MainThreadActivity::default();
            (self.courses, self.recent) = (MetricCourses::default(), VecDeque::new());
            (self.recording, self.stalled) = (true, None);
            self.failed_requests = FailedRequests::default();
        }
        self.more = news.more;
        let own_ns = self.header().map_or(0, |header| header.start_unix_ns);
        context.zero = earlier_start(context.zero, own_ns);
        let mut rank_events = self.processes(&mut news, file, context.decoder);
        for mark in sorted(std::mem::take(&mut news.marks)) {
            let name = self.tail.name(&news, file, context.decoder, mark.name);
            rank_events.extend(self.mark(&mark, name));
        }
        for (span, name) in &news.spans {
            self.pace.steps().range(StepRange::of(span), name);
        }
        for counter in std::mem::take(&mut news.counters) {
            let name = self.tail.name(&news, file, context.decoder, counter.name);
            self.counter(&counter, &name, context);
        }
        for thread in &news.threads {
            let pid = self.readings.process_of(thread.process).map(|process| process.pid);
            self.activity.thread(thread, pid);
        }
        self.figures.add(&news.history);
        self.readings.samples(&news.samples);
        self.activity.samples(&news.samples);
        rank_events.extend(self.settle_steps(context));
        self.failed_requests.add(&news, &mut self.tail, file, context.decoder);
        let is_closed = self.is_closed();
        let failed = self.failed_requests.settle(&mut self.tail, file, context.decoder, is_closed);
        rank_events.extend(failed.map(|(time_ns, text)| RankEvent {
            time_ns,
            kind: EventKind::OutOfMemory,
            text,
            of_run: false,
        }));
        rank_events
    }

    /// Returns the beginnings and ends of processes, in order.
    fn processes(
        &mut self,
        news: &mut TailUpdate,
        file: &File,
        decoder: &mut TailDecoder,
    ) -> Vec<RankEvent> {
        let mut rank_events = Vec::new();
        let mut rows = std::mem::take(&mut news.processes);
        rows.sort_by_key(|row| row.start_ns);
        let mut ends = std::mem::take(&mut news.process_ends);
        ends.sort_by_key(|(_, end_ns, _)| *end_ns);
        let mut ends = ends.into_iter().peekable();
        for row in rows {
            while let Some((process, end_ns, end)) = ends.next_if(|end| end.1 <= row.start_ns) {
                rank_events.extend(self.process_end(process, end_ns, end));
            }
            let command = self.tail.name(news, file, decoder, row.command);
            let program = labels::program(&command).to_owned();
            let was_replaced = self.replaced.iter().position(|(pid, _)| *pid == row.pid);
            let is_announced = was_replaced.is_some_and(|at| self.replaced.swap_remove(at).1);
            self.readings.process(&row, program, is_announced);
        }
        for (process, end_ns, end) in ends {
            rank_events.extend(self.process_end(process, end_ns, end));
        }
        let begun = self.readings.announce(self.tail.last_ns().saturating_sub(SHORT_NS));
        rank_events.extend(begun.into_iter().map(start_of));
        rank_events
    }

    /// Returns the events for the end of a process image: its end, and before that its beginning if
    /// it was not announced yet. A child process that ran only for a moment and was not killed has
    /// no events.
    fn process_end(&mut self, process: u32, end_ns: u64, end: ProcessEnd) -> Vec<RankEvent> {
        self.activity.process_ended(process);
        let Some(gone) = self.readings.process_end(process, end) else { return Vec::new() };
        if end == ProcessEnd::Exec {
            if self.replaced.len() < MOST_REPLACED {
                self.replaced.push((gone.pid, gone.is_announced));
            }
            return Vec::new();
        }
        let ended = RankEvent {
            time_ns: end_ns,
            kind: EventKind::ProcessEnd,
            text: format!("{} [{}]: {}", gone.program, gone.pid, describe_end(Some(end))),
            of_run: false,
        };
        let is_told = gone.is_announced || gone.is_root || matches!(end, ProcessEnd::Signal(_));
        let begun = (is_told && !gone.is_announced).then(|| start_of(gone));
        begun.into_iter().chain(is_told.then_some(ended)).collect()
    }

    fn mark(&mut self, mark: &Mark, name: String) -> Option<RankEvent> {
        self.pace.steps().mark(mark.process, mark.kind, mark.time_ns, &name);
        let kind = match mark.kind {
            MarkKind::Step | MarkKind::Histogram => return None,
            MarkKind::Mark | MarkKind::MachineError => EventKind::Mark,
            MarkKind::RecordingOn => EventKind::RecordingOn,
            MarkKind::RecordingOff => EventKind::RecordingOff,
        };
        if kind != EventKind::Mark {
            self.recording = kind == EventKind::RecordingOn;
        }
        Some(RankEvent { time_ns: mark.time_ns, kind, text: name, of_run: mark.process.is_none() })
    }

    fn counter(&mut self, row: &Counter, name: &str, context: &mut Context<'_>) {
        let Some(reading) = self.readings.counter(row, name) else { return };
        let (place, value) = match reading {
            Reading::Of(metric, value) => (Some(metric.place()), value),
            Reading::Gauge(name, value) => ((context.gauge)(&name), value),
        };
        if let Some(place) = place {
            self.note(context, place, row.time_ns, value);
        }
    }

    /// Adds a value to the history of a metric.
    fn note(&mut self, context: &Context<'_>, place: usize, time_ns: u64, value: f64) {
        let since_ns = self.clock(context.zero).since_start(time_ns);
        if since_ns <= context.limit_unix_ns.saturating_sub(context.zero.unix_ns) {
            self.courses.add(context.scale, place, since_ns, value);
        }
    }

    fn settle_steps(&mut self, context: &Context<'_>) -> Vec<RankEvent> {
        let runs = |process| self.readings.process_of(process).is_some();
        let (steps, mut slow) = self.pace.settle(runs);
        let stood = self.stalled.take();
        // A step that ends a stall has an event for that, so it gets none for being slow.
        slow.retain(|slow| stood.is_none_or(|stood| slow.step.start_ns != stood.since_ns));
        for step in &steps {
            let took_ns = step.end_ns.saturating_sub(step.start_ns);
            self.note(context, Metric::StepTime.place(), step.end_ns, took_ns as f64);
        }
        let slow = slow.into_iter().map(|slow| {
            let took_ns = slow.step.end_ns.saturating_sub(slow.step.start_ns);
            let (took, usual) = (duration(took_ns), duration(slow.usual_ns));
            RankEvent {
                time_ns: slow.step.end_ns,
                kind: EventKind::StepSlow,
                text: format!("step {} took {took}, usually {usual}", slow.step.number),
                of_run: false,
            }
        });
        let mut rank_events: Vec<RankEvent> = slow.collect();
        let is_next = |stood: &StalledSteps, step: &Step| step.end_ns > stood.since_ns;
        match stood.and_then(|stood| Some((stood, steps.iter().find(|s| is_next(&stood, s))?))) {
            Some((stood, step)) => rank_events.push(RankEvent {
                time_ns: step.end_ns,
                kind: EventKind::StallEnd,
                text: format!(
                    "step {} ended after {}",
                    stood.step,
                    duration(step.end_ns.saturating_sub(stood.since_ns))
                ),
                of_run: false,
            }),
            None => self.stalled = stood,
        }
        rank_events
    }

    /// Returns the stall of the rank at `now_ns` of its clock, and an event if a stall has begun or
    /// ended.
    pub fn update_stall(
        &mut self,
        now_ns: u64,
        is_running: bool,
    ) -> (Option<StalledSteps>, Option<RankEvent>) {
        let judged =
            is_running && !self.more && self.recording && self.is_driving_process_running();
        // What happened long after the newest block is unknown.
        let until_ns = now_ns.min(self.last_ns().saturating_add(EVIDENCE_NS));
        let stalled = self.pace.stalled(until_ns).filter(|_| judged);
        let event = |kind, text| RankEvent { time_ns: now_ns, kind, text, of_run: false };
        let rank_events = match (self.stalled, stalled) {
            (None, Some(now)) => {
                let (none_for, usual) = (duration(now.for_ns), duration(now.usual_ns));
                let text = format!("no step for {none_for}, usually {usual}");
                Some(event(EventKind::Stall, text))
            }
            (Some(_), None) => {
                let over = if self.is_driving_process_running() {
                    "not judged any more"
                } else {
                    "the process ended"
                };
                Some(event(EventKind::StallEnd, over.to_owned()))
            }
            _ => None,
        };
        self.stalled = stalled;
        (stalled, rank_events)
    }

    /// Describes what the rank has been doing since a stall began, if that is known.
    pub fn activity(&self, stalled: &StalledSteps) -> Option<String> {
        let until_ns = stalled.since_ns.saturating_add(stalled.for_ns);
        self.activity.describe(self.pace.driving()?, stalled.since_ns, until_ns)
    }

    /// Whether the process whose steps count is running.
    fn is_driving_process_running(&self) -> bool {
        let runs = |process| self.readings.process_of(process).is_some();
        !self.is_closed() && self.pace.driving().is_some_and(runs)
    }

    /// Returns the figures of the rank's steps; of a rank that has ended only sums.
    pub fn current_figures(&self) -> RankFigures {
        let mut figures = self.figures.clone();
        if self.readings.ended().is_some() {
            figures.ended();
        }
        figures
    }

    /// Returns the value of a metric at `now_ns` of the rank's clock.
    pub fn value(&mut self, metric: Metric, now_ns: u64) -> Option<f64> {
        match metric {
            Metric::StepsPerSecond | Metric::SinceStep if !self.is_driving_process_running() => {
                None
            }
            Metric::Steps => self.pace.count().map(|count| count as f64),
            Metric::StepsPerSecond => self.pace.per_second(now_ns),
            Metric::StepTime => {
                self.pace.last().map(|step| step.end_ns.saturating_sub(step.start_ns) as f64)
            }
            Metric::SinceStep => {
                self.pace.last().map(|step| now_ns.saturating_sub(step.end_ns) as f64)
            }
            Metric::CpuCores => self.readings.cores(now_ns),
            _ => self.readings.value(metric),
        }
    }
}

/// Returns the earlier of two beginnings of the run, where 0 means unknown.
pub fn earlier_start(zero: Zero, unix_ns: u64) -> Zero {
    match (zero.unix_ns, unix_ns) {
        (0, known) | (known, 0) => Zero { unix_ns: known },
        (a, b) => Zero { unix_ns: a.min(b) },
    }
}

/// Returns the event for the beginning of a process.
fn start_of(process: Running) -> RankEvent {
    RankEvent {
        time_ns: process.start_ns,
        kind: EventKind::ProcessStart,
        text: format!("{} [{}] began", process.program, process.pid),
        of_run: false,
    }
}

fn sorted(mut marks: Vec<Mark>) -> Vec<Mark> {
    marks.sort_by_key(|mark| mark.time_ns);
    marks
}

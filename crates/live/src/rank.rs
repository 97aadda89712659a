//! One rank's file: what came in it since the last poll, and what that makes of the rank.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

use tprof_facts::steps::{StepRange, shows_step};
use tprof_facts::units::duration;
use tprof_facts::zero::{Clock, Zero};
use tprof_facts::{Step, labels};
use tprof_trace::model::{Counter, Mark, MarkKind, ProcessEnd};
use tprof_trace::{TailDecoder, TailOptions, TailUpdate, TraceHeader, TraceTail};

use crate::doing::Doing;
use crate::history::{Courses, Scale};
use crate::metric::Metric;
use crate::pace::{Pace, Standing};
use crate::readings::{Reading, Readings, Running, end_words};
use crate::snapshot::EventKind;

/// Nothing in a file of a rank that is this old is evidence of a stall: the collector may be silent.
const EVIDENCE_NS: u64 = 10_000_000_000;
/// A process that ran no longer than this is not announced.
const SHORT_NS: u64 = 1_000_000_000;
/// Processes that were replaced and did not begin anew yet.
const MOST_REPLACED: usize = 64;

/// A rank's file.
#[derive(Debug)]
pub struct Rank {
    /// Name of the file.
    pub name: String,
    /// Number of its inode.
    pub inode: u64,
    tail: TraceTail,
    /// There is more to read at once.
    pub more: bool,
    pub pace: Pace,
    pub readings: Readings,
    doing: Doing,
    pub courses: Courses,
    /// The last polls: when, and the values by their places.
    pub recent: VecDeque<(u64, Vec<f32>)>,
    recording: bool,
    /// Why the file cannot be read.
    pub error: Option<String>,
    /// Their pids, and whether their beginnings were announced.
    replaced: Vec<(u32, bool)>,
    standing: Option<Standing>,
}

/// What happened, on the file's clock.
#[derive(Clone, Debug)]
pub struct Happened {
    /// When.
    pub time_ns: u64,
    /// What kind.
    pub kind: EventKind,
    /// In words.
    pub text: String,
    /// Of the whole run.
    pub of_run: bool,
}

/// What readings of a file need to know of the run.
pub struct Context<'a> {
    /// When the run began.
    pub zero: Zero,
    /// How long stretches are.
    pub scale: Scale,
    /// No moment is later, nanoseconds since 1970.
    pub limit_unix_ns: u64,
    /// Decodes blocks.
    pub decoder: &'a mut TailDecoder,
    /// The place of a gauge among the run's.
    pub gauge: &'a mut dyn FnMut(&str) -> Option<usize>,
}

impl Rank {
    /// Of a file that was not read yet.
    pub fn new(name: String, inode: u64) -> Rank {
        let wants = TailOptions { spans: Some(shows_step), samples: true };
        Rank {
            tail: TraceTail::new(Path::new(&name), wants),
            name,
            inode,
            more: false,
            pace: Pace::default(),
            readings: Readings::default(),
            doing: Doing::default(),
            courses: Courses::default(),
            recent: VecDeque::new(),
            recording: true,
            error: None,
            replaced: Vec::new(),
            standing: None,
        }
    }

    /// The file's description of itself, once it was read.
    pub fn header(&self) -> Option<&TraceHeader> {
        self.tail.header()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.tail.bytes()
    }

    /// Damaged parts that were passed over.
    pub fn damaged(&self) -> u64 {
        self.tail.damaged()
    }

    /// Whether the recorder closed the file.
    pub fn is_closed(&self) -> bool {
        self.tail.is_closed()
    }

    /// Newest moment in the file, on its clock.
    pub fn last_ns(&self) -> u64 {
        self.tail.last_ns()
    }

    /// Whether it is being recorded.
    pub fn recording(&self) -> Option<bool> {
        self.header().map(|_| self.recording)
    }

    /// Its clock.
    pub fn clock(&self, zero: Zero) -> Clock {
        match self.header() {
            Some(header) if header.start_unix_ns > 0 => {
                zero.at(header.start_ns, header.start_unix_ns)
            }
            Some(header) => Clock { start_ns: header.start_ns, late_ns: 0 },
            None => Clock::default(),
        }
    }

    /// Reads what came in the file.
    pub fn read(&mut self, file: &File, context: &mut Context<'_>) -> Vec<Happened> {
        let mut news = match self.tail.read_more(file, context.decoder) {
            Ok(news) => news,
            Err(error) => {
                self.error = Some(error.to_string());
                return Vec::new();
            }
        };
        self.error = None;
        if news.restarted {
            (self.pace, self.readings) = (Pace::default(), Readings::default());
            self.doing = Doing::default();
            (self.courses, self.recent) = (Courses::default(), VecDeque::new());
            (self.recording, self.standing) = (true, None);
        }
        self.more = news.more;
        let own_ns = self.header().map_or(0, |header| header.start_unix_ns);
        context.zero = earlier(context.zero, own_ns);
        let mut happened = self.processes(&mut news, file, context.decoder);
        for mark in sorted(std::mem::take(&mut news.marks)) {
            let name = self.tail.name(&news, file, context.decoder, mark.name);
            happened.extend(self.mark(&mark, name));
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
            self.doing.thread(thread, pid);
        }
        self.readings.samples(&news.samples);
        self.doing.samples(&news.samples);
        happened.extend(self.settle_steps(context));
        happened
    }

    /// Beginnings and ends of processes, in order.
    fn processes(
        &mut self,
        news: &mut TailUpdate,
        file: &File,
        decoder: &mut TailDecoder,
    ) -> Vec<Happened> {
        let mut happened = Vec::new();
        let mut rows = std::mem::take(&mut news.processes);
        rows.sort_by_key(|row| row.start_ns);
        let mut ends = std::mem::take(&mut news.process_ends);
        ends.sort_by_key(|(_, end_ns, _)| *end_ns);
        let mut ends = ends.into_iter().peekable();
        for row in rows {
            while let Some((process, end_ns, end)) = ends.next_if(|end| end.1 <= row.start_ns) {
                happened.extend(self.process_end(process, end_ns, end));
            }
            let command = self.tail.name(news, file, decoder, row.command);
            let program = labels::program(&command).to_owned();
            let was_replaced = self.replaced.iter().position(|(pid, _)| *pid == row.pid);
            let is_announced = was_replaced.is_some_and(|at| self.replaced.swap_remove(at).1);
            self.readings.process(&row, program, is_announced);
        }
        for (process, end_ns, end) in ends {
            happened.extend(self.process_end(process, end_ns, end));
        }
        let begun = self.readings.announce(self.tail.last_ns().saturating_sub(SHORT_NS));
        happened.extend(begun.into_iter().map(start_of));
        happened
    }

    /// The end of a process image, and its beginning where that was not announced. Of one that
    /// ran for a moment within another and was not killed there is no event.
    fn process_end(&mut self, process: u32, end_ns: u64, end: ProcessEnd) -> Vec<Happened> {
        self.doing.process_ended(process);
        let Some(gone) = self.readings.process_end(process, end) else { return Vec::new() };
        if end == ProcessEnd::Exec {
            if self.replaced.len() < MOST_REPLACED {
                self.replaced.push((gone.pid, gone.is_announced));
            }
            return Vec::new();
        }
        let ended = Happened {
            time_ns: end_ns,
            kind: EventKind::ProcessEnd,
            text: format!("{} [{}]: {}", gone.program, gone.pid, end_words(Some(end))),
            of_run: false,
        };
        let is_told = gone.is_announced || gone.is_root || matches!(end, ProcessEnd::Signal(_));
        let begun = (is_told && !gone.is_announced).then(|| start_of(gone));
        begun.into_iter().chain(is_told.then_some(ended)).collect()
    }

    fn mark(&mut self, mark: &Mark, name: String) -> Option<Happened> {
        self.pace.steps().mark(mark.process, mark.kind, mark.time_ns, &name);
        let kind = match mark.kind {
            MarkKind::Step | MarkKind::Histogram => return None,
            MarkKind::Mark => EventKind::Mark,
            MarkKind::RecordingOn => EventKind::RecordingOn,
            MarkKind::RecordingOff => EventKind::RecordingOff,
        };
        if kind != EventKind::Mark {
            self.recording = kind == EventKind::RecordingOn;
        }
        Some(Happened { time_ns: mark.time_ns, kind, text: name, of_run: mark.process.is_none() })
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

    /// Adds a value to the course of a number.
    fn note(&mut self, context: &Context<'_>, place: usize, time_ns: u64, value: f64) {
        let since_ns = self.clock(context.zero).since_start(time_ns);
        if since_ns <= context.limit_unix_ns.saturating_sub(context.zero.unix_ns) {
            self.courses.add(context.scale, place, since_ns, value);
        }
    }

    fn settle_steps(&mut self, context: &Context<'_>) -> Vec<Happened> {
        let runs = |process| self.readings.process_of(process).is_some();
        let (steps, mut slow) = self.pace.settle(runs);
        let stood = self.standing.take();
        // The end of a stall is one event.
        slow.retain(|slow| stood.is_none_or(|stood| slow.step.start_ns != stood.since_ns));
        for step in &steps {
            let took_ns = step.end_ns.saturating_sub(step.start_ns);
            self.note(context, Metric::StepTime.place(), step.end_ns, took_ns as f64);
        }
        let slow = slow.into_iter().map(|slow| {
            let took_ns = slow.step.end_ns.saturating_sub(slow.step.start_ns);
            let (took, usual) = (duration(took_ns), duration(slow.usual_ns));
            Happened {
                time_ns: slow.step.end_ns,
                kind: EventKind::StepSlow,
                text: format!("step {} took {took}, usually {usual}", slow.step.number),
                of_run: false,
            }
        });
        let mut happened: Vec<Happened> = slow.collect();
        let is_next = |stood: &Standing, step: &Step| step.end_ns > stood.since_ns;
        match stood.and_then(|stood| Some((stood, steps.iter().find(|s| is_next(&stood, s))?))) {
            Some((stood, step)) => happened.push(Happened {
                time_ns: step.end_ns,
                kind: EventKind::StallEnd,
                text: format!(
                    "step {} ended after {}",
                    stood.step,
                    duration(step.end_ns.saturating_sub(stood.since_ns))
                ),
                of_run: false,
            }),
            None => self.standing = stood,
        }
        happened
    }

    /// Whether it stands at a moment of its clock, and what is new about that.
    pub fn judge(&mut self, now_ns: u64, is_running: bool) -> (Option<Standing>, Option<Happened>) {
        let judged = is_running && !self.more && self.recording && self.goes_on();
        // Without newer blocks nothing is known of now.
        let until_ns = now_ns.min(self.last_ns().saturating_add(EVIDENCE_NS));
        let standing = self.pace.standing(until_ns).filter(|_| judged);
        let event = |kind, text| Happened { time_ns: now_ns, kind, text, of_run: false };
        let happened = match (self.standing, standing) {
            (None, Some(now)) => {
                let (none_for, usual) = (duration(now.for_ns), duration(now.usual_ns));
                let text = format!("no step for {none_for}, usually {usual}");
                Some(event(EventKind::Stall, text))
            }
            (Some(_), None) => {
                let over = if self.goes_on() { "not judged any more" } else { "the process ended" };
                Some(event(EventKind::StallEnd, over.to_owned()))
            }
            _ => None,
        };
        self.standing = standing;
        (standing, happened)
    }

    /// What is known of what it does since a stall began.
    pub fn doing(&self, standing: &Standing) -> Option<String> {
        let until_ns = standing.since_ns.saturating_add(standing.for_ns);
        self.doing.words(self.pace.driving()?, standing.since_ns, until_ns)
    }

    /// Whether the process with its steps runs.
    fn goes_on(&self) -> bool {
        let runs = |process| self.readings.process_of(process).is_some();
        !self.is_closed() && self.pace.driving().is_some_and(runs)
    }

    /// Its numbers at a moment of its clock.
    pub fn value(&mut self, metric: Metric, now_ns: u64) -> Option<f64> {
        match metric {
            Metric::StepsPerSecond | Metric::SinceStep if !self.goes_on() => None,
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

/// The earlier of two beginnings, each 0 if it is not known.
pub fn earlier(zero: Zero, unix_ns: u64) -> Zero {
    match (zero.unix_ns, unix_ns) {
        (0, known) | (known, 0) => Zero { unix_ns: known },
        (a, b) => Zero { unix_ns: a.min(b) },
    }
}

/// The beginning of a process as an event.
fn start_of(process: Running) -> Happened {
    Happened {
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

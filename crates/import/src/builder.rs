//! Converts the events of a trace to the rows of one file of the run.

use crate::categories::{self, Category};
use crate::comm::Collectives;
use crate::document::{Malformed, Sink};
use crate::error::ImportError;
use crate::event::Event;
use crate::frames::StackFrames;
use crate::implausible::{FilePass, Implausible};
use crate::kinds::Kinds;
use crate::losses::LossReason;
use crate::number;
use crate::output::{Output, Rows};
use crate::pairs::Pairs;
use crate::run_period::{EventMoment, FAR_NS};
use crate::samples::Samples;
use crate::stacks::Stacks;
use crate::threads::Threads;
use crate::top_level::TopLevel;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_trace::run::ProcessInfo;

/// State of one file's conversion, which grows while the trace is read.
pub(crate) struct Builder {
    pub output: Output,
    pub threads: Threads,
    pub facts: TopLevel,
    pub collectives: Collectives,
    pub stacks: Stacks,
    pub spans: Rows<Span>,
    pub kernels: Rows<Kernel>,
    pub copies: Rows<MemoryCopy>,
    pub synchronizations: Rows<Synchronization>,
    pub device_spans: Rows<DeviceSpan>,
    pub allocations: Rows<DeviceAllocation>,
    pub flows: Rows<FlowPoint>,
    pub pairs: Pairs,
    pub kinds: Kinds,
    pub samples: Samples,
    pub stack_frames: StackFrames,
    pub passes: FilePass,
    /// The profiler's own spans, each with the name of its thread. They wait until the file's
    /// process is known.
    pub own_spans: Vec<(Vec<u8>, Span)>,
}

/// Result of reading a file.
pub(crate) struct Built {
    pub output: Output,
    pub processes: Vec<ProcessInfo>,
    /// First and last moment in the file.
    pub extent: Option<(u64, u64)>,
    /// Number of events by phase and category, as JSON.
    pub kinds: serde_json::Value,
    /// Notes for people who read the run.
    pub notes: Vec<String>,
}

/// An event's time as absolute nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Interval {
    pub start_ns: u64,
    pub duration_ns: u64,
}

impl Interval {
    pub fn end_ns(self) -> u64 {
        self.start_ns + self.duration_ns
    }
}

impl Builder {
    /// Creates a builder that fills a file. It leaves out data that an earlier pass found
    /// implausible.
    pub fn new(writer: TraceWriter, implausible: Implausible) -> Builder {
        Builder {
            output: Output::new(writer),
            threads: Threads::default(),
            facts: TopLevel::default(),
            collectives: Collectives::default(),
            stacks: Stacks::default(),
            spans: Rows::default(),
            kernels: Rows::default(),
            copies: Rows::default(),
            synchronizations: Rows::default(),
            device_spans: Rows::default(),
            allocations: Rows::default(),
            flows: Rows::default(),
            pairs: Pairs::default(),
            kinds: Kinds::default(),
            samples: Samples::default(),
            stack_frames: StackFrames::default(),
            passes: FilePass::after(implausible),
            own_spans: Vec::new(),
        }
    }

    /// Returns an event's time on the run's clock. If the time is missing or implausible, counts
    /// the event as lost and returns `None`.
    pub fn time(&mut self, event: &Event<'_>) -> Option<u64> {
        let text = event.text(event.fields().time);
        let Some(time) = number::nanoseconds(text) else {
            let number = number::is_number(number::unquoted(text));
            self.output.tally.count_loss(if number {
                LossReason::Range
            } else {
                LossReason::NoTime
            });
            return None;
        };
        let since_zero = time.checked_add(self.facts.base_ns());
        let Some(time_ns) = since_zero.and_then(|time| u64::try_from(time).ok()) else {
            self.output.tally.count_loss(LossReason::Range);
            return None;
        };
        let moment = EventMoment { time_ns, is_zero: time == 0 || time_ns == 0 };
        self.passes.is_plausible_time(moment, &mut self.output.tally).then_some(time_ns)
    }

    fn interval(&mut self, event: &Event<'_>) -> Option<Interval> {
        let start_ns = self.time(event)?;
        let text = event.text(event.fields().duration);
        let lost = match number::nanoseconds(text).map(u64::try_from) {
            Some(Ok(duration_ns)) if duration_ns > FAR_NS => LossReason::FarTime,
            Some(Ok(duration_ns)) if start_ns.checked_add(duration_ns).is_some() => {
                return Some(Interval { start_ns, duration_ns });
            }
            Some(Ok(_)) => LossReason::Range,
            Some(Err(_)) => LossReason::NegativeDuration,
            None if number::is_number(number::unquoted(text)) => LossReason::Range,
            None => LossReason::Duration,
        };
        self.output.tally.count_loss(lost);
        None
    }

    /// Reads a complete event.
    fn complete(
        &mut self,
        event: Event<'_>,
        category: Category,
        is_first: bool,
    ) -> Result<(), ImportError> {
        let Some(interval) = self.interval(&event) else { return Ok(()) };
        if is_first {
            self.facts.first_event_ns = Some(interval.start_ns);
        }
        match category {
            Category::Kernel => self.kernel(event, interval),
            Category::Copy => self.copy(event, interval),
            Category::KernelOrCopy => match categories::is_copy(event.inner(event.fields().name)) {
                true => self.copy(event, interval),
                false => self.kernel(event, interval),
            },
            Category::Synchronization => self.synchronization(event, interval),
            Category::DeviceSpan(kind) => self.device_span(event, interval, kind),
            Category::User if categories::stream_of(event.inner(event.fields().tid)).is_some() => {
                self.device_span(event, interval, DeviceSpanKind::Annotation)
            }
            Category::Span(..) | Category::OperatorOrAnnotation | Category::User => {
                let (kind, implied) = host_kind(&event, category);
                self.span(event, interval, kind, implied)
            }
        }
    }

    /// Writes pending rows, and the small tables.
    pub fn finish(mut self, rank: Option<u32>) -> Result<Built, ImportError> {
        for (thread, mut span) in std::mem::take(&mut self.own_spans) {
            let (start_ns, end_ns) = (span.start_ns, span.start_ns + span.duration_ns);
            span.thread = self.threads.profiler_thread(&thread, start_ns, end_ns, &mut self.output);
            self.spans.push(span, &mut self.output)?;
        }
        let samples = std::mem::take(&mut self.samples);
        let (threads, stacks, output) = (&mut self.threads, &mut self.stacks, &mut self.output);
        let note = samples.write(threads, &mut self.stack_frames, stacks, output)?;
        let mut notes: Vec<String> = note.into_iter().collect();
        notes.extend(self.passes.overlaps.notes());
        self.stack_frames.write(&mut self.stacks, &mut self.output);
        let output = &mut self.output;
        output.tally.count_losses(LossReason::BeginWithoutEnd, self.pairs.open());
        self.spans.write(output)?;
        self.kernels.write(output)?;
        self.copies.write(output)?;
        self.synchronizations.write(output)?;
        self.device_spans.write(output)?;
        self.allocations.write(output)?;
        self.flows.write(output)?;
        self.collectives.write(output)?;
        self.facts.write(self.collectives.groups(), output);
        let extent = self.threads.extent();
        let processes = self.threads.write(rank, output);
        let time_ns = extent.map_or(0, |extent| extent.0);
        output.write_losses(time_ns);
        let kinds = self.kinds.to_json();
        Ok(Built { output: self.output, processes, extent, kinds, notes })
    }
}

impl Builder {
    /// Counts the members of an event that the trace model has no field for.
    #[inline(always)]
    fn count_members(&mut self, event: &Event<'_>, is_sample: bool) {
        let (layout, fields) = (event.layout(), event.fields());
        if !is_sample {
            let of_samples = [fields.cpu, fields.weight].map(|place| u64::from(place.is_present()));
            self.output.tally.count_losses(LossReason::OtherMembers, of_samples.iter().sum());
        }
        if (layout.repeated | layout.others | u32::from(layout.odd_args)) != 0 {
            self.output.tally.count_losses(LossReason::Repeated, layout.repeated.into());
            self.output.tally.count_losses(LossReason::OtherMembers, layout.others.into());
            self.output.tally.count_losses(LossReason::OddArguments, layout.odd_args.into());
        }
    }
}

/// Returns the kind of a host thread's span, and whether it implies the category.
pub(crate) fn host_kind(event: &Event<'_>, category: Category) -> (SpanKind, bool) {
    match category {
        Category::Span(kind, implied) => (kind, implied),
        Category::OperatorOrAnnotation => {
            let name = event.inner(event.fields().name);
            let is_annotation = categories::is_annotation(name);
            (if is_annotation { SpanKind::Annotation } else { SpanKind::Operator }, false)
        }
        _ => (SpanKind::Other, false),
    }
}

impl Sink for Builder {
    #[inline]
    fn event(&mut self, event: Event<'_>) -> Result<(), ImportError> {
        let is_first = !std::mem::replace(&mut self.output.began, true);
        let fields = event.fields();
        let phase = event.inner(fields.phase);
        let category = self.kinds.count(phase, event.inner(fields.category));
        self.count_members(&event, phase == b"P");
        match phase {
            b"X" => self.complete(event, category, is_first),
            b"s" | b"t" | b"f" => self.flow(event),
            b"i" | b"I" | b"R" => self.instant(event),
            b"M" => {
                self.metadata(event);
                Ok(())
            }
            b"C" => self.counter(event),
            b"B" => {
                self.begin(event, category);
                Ok(())
            }
            b"E" => self.end(event),
            b"P" => {
                self.sample(&event, true);
                Ok(())
            }
            _ => {
                self.output.tally.count_loss(match phase {
                    b"" => LossReason::NoPhase,
                    b"b" | b"e" | b"n" | b"S" | b"T" | b"p" | b"F" => LossReason::AsyncEvent,
                    b"N" | b"O" | b"D" => LossReason::Object,
                    _ => LossReason::UnknownPhase,
                });
                Ok(())
            }
        }
    }

    fn list_sample(&mut self, event: Event<'_>) {
        self.count_members(&event, true);
        self.sample(&event, false);
    }

    fn fact(&mut self, key: &[u8], value: &[u8]) {
        if key == b"stackFrames" {
            self.stack_frames.take(value, &mut self.output);
            return;
        }
        self.facts.take(key, value, &mut self.output);
    }

    fn broken(&mut self, what: Malformed, offset: u64) {
        self.output.tally.count_loss_at(what.into(), offset);
    }
}

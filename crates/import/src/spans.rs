//! Converts spans of host threads: complete events, and begin events with their end events.

use crate::builder::{Builder, Interval, host_kind};
use crate::categories::Category;
use crate::error::ImportError;
use crate::event::Event;
use crate::key::Key;
use crate::losses::LossReason;
use tprof_trace::model::*;

/// Maximum number of the profiler's own spans that wait for [`Builder::finish`].
const MAX_OWN_SPANS: usize = 1000;

impl Builder {
    /// Reads a span of a host thread. If `kind` implies the category (`implied`), the span's
    /// category is not stored.
    #[inline]
    pub fn span(
        &mut self,
        event: Event<'_>,
        interval: Interval,
        kind: SpanKind,
        implied: bool,
    ) -> Result<(), ImportError> {
        let mut span = self.span_of(event.fields().category, &event, kind, implied);
        (span.start_ns, span.duration_ns) = (interval.start_ns, interval.duration_ns);
        self.finish_span(span, event)
    }

    fn span_of(
        &mut self,
        category: crate::event::TextSpan,
        event: &Event<'_>,
        kind: SpanKind,
        implied: bool,
    ) -> Span {
        let category = match implied {
            true => NameId(0),
            false => self.output.name(event.inner(category)),
        };
        Span {
            kind,
            category,
            name: self.output.name(event.inner(event.fields().name)),
            ..Span::default()
        }
    }

    /// Sets the remaining fields of a span whose times are set, and adds the span.
    #[inline]
    fn finish_span(&mut self, mut span: Span, mut event: Event<'_>) -> Result<(), ImportError> {
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let end_ns = span.start_ns + span.duration_ns;
        // PyTorch's profiler writes this text in place of a pid for its own spans.
        if pid == b"\"Spans\"" && self.own_spans.len() < MAX_OWN_SPANS {
            span.process = crate::threads::MAIN;
            span.args = self.output.args(&event);
            self.own_spans.push((event.inner(fields.tid).to_vec(), span));
            return Ok(());
        }
        (span.process, span.thread) =
            self.threads.thread(pid, tid, span.start_ns, end_ns, &mut self.output);
        span.correlation = event.take_u64(Key::Correlation);
        span.external = event.take_u64(Key::External);
        if span.kind == SpanKind::Python {
            span.id = event.take_u64(Key::PythonId);
            span.parent = event.take_u64(Key::PythonParent);
            self.leave_out(&mut event, Key::EventIndex);
        } else {
            span.id = event.take_u64(Key::EventIndex);
            span.sequence = event.take_u64(Key::Sequence);
            span.forward_thread = event.take_u64(Key::ForwardThread);
        }
        self.leave_out(&mut event, Key::RecordFunction);
        span.stack = self.stack_of(span.process, &mut event);
        self.collectives.host(&span, event.inner(fields.name), &mut event, &mut self.output);
        span.args = self.output.args(&event);
        self.spans.push(span, &mut self.output)
    }

    /// Returns the stack at the beginning of a span: from its arguments, or from `stackFrames`.
    #[inline(always)]
    fn stack_of(&mut self, process: ProcessIndex, event: &mut Event<'_>) -> StackId {
        match event.take_inner(Key::CallStack) {
            Some(stack) => self.stacks.stack(process, stack, &mut self.output),
            None => {
                let frame = event.inner(event.fields().frame);
                self.stack_frames.stack(process, frame, &mut self.stacks)
            }
        }
    }

    /// Drops an argument that only numbers the profiler's records, and counts it as a loss. Nothing
    /// in the trace refers to such a number.
    #[inline(always)]
    pub fn leave_out(&mut self, event: &mut Event<'_>, key: Key) {
        if event.take(key).is_some() {
            self.output.tally.count_loss(LossReason::Numbering);
        }
    }

    /// Reads a begin event. Its span is pending until the end event is read.
    pub fn begin(&mut self, mut event: Event<'_>, category: Category) {
        let Some(start_ns) = self.time(&event) else { return };
        let (kind, implied) = host_kind(&event, category);
        let fields = event.fields();
        let mut span = self.span_of(fields.category, &event, kind, implied);
        span.start_ns = start_ns;
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let (process, thread) = self.threads.thread(pid, tid, start_ns, start_ns, &mut self.output);
        (span.process, span.thread) = (process, thread);
        span.stack = self.stack_of(process, &mut event);
        span.args = self.output.args(&event);
        if !self.pairs.begin(span) {
            self.output.tally.count_loss(LossReason::DeepNesting);
        }
    }

    /// Reads an end event. If the event has a name, it ends the thread's last open span with that
    /// name, otherwise the thread's last open span.
    pub fn end(&mut self, event: Event<'_>) -> Result<(), ImportError> {
        let Some(end_ns) = self.time(&event) else { return Ok(()) };
        let fields = event.fields();
        let (pid, tid) = (event.text(fields.pid), event.text(fields.tid));
        let (_, thread) = self.threads.thread(pid, tid, end_ns, end_ns, &mut self.output);
        let name = event.inner(fields.name);
        let name = (!name.is_empty()).then(|| self.output.name(name));
        let Some(mut span) = self.pairs.end(thread, name) else {
            self.output.tally.count_loss(LossReason::EndWithoutBegin);
            return Ok(());
        };
        let Some(duration_ns) = end_ns.checked_sub(span.start_ns) else {
            self.output.tally.count_loss(LossReason::NegativeDuration);
            return Ok(());
        };
        span.duration_ns = duration_ns;
        // A span stores only one object of arguments. If both events have one, the end event's is
        // dropped.
        let args = self.output.args(&event);
        if span.args == NameId(0) {
            span.args = args;
        } else if args != NameId(0) {
            self.output.tally.count_loss(LossReason::EndArguments);
        }
        self.spans.push(span, &mut self.output)
    }
}

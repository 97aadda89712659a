//! Derives properties of single rows for tables that list a rank's rows: the launch, step and class
//! of a piece of work, the span around a span, and which collectives of several ranks are the same.
//!
//! The reports use the same properties, so a sum over such a table equals the report's figure.

use std::cell::Cell;

use tprof_facts::steps::{StepSource, Steps};
use tprof_metrics::program::flops::counted_work;
use tprof_rank::collectives::{Operation, operations, waits_for_all};
use tprof_rank::{
    Class, HostSpan, MaybeNumber, Needs, RankTrace, Step, StreamKey, Work, place_of_span, step_at,
};
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, Span, SpanKind};

/// The rows of a rank, joined with what reports derive for them.
#[derive(Debug)]
pub struct JoinedRank<'t> {
    rank: RankTrace<'t>,
    steps: Vec<Step>,
    steps_of_work: Vec<Option<u32>>,
}

/// A piece of device work, as a row of a file describes it. [`JoinedRank::place`] finds it.
#[derive(Clone, Copy, Debug)]
pub struct WorkRow {
    /// Index of its process.
    pub process: ProcessIndex,
    /// Number of the device.
    pub device: u32,
    /// Context; 0 if unknown.
    pub context: u32,
    /// Number of the stream.
    pub stream: u64,
    /// The beginning of the work, ns.
    pub start_ns: u64,
    /// Duration of the work, ns.
    pub duration_ns: u64,
    /// Number that joins the work to its launch.
    pub correlation: Option<u64>,
    /// Name of the kernel.
    pub name: NameId,
}

/// A call that launched work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchCall {
    /// The beginning of the call, ns.
    pub start_ns: u64,
    /// Duration of the call, ns.
    pub duration_ns: u64,
    /// Index of the calling thread.
    pub thread: u32,
    /// Name of the function.
    pub name: NameId,
}

/// A collective or point-to-point operation as a rank ran it, with the values that identify it
/// among ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinedCollective {
    /// Operation as `torch.distributed` names it, `all_reduce` for example; `kernel` if the
    /// kernel's name does not contain the operation either.
    pub name: String,
    /// Type of an element; empty if unknown.
    pub element_type: String,
    /// The larger of the bytes that the rank sent and those that it received.
    pub bytes: Option<u64>,
    /// Number of ranks that take part.
    pub group_size: Option<u32>,
    /// Communicator, where the trace names one.
    pub communicator: Option<u64>,
    /// Number on its communicator.
    pub sequence: Option<u64>,
    /// Algorithm that its library chose; empty if unknown.
    pub algorithm: String,
    /// Protocol that its library chose; empty if unknown.
    pub protocol: String,
    /// Number of channels.
    pub channels: Option<u32>,
    /// Index of its process.
    pub process: ProcessIndex,
    /// The stream of its kernel; `None` for a collective on the host.
    pub stream: Option<StreamKey>,
    /// The beginning of its kernel, or of its work on the host, ns.
    pub start_ns: u64,
    /// Duration of the kernel or the work, ns.
    pub duration_ns: u64,
    /// The part of the duration that no earlier operation covers, ns.
    pub added_ns: u64,
    /// Number of the step.
    pub step: Option<u64>,
    /// A value that is equal in all ranks that took part in the same collective, if each rank waits
    /// for all others; `None` for other operations.
    pub collective_id: Option<u64>,
    /// The operation's number on its communicator, or its place among equal operations of its step,
    /// from 1.
    pub occurrence: Option<u64>,
}

/// The place of a host span among the spans of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanPlace {
    /// Index of the innermost span that contains the whole span.
    pub parent: Option<u32>,
    /// Number of spans that contain it.
    pub depth: u32,
    /// Duration of the span without that of its children, ns.
    pub self_ns: u64,
    /// Floating-point operations of a counted operator. An operator is counted if it has a formula
    /// and contains no other operator with a formula of the same level.
    pub flops: Option<u64>,
    /// Bytes that a counted operator reads and writes at least.
    pub bytes: Option<u64>,
    /// Index of the innermost counted operator around the span, or of the span itself.
    pub counted: Option<u32>,
}

/// The place of each host span of a rank, found by the span's row.
#[derive(Debug, Default)]
pub struct SpanPlaces {
    /// The key of each span: thread, start, end, kind, name and arguments, in the order in which
    /// spans nest.
    order: Vec<(u32, u64, u64, SpanKind, NameId, NameId)>,
    places: Vec<SpanPlace>,
    /// Whether a place was already returned for a row. Several spans may have the same key, and
    /// each row gets its own place.
    taken: Vec<Cell<bool>>,
}

impl<'t> JoinedRank<'t> {
    /// Reads the rows of a rank and joins device work with its launches, collectives and steps.
    pub fn of(
        file: &'t TraceFile,
        steps_from: Option<StepSource>,
        world_size: Option<u32>,
    ) -> JoinedRank<'t> {
        let needs = Needs::WORK | Needs::CALLS | Needs::COLLECTIVES | Needs::STEPS;
        let mut rank = RankTrace::load(file, needs | Needs::spans(SpanKind::Nvtx));
        (rank.steps_from, rank.world_size) = (steps_from, world_size);
        let steps = rank.steps();
        let steps_of_work = rank.steps_of_work(&steps);
        JoinedRank { rank, steps, steps_of_work }
    }

    /// The rank's steps, with their source.
    pub fn steps(&self) -> &Steps {
        self.rank.steps_found()
    }

    /// Number of the step that a process was in at a time of its host.
    pub fn step_at(&self, process: ProcessIndex, time_ns: u64) -> Option<u64> {
        step_at(&self.steps, process, time_ns).map(|at| self.steps[at as usize].number)
    }

    /// Index of the piece of work that a row describes, for the methods below.
    pub fn place(&self, row: &WorkRow) -> Option<u32> {
        let WorkRow { process, device, context, stream, .. } = *row;
        let stream = StreamKey { process, device, context, stream };
        let stream = self.rank.streams.binary_search(&stream).ok()? as u32;
        let key = (row.start_ns, row.duration_ns, stream, MaybeNumber::from(row.correlation));
        let of = |work: &Work| (work.start_ns, work.duration_ns, work.stream, work.correlation);
        let from = self.rank.work.partition_point(|work| of(work) < key);
        let alike = self.rank.work[from..].iter().take_while(|work| of(work) == key);
        let named = alike.clone().position(|work| work.name == row.name);
        named.or((alike.count() > 0).then_some(0)).map(|at| (from + at) as u32)
    }

    /// The class of a piece of work.
    pub fn class(&self, work: u32) -> Class {
        self.rank.work[work as usize].class
    }

    /// Number of the step in which a piece of work was launched.
    pub fn step_of(&self, work: u32) -> Option<u64> {
        self.steps_of_work[work as usize].map(|at| self.steps[at as usize].number)
    }

    /// The call that launched a piece of work.
    pub fn launch_of(&self, work: u32) -> Option<LaunchCall> {
        let call = &self.rank.calls[self.rank.launches.call_of(work as usize)?];
        let HostSpan { start_ns, duration_ns, thread, name, .. } = *call;
        Some(LaunchCall { start_ns, duration_ns, thread, name })
    }

    /// Returns the collectives and point-to-point operations that ran: those with kernels in order
    /// of the kernels' starts, then those on the host.
    pub fn collectives(&self) -> Vec<JoinedCollective> {
        let (operations, _) = operations(&self.rank);
        let named =
            tprof_rank::meetings::named(&self.rank, &operations, &self.steps, &self.steps_of_work);
        let mut names = named.into_iter().map(|(_, name)| name).collect::<Vec<_>>().into_iter();
        let mut all = Vec::with_capacity(operations.len());
        for operation in operations {
            let stream = operation.work.map(|at| self.rank.work[at as usize].stream as usize);
            let step = match operation.work {
                Some(at) => self.step_of(at),
                None => self.step_at(operation.process, operation.start_ns),
            };
            let named = waits_for_all(&operation.name).then(|| names.next()).flatten();
            let Operation { name, element_type, bytes, group_size, communicator, .. } = operation;
            let Operation { sequence, algorithm, protocol, channels, process, .. } = operation;
            all.push(JoinedCollective {
                name,
                element_type,
                bytes,
                group_size,
                communicator,
                sequence,
                algorithm,
                protocol,
                channels,
                process,
                stream: stream.map(|at| self.rank.streams[at]),
                start_ns: operation.start_ns,
                duration_ns: operation.duration_ns,
                added_ns: operation.added_ns,
                step,
                collective_id: named.map(|name| name.collective_id),
                occurrence: named.map(|name| name.occurrence),
            });
        }
        all
    }
}

impl SpanPlaces {
    /// Reads the host spans of a file and finds the place of each.
    pub fn of(file: &TraceFile) -> SpanPlaces {
        let rank = RankTrace::load(file, Needs::ALL_SPANS);
        let tree = rank.call_tree();
        let mut places = vec![SpanPlace::default(); tree.spans.len()];
        for (at, span) in tree.spans.iter().enumerate() {
            let parent = tree.caller(at as u32);
            let place = &mut places[at];
            (place.parent, place.depth) = (parent, tree.depth(at as u32));
            place.self_ns += span.duration_ns;
            if let Some(parent) = parent {
                let of_parent = &mut places[parent as usize].self_ns;
                *of_parent = of_parent.saturating_sub(span.duration_ns);
            }
        }
        for (at, work) in counted_work(&rank, tree) {
            let place = &mut places[at as usize];
            (place.flops, place.bytes) = (Some(work.flops), work.bytes());
            place.counted = Some(at);
        }
        // Callers come before the spans that they call, so a caller's entry is set before its
        // callees need it.
        for at in 0..places.len() {
            let outer = places[at].parent.and_then(|parent| places[parent as usize].counted);
            places[at].counted = places[at].counted.or(outer);
        }
        let key = |span: &tprof_rank::TreeSpan| {
            (span.thread, span.start_ns, span.end_ns(), span.kind, span.name, span.args)
        };
        let order: Vec<_> = tree.spans.iter().map(key).collect();
        let taken = vec![Cell::new(false); order.len()];
        SpanPlaces { order, places, taken }
    }

    /// Returns the index of the span of a row. Each row must be passed only once: equal rows get
    /// different indices.
    pub fn take(&self, row: &Span) -> Option<u32> {
        let end_ns = row.start_ns.saturating_add(row.duration_ns);
        let order = place_of_span(row.thread, row.start_ns, end_ns, row.kind);
        let of = |key: &(u32, u64, u64, SpanKind, NameId, NameId)| {
            place_of_span(key.0, key.1, key.2, key.3)
        };
        let from = self.order.partition_point(|key| of(key) < order);
        let alike = self.order[from..].iter().take_while(|key| of(key) == order);
        let is_it = |at: &usize| {
            let key = &self.order[*at];
            (key.3, key.4, key.5) == (row.kind, row.name, row.args) && !self.taken[*at].get()
        };
        let at = (from..from + alike.count()).find(is_it)?;
        self.taken[at].set(true);
        Some(at as u32)
    }

    /// The place of a span: its parent, its depth and its own time.
    pub fn place(&self, at: u32) -> SpanPlace {
        self.places[at as usize]
    }
}

//! Holds the rows of one rank file in memory, and caches values that several analyses need.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use tprof_facts::communication::on_host::HostCollective;
use tprof_facts::compile::RankCompile;
use tprof_facts::copies::{self, CopyNameKey};
use tprof_facts::steps::{StepRange, StepSource, Steps};
use tprof_trace::TraceFile;
use tprof_trace::model::{
    Collective, DeviceAllocation, DeviceSpan, NameId, SpanKind, Synchronization,
};

use super::busy::{Busy, ByClass};
use super::call_tree::CallTree;
use super::device_steps::DeviceSteps;
use super::launches::Launches;
use super::needs::Needs;
use super::nested::{ALL_KINDS, Nested};
#[cfg(doc)]
use super::nesting::nesting_order;
use super::rows::{HostSpan, StreamKey, Work, WorkKind};
use super::samples::CpuTrace;
use super::step::Step;
use crate::base::intervals::Interval;
use crate::run::step_cost::StepCost;

/// The rows of one rank file. Tables that were not requested are empty.
#[derive(Debug)]
pub struct RankTrace<'a> {
    /// The file, which contains the names.
    pub file: &'a TraceFile,
    /// The tables that were read.
    pub needs: Needs,
    /// Streams on which something ran, in order.
    pub streams: Vec<StreamKey>,
    /// Kernels, copies and memsets, in order of start.
    pub work: Vec<Work>,
    /// Calls of the runtime and the driver, in order of start.
    pub calls: Vec<HostSpan>,
    /// The work that each call launched; empty unless both tables were read.
    pub launches: Launches,
    /// Waits of the host for devices, in order of start.
    pub synchronizations: Vec<Synchronization>,
    /// Intervals on devices, in order of start.
    pub device_spans: Vec<DeviceSpan>,
    /// Collectives, in order of start.
    pub collectives: Vec<Collective>,
    /// Collectives that ran on the host, in order of start.
    pub host_collectives: Vec<HostCollective>,
    /// Allocations and frees of device memory, in order of time.
    pub allocations: Vec<DeviceAllocation>,
    /// CPU samples, added up by thread, stack and state.
    pub cpu: CpuTrace,
    /// The rank's logs of `torch.compile`.
    pub compile: RankCompile,
    /// Number of ranks that the launcher started; `None` if the launcher did not say.
    pub world_size: Option<u32>,
    /// Cost of recording per step, for analyses that judge steps.
    pub recording: Option<StepCost>,
    /// Number of threads that work on this rank may use.
    pub cores: usize,
    /// The value of [`Self::devices`], once computed.
    devices: OnceLock<Vec<Busy>>,
    /// The values of [`Self::call_tree`] and [`Self::operator_tree`], once computed.
    trees: [OnceLock<CallTree>; 2],
    /// Whether the rank is read as Holistic Trace Analysis does.
    pub hta: bool,
    /// If `hta` is set, the interval from the first row's start to the last one's start.
    pub extent: Option<Interval>,
    /// If `hta` is set, the start of the row that came first in the imported file. HTA uses that
    /// row as the launch of work whose launch was not recorded.
    pub first_row_ns: Option<u64>,
    /// Ranges that may show steps, if annotations were read.
    pub(super) step_ranges: Vec<StepRange>,
    /// The source of steps; `None` for the first source that has any.
    pub steps_from: Option<StepSource>,
    /// The value of [`Self::steps_found`], once computed.
    pub(super) steps_found: OnceLock<Steps>,
    /// The value of [`Self::steps`], once computed.
    pub(super) stepping: OnceLock<Stepping>,
    /// Host spans by kind, without calls, each in [`nesting_order`].
    pub(super) spans: [Vec<HostSpan>; SPAN_KINDS],
}

/// The steps, and their times on each device.
#[derive(Debug)]
pub(super) struct Stepping {
    pub steps: Vec<Step>,
    pub devices: Vec<DeviceSteps>,
}

/// Number of kinds of spans.
pub(super) const SPAN_KINDS: usize = SpanKind::Other as usize + 1;

impl<'a> RankTrace<'a> {
    pub(super) fn empty(file: &'a TraceFile, needs: Needs, cores: usize) -> RankTrace<'a> {
        RankTrace {
            file,
            needs,
            streams: Vec::new(),
            work: Vec::new(),
            calls: Vec::new(),
            launches: Launches::default(),
            synchronizations: Vec::new(),
            device_spans: Vec::new(),
            collectives: Vec::new(),
            host_collectives: Vec::new(),
            allocations: Vec::new(),
            cpu: CpuTrace::default(),
            compile: RankCompile::default(),
            world_size: None,
            recording: None,
            cores,
            hta: false,
            extent: None,
            first_row_ns: None,
            step_ranges: Vec::new(),
            steps_from: None,
            steps_found: OnceLock::new(),
            stepping: OnceLock::new(),
            spans: Default::default(),
            devices: OnceLock::new(),
            trees: Default::default(),
        }
    }

    /// Call trees of all host spans that were read.
    pub fn call_tree(&self) -> &CallTree {
        self.trees[0].get_or_init(|| CallTree::of(self.nested(Needs::ALL_SPANS), self.calls.len()))
    }

    /// Call trees of only operators and calls; of all host spans if the rank is read as Holistic
    /// Trace Analysis does.
    pub fn operator_tree(&self) -> &CallTree {
        if self.hta {
            return self.call_tree();
        }
        let of = Needs::OPERATORS | Needs::CALLS;
        self.trees[1].get_or_init(|| CallTree::of(self.nested(of), self.calls.len()))
    }

    /// Calls and other host spans of these kinds, in the order in which they nest.
    pub fn nested(&self, kinds: Needs) -> Nested<'_> {
        let kinds = ALL_KINDS.into_iter().filter(|kind| kinds.has(Needs::spans(*kind)));
        let lists = kinds.map(|kind| (self.spans(kind), false));
        Nested::of(lists.chain([(&*self.calls, true)]))
    }

    /// Spans of one kind in [`nesting_order`]; calls are in [`Self::calls`].
    #[inline]
    pub fn spans(&self, kind: SpanKind) -> &[HostSpan] {
        &self.spans[kind as usize]
    }

    /// The text of a name.
    #[inline]
    pub fn name(&self, id: NameId) -> &'a str {
        self.file.name(id)
    }

    /// Name of a piece of work: that of a kernel, or of a copy ([`copies::name`]).
    pub fn work_name(&self, work: &Work) -> Cow<'a, str> {
        self.name_of_work(work.name, work.kind)
    }

    /// Like [`Self::work_name`], for a row's name and kind.
    pub fn name_of_work(&self, name: NameId, kind: WorkKind) -> Cow<'a, str> {
        match kind {
            WorkKind::Copy { kind, from, to } => {
                copies::name(self.file, CopyNameKey { name, kind, from, to })
            }
            _ => Cow::Borrowed(self.name(name)),
        }
    }

    /// The stream that a piece of work ran on.
    pub fn stream(&self, work: &Work) -> StreamKey {
        self.streams[work.stream as usize]
    }

    /// The busy times of each device that worked, in order of devices. They are computed at the
    /// first call.
    pub fn devices(&self) -> &[Busy] {
        self.devices.get_or_init(|| {
            let mut devices: BTreeMap<Option<u32>, ByClass> = BTreeMap::new();
            for row in &self.work {
                devices.entry(self.device_of(row)).or_default().add(row);
            }
            devices.into_iter().map(|(device, work)| work.busy(device)).collect()
        })
    }

    /// The indices of all work, in order.
    pub fn all_work(&self) -> Vec<u32> {
        (0..self.work.len() as u32).collect()
    }

    /// The indices of each device's work, in order, from one pass over all work.
    pub fn work_by_device(&self) -> FxHashMap<Option<u32>, Vec<u32>> {
        let mut devices: FxHashMap<Option<u32>, Vec<u32>> = FxHashMap::default();
        for (row, at) in self.work.iter().zip(0..) {
            devices.entry(self.device_of(row)).or_default().push(at);
        }
        devices
    }

    /// The device that a piece of work counts for in [`Self::devices`].
    pub fn device_of(&self, row: &Work) -> Option<u32> {
        (!self.hta).then(|| self.stream(row).device)
    }
}

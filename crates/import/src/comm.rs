//! Joins the parts of each collective into one row. A trace has the host's call, its arguments and
//! its kernel in three places.
//!
//! New versions of PyTorch write the arguments (sizes, type, group) both on the
//! `record_param_comms` operator and on the kernel, with the same external id. Old versions write
//! only an `nccl:…` annotation, which encloses the kernel's launch. If neither was recorded, the
//! kernel's name says which collective it is.

use crate::error::ImportError;
use crate::event::Event;
use crate::group::{Group, group_number};
use crate::key::Key;
use crate::number;
use crate::output::{Output, Rows};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use tprof_facts::communication::arguments::{element_bytes, element_type, elements, operation};
use tprof_facts::communication::{annotation_operation, kernel_operation};
use tprof_trace::model::*;

/// A collective call on the host.
struct Call {
    row: Collective,
    external: Option<u64>,
    /// Whether the sizes come from the communication library's own arguments.
    has_arguments: bool,
}

/// A kernel of a communication library.
struct CommKernel {
    row: Collective,
    external: Option<u64>,
    has_arguments: bool,
}

/// Collectives of one file.
#[derive(Default)]
pub(crate) struct Collectives {
    calls: Vec<Call>,
    kernels: Vec<CommKernel>,
    /// Start, end and index of calls, by thread.
    windows: FxHashMap<ThreadIndex, BTreeSet<(u64, u64, u32)>>,
    /// Launches within calls, by correlation.
    launches: FxHashMap<u64, u32>,
    groups: BTreeMap<u64, Group>,
    /// For each kernel name, the operation if the kernel communicates.
    operations: FxHashMap<NameId, Option<&'static str>>,
}

impl Collectives {
    /// Reads a host span. Only calls of a collective, and launches within such a call, matter.
    #[inline]
    pub fn host(&mut self, span: &Span, name: &[u8], event: &mut Event<'_>, output: &mut Output) {
        match span.kind {
            SpanKind::Runtime | SpanKind::Driver => self.launch(span),
            SpanKind::Operator if name == b"record_param_comms" && event.has(Key::Collective) => {
                self.call(span, event, output);
            }
            SpanKind::Annotation => {
                let text = String::from_utf8_lossy(name);
                if let Some(operation) = annotation_operation(&text) {
                    self.annotation(span, operation, event, output);
                }
            }
            _ => (),
        }
    }

    fn launch(&mut self, span: &Span) {
        let Some(calls) = self.windows.get(&span.thread) else { return };
        let Some(correlation) = span.correlation else { return };
        // The innermost call that contains the launch is among the last few calls that began before
        // it.
        let mut around = calls.range(..=(span.start_ns, u64::MAX, u32::MAX)).rev().take(4);
        if let Some((_, _, call)) = around.find(|call| call.1 >= span.start_ns) {
            self.launches.insert(correlation, *call);
        }
    }

    fn add_call(&mut self, span: &Span, row: Collective, has_arguments: bool) {
        let end_ns = span.start_ns + span.duration_ns;
        let row = Collective {
            start_ns: span.start_ns,
            duration_ns: Some(span.duration_ns),
            process: span.process,
            thread: Some(span.thread),
            ..row
        };
        let calls = self.windows.entry(span.thread).or_default();
        calls.insert((span.start_ns, end_ns, self.calls.len() as u32));
        self.calls.push(Call { row, external: span.external, has_arguments });
    }

    fn call(&mut self, span: &Span, event: &mut Event<'_>, output: &mut Output) {
        let row = self.arguments(event, output);
        // An operator that waits for a collective or initializes a group isn't a collective.
        if !matches!(event.peek(Key::Collective), Some(b"\"wait\"" | b"\"init\"")) {
            self.add_call(span, row, true);
        }
    }

    fn annotation(&mut self, span: &Span, name: &str, event: &mut Event<'_>, output: &mut Output) {
        let elements_in = event.peek(Key::InputDims).and_then(elements);
        let types = event.peek(Key::InputTypes).unwrap_or_default();
        let element_type = types.split(|byte| *byte == b'"').nth(1).map_or("", element_type);
        let row = Collective {
            name: output.plain_name(&operation(name)),
            elements_in,
            element_type: output.plain_name(element_type),
            bytes: elements_in.and_then(|n| n.checked_mul(element_bytes(element_type)?)),
            ..Collective::default()
        };
        self.add_call(span, row, false);
    }

    /// Reads the arguments of the communication library from the host's call or from its kernel.
    /// The arguments also stay in the event's `args`.
    fn arguments(&mut self, event: &mut Event<'_>, output: &mut Output) -> Collective {
        let text = |event: &mut Event<'_>, key| {
            let text = event.peek(key).map(number::unquoted).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let whole = |event: &mut Event<'_>, key| {
            event.peek(key).and_then(|text| number::unsigned(number::unquoted(text)))
        };
        let element_type = text(event, Key::DataType);
        let (sent, received) = (whole(event, Key::ElementsIn), whole(event, Key::ElementsOut));
        let group_size = whole(event, Key::GroupSize).and_then(|size| u32::try_from(size).ok());
        let group = event.has(Key::GroupName).then(|| {
            let name = text(event, Key::GroupName);
            let number = group_number(&name);
            self.groups.entry(number).or_insert_with(|| {
                let (description, ranks) =
                    (text(event, Key::GroupDescription), text(event, Key::GroupRanks));
                Group { name, description, ranks, size: group_size }
            });
            number
        });
        let peer = [Key::Root, Key::Destination, Key::Source];
        let peer = peer.into_iter().find_map(|key| whole(event, key));
        Collective {
            name: output.plain_name(&operation(&text(event, Key::Collective))),
            communicator: group,
            sequence: whole(event, Key::CollectiveSequence),
            elements_in: sent,
            elements_out: received,
            element_type: output.plain_name(&element_type),
            bytes: sent.max(received).and_then(|n| n.checked_mul(element_bytes(&element_type)?)),
            group_size,
            peer: peer.and_then(|peer| u32::try_from(peer).ok()),
            ..Collective::default()
        }
    }

    /// Reads a kernel.
    #[inline]
    pub fn kernel(
        &mut self,
        kernel: &Kernel,
        name: &[u8],
        event: &mut Event<'_>,
        output: &mut Output,
    ) {
        let has_arguments = event.has(Key::Collective);
        let by_name = || kernel_operation(&String::from_utf8_lossy(name));
        let operation = *self.operations.entry(kernel.name).or_insert_with(by_name);
        let row = match (has_arguments, operation) {
            (true, _) => self.arguments(event, output),
            (false, Some(operation)) => {
                Collective { name: output.plain_name(operation), ..Collective::default() }
            }
            (false, None) => return,
        };
        let row = Collective {
            start_ns: kernel.start_ns,
            process: kernel.process,
            stream: Some(kernel.stream),
            correlation: kernel.correlation,
            ..row
        };
        // Old versions wrote the correlation in place of the external id.
        let external = kernel.external.filter(|external| Some(*external) != kernel.correlation);
        self.kernels.push(CommKernel { row, external, has_arguments });
    }

    /// Returns the process groups that were named.
    pub fn groups(&mut self) -> BTreeMap<u64, Group> {
        std::mem::take(&mut self.groups)
    }

    /// Joins calls with their kernels, and writes a row for each collective.
    pub fn write(&mut self, output: &mut Output) -> Result<(), ImportError> {
        let holders = self.holders();
        let mut by_external = FxHashMap::default();
        for (call, index) in self.calls.iter().zip(0_u32..).filter(|(call, _)| call.has_arguments) {
            if let Some(external) = call.external {
                by_external.insert(external, index);
            }
        }
        let mut rows = Rows::default();
        for kernel in &self.kernels {
            let launched = kernel.row.correlation.and_then(|c| self.launches.get(&c)).copied();
            let launched = launched.map(|call| holders.get(&call).copied().unwrap_or(call));
            let call = launched.or_else(|| by_external.get(&kernel.external?).copied());
            match call.map(|call| &mut self.calls[call as usize]) {
                Some(call) => {
                    call.row.correlation = call.row.correlation.or(kernel.row.correlation);
                    call.row.stream = call.row.stream.or(kernel.row.stream);
                    if kernel.has_arguments && !call.has_arguments {
                        call.row = Collective {
                            start_ns: call.row.start_ns,
                            duration_ns: call.row.duration_ns,
                            process: call.row.process,
                            thread: call.row.thread,
                            ..kernel.row
                        };
                    }
                }
                None => rows.push(kernel.row, output)?,
            }
        }
        for (call, index) in self.calls.iter().zip(0_u32..) {
            if !holders.contains_key(&index) {
                rows.push(call.row, output)?;
            }
        }
        rows.write(output)
    }

    /// Finds the annotations that lie within a call with known arguments. Such an annotation and
    /// the call are the same collective, recorded twice.
    fn holders(&self) -> FxHashMap<u32, u32> {
        let mut holders = FxHashMap::default();
        for calls in self.windows.values() {
            let mut calls: Vec<_> = calls.iter().copied().collect();
            calls.sort_unstable_by_key(|(start, end, _)| (*start, !*end));
            let mut holder: Option<(u64, u32)> = None;
            for (start, end, call) in calls {
                if self.calls[call as usize].has_arguments {
                    holder = Some((end, call));
                } else if let Some((until, by)) = holder
                    && end <= until
                    && start < until
                {
                    holders.insert(call, by);
                }
            }
        }
        holders
    }
}

//! Lists a rank's communication operations. Each has the duration of its kernel, or of its work on
//! the host.

use rustc_hash::FxHashMap;
use tprof_facts::communication::arguments::element_bytes;
use tprof_facts::communication::kernel_operation;
use tprof_facts::communication::on_host::HostCollective;
use tprof_trace::model::{Collective, NameId, ProcessIndex};

use super::messages::{Message, OwnNumbers, message_of};
use super::roles::{Role, roles};
use crate::rank::{Class, RankTrace};

/// A collective or point-to-point operation, as one rank ran it: one kernel, or one piece of work
/// on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Operation as `torch.distributed` names it, `all_reduce` for example; `kernel` if the
    /// kernel's name does not contain the operation either.
    pub name: String,
    /// Type of an element; empty if unknown.
    pub element_type: String,
    /// The larger of the bytes that the rank sent and those that it received. If operations were
    /// grouped into one kernel, this is their sum.
    pub bytes: Option<u64>,
    /// Bytes that the rank received; `None` if the trace does not tell. If operations were grouped
    /// into one kernel, this is their sum.
    pub received_bytes: Option<u64>,
    /// The messages of an operation that consists of sends and receives; empty for other
    /// operations, or if some of the ranks that exchange them are not known.
    pub messages: Vec<Message>,
    /// Number of ranks that take part.
    pub group_size: Option<u32>,
    /// Communicator, where the trace names one.
    pub communicator: Option<u64>,
    /// What the communicator's ranks divide among themselves.
    pub role: Role,
    /// The operation's number on its communicator.
    pub sequence: Option<u64>,
    /// Algorithm that its library chose; empty if it is unknown, or not the same for all operations
    /// of a group.
    pub algorithm: String,
    /// Protocol that its library chose; empty in the same cases as `algorithm`.
    pub protocol: String,
    /// Number of channels; `None` if it is unknown, or not the same for all operations of a group.
    pub channels: Option<u32>,
    /// Index of its process.
    pub process: ProcessIndex,
    /// The beginning of the operation, ns.
    pub start_ns: u64,
    /// Duration of the operation, ns.
    pub duration_ns: u64,
    /// The part of the duration that no earlier operation covers, ns: operations on the host that
    /// wait for the same rank at the same time wait only once. For a kernel, this is the whole
    /// duration, since the kernels of one stream follow each other.
    pub added_ns: u64,
    /// Index of its kernel in the rank's work; `None` for an operation on the host.
    pub work: Option<u32>,
}

/// Returns the operations of a rank: first those that ran a kernel, in order of the kernels'
/// starts, then those on the host. Also returns the number of operations whose kernel was not
/// recorded; these are left out.
pub fn operations(rank: &RankTrace) -> (Vec<Operation>, u64) {
    let mut rows: FxHashMap<(ProcessIndex, u64), Vec<&Collective>> = FxHashMap::default();
    let mut without_kernel = 0;
    for row in &rank.collectives {
        match row.correlation {
            Some(correlation) => rows.entry((row.process, correlation)).or_default().push(row),
            None => without_kernel += 1,
        }
    }
    let sizes = group_sizes(rank);
    let roles = roles(rank);
    let numbers = OwnNumbers::of(rank);
    let mut operations = Vec::new();
    let communication = |work: &&crate::rank::Work| work.class == Class::Communication;
    let kernels = rank.work.iter().zip(0_u32..).filter(|(work, _)| communication(work));
    for (work, at) in kernels {
        let process = rank.stream(work).process;
        let key = work.correlation.get().map(|correlation| (process, correlation));
        // The first kernel of a correlation is the operation's kernel. Later kernels with the same
        // correlation do not wait for other ranks, so they don't count.
        let group = key.and_then(|key| rows.remove(&key));
        let mut operation = match &group {
            Some(group) => {
                let messages = numbers.messages(rank, group);
                Operation { messages, ..of_group(rank, group, &sizes) }
            }
            None => of_kernel(rank.name(work.name)),
        };
        operation.process = process;
        let key = operation.communicator.map(|communicator| (process, communicator));
        operation.role = key.and_then(|key| roles.get(&key).copied()).unwrap_or_default();
        operation.start_ns = work.start_ns;
        operation.duration_ns = work.duration_ns;
        operation.added_ns = work.duration_ns;
        operation.work = Some(at);
        operations.push(operation);
    }
    operations.extend(on_host(rank, &numbers));
    without_kernel += rows.values().map(|group| group.len() as u64).sum::<u64>();
    (operations, without_kernel)
}

/// Sizes of communicators, for operations whose own row lacks the size of their group.
fn group_sizes(rank: &RankTrace) -> FxHashMap<(ProcessIndex, u64), u32> {
    let communicators = rank.file.communicators().iter();
    communicators.filter_map(|row| Some(((row.process, row.communicator), row.size?))).collect()
}

/// Returns the collectives that ran on the host. The group that ran a collective is not recorded,
/// but in a job of two ranks it consists of both.
fn on_host<'r>(
    rank: &'r RankTrace,
    numbers: &'r OwnNumbers,
) -> impl Iterator<Item = Operation> + 'r {
    let mut ends: FxHashMap<ProcessIndex, u64> = FxHashMap::default();
    rank.host_collectives.iter().map(move |row| {
        let HostCollective { start_ns, duration_ns, process, what } = row;
        let end_ns = start_ns.saturating_add(*duration_ns);
        let last_ns = ends.entry(*process).or_default();
        let added_ns = end_ns.saturating_sub(*start_ns.max(last_ns));
        *last_ns = end_ns.max(*last_ns);
        let own = numbers.on_host(what.ranks);
        let message = message_of(&what.name, None, own, what.peer, what.bytes);
        Operation {
            name: what.name.clone(),
            element_type: what.element_type.clone(),
            bytes: what.bytes,
            messages: message.into_iter().collect(),
            group_size: what
                .ranks
                .or_else(|| size_on_host(rank, *process))
                .or(rank.world_size.filter(|size| *size <= 2)),
            process: *process,
            start_ns: *start_ns,
            duration_ns: *duration_ns,
            added_ns,
            ..Operation::default()
        }
    })
}

/// The size of the groups of a process that communicate on the host; `None` unless all have the
/// same size.
fn size_on_host(rank: &RankTrace, process: ProcessIndex) -> Option<u32> {
    let is_on_host = |backend: &str| backend.contains("gloo") || backend.contains("mpi");
    let communicators = rank.file.communicators().iter();
    let mut sizes = communicators
        .filter(|row| row.process == process && is_on_host(rank.name(row.backend)))
        .map(|row| row.size);
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

fn of_group(
    rank: &RankTrace,
    group: &[&Collective],
    sizes: &FxHashMap<(ProcessIndex, u64), u32>,
) -> Operation {
    let first = group[0];
    let same = |of: fn(&Collective) -> NameId| group.iter().all(|row| of(row) == of(first));
    let mut names: Vec<&str> = group.iter().map(|row| rank.name(row.name)).collect();
    names.sort_unstable();
    names.dedup();
    let alike = names.len() == 1;
    let size = |row: &Collective| {
        row.group_size.or_else(|| sizes.get(&(row.process, row.communicator?)).copied())
    };
    let chosen = |of: fn(&Collective) -> Option<NameId>| {
        let one = of(first).filter(|_| group.iter().all(|row| of(row) == of(first)));
        one.map_or(String::new(), |name| rank.name(name).to_owned())
    };
    Operation {
        name: names.join("+"),
        element_type: match same(|row| row.element_type) {
            true => rank.name(first.element_type).to_owned(),
            false => String::new(),
        },
        received_bytes: group.iter().map(|row| received_bytes(rank, row)).sum(),
        bytes: alike.then(|| group.iter().map(|row| row.bytes).sum::<Option<u64>>()).flatten(),
        group_size: size(first)
            .filter(|of_first| group.iter().all(|row| size(row) == Some(*of_first))),
        communicator: first.communicator,
        sequence: first.sequence,
        algorithm: chosen(|row| row.algorithm),
        protocol: chosen(|row| row.protocol),
        channels: first
            .channels
            .filter(|of_first| group.iter().all(|row| row.channels == Some(*of_first))),
        ..Operation::default()
    }
}

/// Returns the bytes that a rank received in an operation. The hooks of NCCL record only the size of
/// a receive.
fn received_bytes(rank: &RankTrace, row: &Collective) -> Option<u64> {
    let element_bytes = || element_bytes(rank.name(row.element_type));
    match rank.name(row.name) {
        "send" => Some(0),
        "recv" => row.bytes,
        _ => row.elements_out?.checked_mul(element_bytes()?),
    }
}

fn of_kernel(name: &str) -> Operation {
    let name = match kernel_operation(name) {
        None | Some("") => "kernel",
        Some(operation) => operation,
    };
    Operation { name: name.to_owned(), ..Operation::default() }
}

/// Whether each rank of an operation waits for all others that take part.
pub fn waits_for_all(operation: &str) -> bool {
    ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
        .iter()
        .any(|prefix| operation.trim_start_matches('_').starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Kernel, Span, SpanKind};

    use super::*;
    use crate::rank::Needs;

    fn kernel(start_ns: u64, correlation: u64) -> Kernel {
        let correlation = Some(correlation);
        Kernel { start_ns, duration_ns: 500, correlation, ..Kernel::default() }
    }

    #[test]
    fn equal_operations_of_a_group_add_up_and_mixed_ones_have_no_size() {
        let mut trace = Fixture::new();
        let names = ["all_reduce", "send", "recv"].map(|name| trace.name(name));
        let row = |name, correlation, bytes| Collective {
            name,
            correlation: Some(correlation),
            bytes: Some(bytes),
            group_size: Some(4),
            ..Collective::default()
        };
        trace.collectives.extend([
            row(names[0], 1, 100),
            row(names[0], 1, 50),
            row(names[1], 2, 10),
            row(names[2], 2, 10),
            row(names[0], 9, 1),
        ]);
        trace.kernel(kernel(10, 1), "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
        trace.kernel(kernel(20, 2), "ncclDevKernel_SendRecv");
        trace.kernel(kernel(30, 3), "ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)");
        trace.kernel(kernel(40, 4), "gemm");
        let file = trace.finish();
        let rank = RankTrace::load(&file, Needs::WORK | Needs::COLLECTIVES);
        let (operations, without_kernel) = operations(&rank);
        let seen: Vec<_> =
            operations.iter().map(|o| (o.name.as_str(), o.bytes, o.group_size)).collect();
        assert_eq!(
            seen,
            [
                ("all_reduce", Some(150), Some(4)),
                ("recv+send", None, Some(4)),
                ("reduce_scatter", None, None),
            ]
        );
        assert_eq!((operations[0].start_ns, operations[0].duration_ns), (10, 500));
        assert_eq!(without_kernel, 1);
    }

    #[test]
    fn simultaneous_waits_of_host_collectives_count_once() {
        let mut trace = Fixture::new();
        for (start_ns, end_ns) in [(100, 500), (200, 530), (250, 300), (600, 700)] {
            let duration_ns = end_ns - start_ns;
            let kind = SpanKind::Annotation;
            trace.span(Span { start_ns, duration_ns, kind, ..Span::default() }, "gloo:all_reduce");
        }
        let file = trace.finish();
        let rank = RankTrace::load(&file, Needs::COLLECTIVES);
        let (operations, without_kernel) = operations(&rank);
        let times: Vec<_> = operations.iter().map(|o| (o.duration_ns, o.added_ns)).collect();
        assert_eq!(times, [(400, 400), (330, 30), (50, 0), (100, 100)]);
        assert_eq!(without_kernel, 0);
    }

    #[test]
    fn a_host_collective_of_two_ranks_involves_both() {
        let mut trace = Fixture::new();
        let row =
            Span { start_ns: 100, duration_ns: 50, kind: SpanKind::Annotation, ..Span::default() };
        trace.span(row, "gloo:all_reduce");
        let file = trace.finish();
        let mut rank = RankTrace::load(&file, Needs::COLLECTIVES);
        // In a job of more ranks, the group may consist of only some of them, so its size is
        // unknown.
        for (world_size, group_size) in [(None, None), (Some(2), Some(2)), (Some(3), None)] {
            rank.world_size = world_size;
            assert_eq!(operations(&rank).0[0].group_size, group_size);
        }
    }

    #[test]
    fn a_broadcast_does_not_wait_for_all_ranks() {
        assert!(waits_for_all("all_reduce") && waits_for_all("_all_gather_base"));
        assert!(!waits_for_all("broadcast") && !waits_for_all("recv+send"));
    }
}

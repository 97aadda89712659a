//! Finds operations between ranks that run on the host: those of gloo and MPI.
//!
//! For MPI, the preloaded library records the calls that return when the rank's part is over: spans
//! with the functions' names (`MPI_Allreduce`). PyTorch's process groups put a range around the
//! work itself (ProcessGroupGloo.cpp and ProcessGroupMPI.cpp, `profilingTitle`: `gloo:all_reduce`).
//! The range begins when a thread of the group starts the operation and ends when the operation is
//! over. So its duration includes the wait for the last rank, as that of an NCCL kernel does.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline};

use super::arguments::{element_bytes, element_type, elements, operation};

/// Prefixes of ranges around a collective on the host.
const BACKENDS: [&str; 2] = ["gloo:", "mpi:"];

/// A collective that ran on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCollective {
    /// The time at which a thread started the operation, ns.
    pub start_ns: u64,
    /// Duration including the wait for other ranks, ns.
    pub duration_ns: u64,
    /// Index of its process.
    pub process: ProcessIndex,
    /// The operation with its arguments.
    pub what: HostOperation,
}

/// The operation of a collective on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostOperation {
    /// Operation as `torch.distributed` names it: `all_reduce`.
    pub name: String,
    /// Type of an element; empty if unknown.
    pub element_type: String,
    /// Bytes that this rank sent, or the larger of sent and received bytes; `None` if unknown.
    pub bytes: Option<u64>,
    /// Number of ranks that take part, if the span has it.
    pub ranks: Option<u32>,
    /// The root, or the other rank of a send or receive, if the span has it.
    pub peer: Option<u32>,
}

/// Functions of MPI that run operations between ranks, with the operations' names in
/// `torch.distributed`.
const FUNCTIONS: [(&str, &str); 21] = [
    ("MPI_Barrier", "barrier"),
    ("MPI_Bcast", "broadcast"),
    ("MPI_Allreduce", "all_reduce"),
    ("MPI_Reduce", "reduce"),
    ("MPI_Allgather", "all_gather"),
    ("MPI_Allgatherv", "all_gather"),
    ("MPI_Gather", "gather"),
    ("MPI_Gatherv", "gather"),
    ("MPI_Scatter", "scatter"),
    ("MPI_Scatterv", "scatter"),
    ("MPI_Alltoall", "all_to_all"),
    ("MPI_Alltoallv", "all_to_all"),
    ("MPI_Alltoallw", "all_to_all"),
    ("MPI_Reduce_scatter", "reduce_scatter"),
    ("MPI_Reduce_scatter_block", "reduce_scatter"),
    ("MPI_Scan", "scan"),
    ("MPI_Exscan", "exscan"),
    ("MPI_Send", "send"),
    ("MPI_Ssend", "send"),
    ("MPI_Recv", "recv"),
    ("MPI_Sendrecv", "send_recv"),
];

/// Returns the operation of a span with this name, if the span may be one: `all_reduce` for
/// `gloo:all_reduce` and `MPI_Allreduce`.
pub fn host_operation(name: &str) -> Option<&str> {
    let of_range = BACKENDS.iter().find_map(|backend| name.strip_prefix(backend));
    let known = || FUNCTIONS.iter().find(|(function, _)| *function == name).map(|of| of.1);
    of_range.or_else(|| name.starts_with("MPI_").then(known).flatten())
}

/// Finds operations between ranks among the spans of a file. Equal texts of arguments are parsed
/// only once.
pub struct HostCollectives<'f> {
    file: &'f TraceFile,
    names: FxHashSet<NameId>,
    operations: FxHashMap<(NameId, NameId), HostOperation>,
}

impl<'f> HostCollectives<'f> {
    /// Prepares the search; `None` if no name in the file is that of such an operation.
    pub fn of(file: &'f TraceFile) -> Option<HostCollectives<'f>> {
        let is_range = |(_, name): &(NameId, &str)| host_operation(name).is_some();
        let names: FxHashSet<NameId> = file.names().filter(is_range).map(|(id, _)| id).collect();
        let operations = FxHashMap::default();
        (!names.is_empty()).then_some(HostCollectives { file, names, operations })
    }

    /// Returns the operation that a span stands for, if it is one.
    pub fn find(&mut self, span: &SpanOutline) -> Option<HostCollective> {
        let may_be =
            matches!(span.kind, SpanKind::Annotation | SpanKind::Operator | SpanKind::Other);
        if !may_be || !self.names.contains(&span.name) {
            return None;
        }
        let of = || HostOperation::of(self.file.name(span.name), self.file.name(span.args));
        let what = self.operations.entry((span.name, span.args)).or_insert_with(of).clone();
        // The preloaded library records the number of ranks only for MPI calls that succeeded.
        // Other calls exchanged nothing and don't count.
        let is_call = span.kind == SpanKind::Other;
        if is_call && what.ranks.is_none() {
            return None;
        }
        let SpanOutline { start_ns, duration_ns, process, .. } = *span;
        Some(HostCollective { start_ns, duration_ns, process, what })
    }
}

impl HostOperation {
    /// Reads a span's name and arguments. torch.profiler writes the arguments of a range, the
    /// collector those of a call.
    fn of(name: &str, args: &str) -> HostOperation {
        let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
        let whole = |key: &str| args.get(key).and_then(serde_json::Value::as_u64);
        let dims = args.get("Input Dims").map(ToString::to_string);
        let elements = dims.and_then(|dims| elements(dims.as_bytes()));
        let types = args.get("Input type").and_then(|types| types.as_array());
        let first = types.and_then(|types| types.first()?.as_str()).unwrap_or_default();
        let element_type = element_type(first.as_bytes());
        let of_range = elements.and_then(|n| n.checked_mul(element_bytes(element_type)?));
        HostOperation {
            name: operation(host_operation(name).unwrap_or(name)),
            element_type: element_type.to_owned(),
            bytes: of_range.or_else(|| whole("bytes")),
            ranks: whole("ranks").and_then(|ranks| u32::try_from(ranks).ok()),
            peer: whole("peer").and_then(|peer| u32::try_from(peer).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Span;
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn ranges_of_process_groups_and_calls_of_mpi_are_operations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut spans = Vec::new();
        let mut span = |kind, name: &str, args: &str| {
            let (name, args) = (writer.name(name), writer.name(args));
            let at = 10 * (spans.len() as u64 + 1);
            spans.push(Span { kind, name, args, start_ns: at, duration_ns: 5, ..Span::default() });
        };
        let args = r#"{"Input Dims":[[1024,2]],"Input type":["float"]}"#;
        span(SpanKind::Annotation, "gloo:all_reduce", args);
        span(SpanKind::Annotation, "gloo:barrier", "");
        span(SpanKind::Annotation, "mpi:_allgather_base", r#"{"Input Dims":[[7]]}"#);
        span(SpanKind::Annotation, "nccl:all_reduce", args);
        span(SpanKind::Python, "gloo:all_reduce", args);
        span(SpanKind::Other, "MPI_Alltoall", r#"{"bytes":96,"ranks":4}"#);
        span(SpanKind::Other, "MPI_Wait", "");
        span(SpanKind::Other, "MPI_Recv", r#"{"ranks":4,"peer":3}"#);
        span(SpanKind::Other, "MPI_Bcast", r#"{"peer":7}"#);
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let mut finder = HostCollectives::of(&file).unwrap();
        let found: Vec<HostCollective> =
            file.blocks::<SpanOutline>().flatten().filter_map(|span| finder.find(&span)).collect();
        let words = |one: &HostCollective| {
            let HostOperation { name, element_type, bytes, ranks, peer } = &one.what;
            format!("{} {name} {element_type} {bytes:?} {ranks:?} {peer:?}", one.start_ns)
        };
        let words: Vec<String> = found.iter().map(words).collect();
        assert_eq!(
            words,
            [
                "10 all_reduce Float Some(8192) None None",
                "20 barrier  None None None",
                "30 all_gather  None None None",
                "60 all_to_all  Some(96) Some(4) None",
                "80 recv  None Some(4) Some(3)",
            ]
        );
    }
}

//! Collectives that run on the host: gloo's and those of PyTorch over MPI.
//!
//! PyTorch's process groups put a range around the work itself (ProcessGroupGloo.cpp and
//! ProcessGroupMPI.cpp, `profilingTitle`: `gloo:all_reduce`). It begins when a thread of the group
//! takes the operation up and ends when the operation is over, so that it holds the wait for the
//! last rank, as a kernel of NCCL's does.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline};

use super::arguments::{element_bytes, element_type, elements, operation};

/// How ranges around a collective on the host begin.
const BACKENDS: [&str; 2] = ["gloo:", "mpi:"];

/// A collective that ran on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCollective {
    /// When a thread took it up, ns.
    pub start_ns: u64,
    /// How long it took, the wait for other ranks included.
    pub duration_ns: u64,
    /// Its process.
    pub process: ProcessIndex,
    /// What it did, and with what.
    pub what: HostOperation,
}

/// What a collective on the host did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOperation {
    /// Operation as `torch.distributed` names it: `all_reduce`.
    pub name: String,
    /// Type of an element; empty if unknown.
    pub element_type: String,
    /// Bytes that this rank gave; none if unknown.
    pub bytes: Option<u64>,
}

/// The operation in the name of such a range: `all_reduce` of `gloo:all_reduce`.
pub fn range_operation(name: &str) -> Option<&str> {
    BACKENDS.iter().find_map(|backend| name.strip_prefix(backend))
}

/// Finds such ranges among the spans of a file; each text of arguments is read once.
pub struct HostCollectives<'f> {
    file: &'f TraceFile,
    names: FxHashSet<NameId>,
    operations: FxHashMap<(NameId, NameId), HostOperation>,
}

impl<'f> HostCollectives<'f> {
    /// Of a file; none where no name of it is one of theirs.
    pub fn of(file: &'f TraceFile) -> Option<HostCollectives<'f>> {
        let is_range = |(_, name): &(NameId, &str)| range_operation(name).is_some();
        let names: FxHashSet<NameId> = file.names().filter(is_range).map(|(id, _)| id).collect();
        let operations = FxHashMap::default();
        (!names.is_empty()).then_some(HostCollectives { file, names, operations })
    }

    /// What a span is, if it is such a range.
    pub fn find(&mut self, span: &SpanOutline) -> Option<HostCollective> {
        let may_be = matches!(span.kind, SpanKind::Annotation | SpanKind::Operator);
        if !may_be || !self.names.contains(&span.name) {
            return None;
        }
        let of = || HostOperation::of(self.file.name(span.name), self.file.name(span.args));
        let what = self.operations.entry((span.name, span.args)).or_insert_with(of).clone();
        let SpanOutline { start_ns, duration_ns, process, .. } = *span;
        Some(HostCollective { start_ns, duration_ns, process, what })
    }
}

impl HostOperation {
    /// By a range's name and its arguments, as torch.profiler writes them.
    fn of(name: &str, args: &str) -> HostOperation {
        let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
        let dims = args.get("Input Dims").map(ToString::to_string);
        let elements = dims.and_then(|dims| elements(dims.as_bytes()));
        let types = args.get("Input type").and_then(|types| types.as_array());
        let first = types.and_then(|types| types.first()?.as_str()).unwrap_or_default();
        let element_type = element_type(first.as_bytes());
        let bytes = elements.and_then(|n| n.checked_mul(element_bytes(element_type)?));
        let name = range_operation(name).unwrap_or(name);
        HostOperation { name: operation(name), element_type: element_type.to_owned(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Span;
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn ranges_of_process_groups_on_the_host_are_collectives() {
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
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        let mut finder = HostCollectives::of(&file).unwrap();
        let found: Vec<HostCollective> =
            file.blocks::<SpanOutline>().flatten().filter_map(|span| finder.find(&span)).collect();
        let words = |one: &HostCollective| {
            let HostOperation { name, element_type, bytes } = &one.what;
            format!("{} {name} {element_type} {bytes:?}", one.start_ns)
        };
        let words: Vec<String> = found.iter().map(words).collect();
        assert_eq!(
            words,
            ["10 all_reduce Float Some(8192)", "20 barrier  None", "30 all_gather  None"]
        );
    }
}

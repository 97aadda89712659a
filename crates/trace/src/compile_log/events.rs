//! Lists the events that PyTorch writes, and counts how many of each a log contains.

use std::collections::BTreeMap;

/// How this reader uses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventUse {
    /// The event's content is in the [`super::CompileLog`].
    Read,
    /// The event is known, but only counted.
    Counted,
    /// No version of PyTorch that this reader was made for writes the event.
    Unknown,
}

/// The number of events with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCount {
    /// How the reader used them.
    pub usage: EventUse,
    /// Number of events.
    pub count: u64,
    /// Total size of the events' lines and payloads, bytes.
    pub bytes: u64,
}

/// Events whose content is read.
const READ: &[&str] = &[
    "artifact",
    "bwd_compilation_metrics",
    "bwd_compilation_metrics_runtime",
    "aot_autograd_backward_compilation_metrics",
    "chromium_event",
    "compilation_metrics",
    "compilation_metrics_runtime",
    "dynamo_output_graph",
    "dynamo_start",
    "inductor_output_code",
    "inductor_post_grad_graph",
    "str",
];

/// Events of PyTorch 2.4 to 2.15 that are only counted.
const COUNTED: &[&str] = &[
    "aot_backward_graph",
    "aot_forward_graph",
    "aot_inference_graph",
    "aot_joint_graph",
    "compiled_autograd_graph",
    "cprofile_manifold_url",
    "create_symbol",
    "create_unbacked_symbol",
    "describe_source",
    "describe_storage",
    "describe_tensor",
    "dump_file",
    "dynamo_cpp_guards_str",
    "dynamo_graph",
    "dynamo_guards",
    "export",
    "exported_program",
    "expression_created",
    "graph_dump",
    "guard_added",
    "guard_added_fast",
    "guard_on_data_dependent_error",
    "inductor_input_graph",
    "inductor_pre_grad_graph",
    "link",
    "mismatched_fake_kernel",
    "missing_fake_kernel",
    "optimize_ddp_split_child",
    "optimize_ddp_split_graph",
    "propagate_real_tensors",
    "propagate_real_tensors_provenance",
    "stack",
    "symbolic_shape_specialization",
];

/// Artifacts whose payload is read. Other artifacts are counted by name, except that all artifacts
/// with a function's bytecode share one name.
const ARTIFACTS: &[&str] = &[
    "aotautograd_cache_bypass",
    "aotautograd_cache_hit",
    "aotautograd_cache_miss",
    "dynamo_graph_break_reason",
    "fx_graph_bundled_cache_hit",
    "fx_graph_cache_bypass",
    "fx_graph_cache_hit",
    "fx_graph_cache_miss",
    "inductor_post_grad_graph",
    "inductor_provenance_tracking_kernel_stack_traces",
    "recompile_reasons",
    "torch_version",
];

/// Maximum number of different names that are kept. Events with further names count as `OTHERS`.
const MAX_NAMES: usize = 500;
const OTHERS: &str = "(others)";

/// Returns how this reader uses an event of this name.
pub(super) fn use_of(event: &str) -> EventUse {
    match event {
        _ if READ.contains(&event) => EventUse::Read,
        _ if COUNTED.contains(&event) => EventUse::Counted,
        _ => EventUse::Unknown,
    }
}

/// Returns the name under which an artifact is counted, and how the reader uses it. Artifacts may
/// have any name.
pub(super) fn artifact(name: &str) -> (String, EventUse) {
    let bytecode = ["_ORIGINAL_BYTECODE", "_MODIFIED_BYTECODE"];
    if let Some(ending) = bytecode.into_iter().find(|ending| name.ends_with(ending)) {
        return (format!("artifact *{ending}"), EventUse::Counted);
    }
    let of = if ARTIFACTS.contains(&name) { EventUse::Read } else { EventUse::Counted };
    let name: String = name.chars().take(80).collect();
    (format!("artifact {name}"), of)
}

/// Counts an event. Returns the name under which it was counted.
pub(super) fn count(
    counts: &mut BTreeMap<String, EventCount>,
    name: String,
    of: EventUse,
    bytes: u64,
) -> String {
    let is_new = !counts.contains_key(&name);
    let name = if is_new && counts.len() >= MAX_NAMES { OTHERS.to_owned() } else { name };
    let row = counts.entry(name.clone()).or_insert(EventCount { usage: of, count: 0, bytes: 0 });
    row.count += 1;
    row.bytes += bytes;
    name
}

//! How calls are shown: names, types and arguments as PyTorch's traces write them.

use tprof_wire::calls::{Does, Function};

/// What is known of a call besides its name, as a JSON object.
pub(super) fn arguments(
    function: &Function,
    kind: u32,
    stream: u64,
    detail: u64,
) -> Option<String> {
    let in_stream = |text: String| match stream {
        0 => format!("{{{text}}}"),
        stream if text.is_empty() => format!(r#"{{"stream":"{stream:#x}"}}"#),
        stream => format!(r#"{{{text},"stream":"{stream:#x}"}}"#),
    };
    Some(match function.does {
        Does::Copies { .. } => {
            let name = ["HtoH", "HtoD", "DtoH", "DtoD", "Default"];
            let kind = kind.checked_sub(1).and_then(|kind| name.get(kind as usize));
            let kind = kind.map_or(String::new(), |kind| format!(r#","kind":"{kind}""#));
            in_stream(format!(r#""bytes":{detail}{kind}"#))
        }
        Does::Allocates { .. } if detail > 0 => in_stream(format!(r#""bytes":{detail}"#)),
        Does::Selects => format!(r#"{{"device":{detail}}}"#),
        _ if stream != 0 => in_stream(String::new()),
        _ => return None,
    })
}

/// A collective as `torch.distributed` names it.
pub(super) fn operation(function: &str) -> &'static str {
    match function {
        "ncclAllReduce" => "all_reduce",
        "ncclReduce" => "reduce",
        "ncclBroadcast" | "ncclBcast" => "broadcast",
        "ncclAllGather" => "all_gather",
        "ncclReduceScatter" => "reduce_scatter",
        "ncclAlltoAll" => "all_to_all",
        "ncclGather" => "gather",
        "ncclScatter" => "scatter",
        "ncclSend" => "send",
        "ncclRecv" => "recv",
        _ => "other",
    }
}

/// Elements that a rank gives and gets, by what `count` means for each function.
/// What depends on a size that is not known, or on being the root, is not known.
pub(super) fn elements(
    function: &str,
    count: u64,
    size: Option<u32>,
) -> (Option<u64>, Option<u64>) {
    let all = size.map(|size| count.saturating_mul(size.into()));
    match function {
        "ncclAllGather" | "ncclGather" => (Some(count), all),
        "ncclReduceScatter" | "ncclScatter" => (all, Some(count)),
        "ncclAlltoAll" => (all, all),
        "ncclSend" => (Some(count), Some(0)),
        "ncclRecv" => (Some(0), Some(count)),
        _ => (Some(count), Some(count)),
    }
}

/// `ncclDataType_t`, as PyTorch's traces write it.
const TYPES: [(&str, u64); 12] = [
    ("Char", 1),
    ("Byte", 1),
    ("Int", 4),
    ("UInt32", 4),
    ("Long", 8),
    ("UInt64", 8),
    ("Half", 2),
    ("Float", 4),
    ("Double", 8),
    ("BFloat16", 2),
    ("Float8_e4m3fn", 1),
    ("Float8_e5m2", 1),
];

pub(super) fn type_name(number: u32) -> &'static str {
    TYPES.get(number as usize).map_or("", |(name, _)| name)
}

pub(super) fn type_bytes(number: u32) -> Option<u64> {
    TYPES.get(number as usize).map(|(_, bytes)| *bytes)
}

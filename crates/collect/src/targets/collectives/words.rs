//! Translates NCCL's names of operations and types to those of `torch.distributed` and PyTorch's
//! traces.

use std::borrow::Cow;

/// Returns the operation for the name of an NCCL function. The name may have the prefix `nccl` and
/// the suffix `Config`.
pub fn operation(function: &str) -> Cow<'static, str> {
    let function = function.strip_prefix("nccl").unwrap_or(function);
    let function = function.strip_suffix("Config").unwrap_or(function);
    Cow::Borrowed(match function {
        "AllReduce" => "all_reduce",
        "Reduce" => "reduce",
        "Broadcast" | "Bcast" => "broadcast",
        "AllGather" => "all_gather",
        "ReduceScatter" => "reduce_scatter",
        "AlltoAll" => "all_to_all",
        "Gather" => "gather",
        "Scatter" => "scatter",
        "Send" => "send",
        "Recv" => "recv",
        "SendRecv" => "send_recv",
        "PutSignal" => "put_signal",
        "Signal" => "signal",
        "WaitSignal" => "wait_signal",
        "" => "other",
        newer => return Cow::Owned(snake_case(newer)),
    })
}

/// Converts a name to snake case: `AllGatherV` becomes `all_gather_v`.
fn snake_case(name: &str) -> String {
    let mut small = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !small.is_empty() {
            small.push('_');
        }
        small.push(letter.to_ascii_lowercase());
    }
    small
}

/// Whether an operation has a root or another rank, which the row shows as `peer`.
pub fn has_peer(operation: &str) -> bool {
    ["broadcast", "reduce", "gather", "scatter", "send", "recv", "put_signal", "signal"]
        .contains(&operation)
}

/// Returns the number of elements that a rank sends and the number that it receives. What `count`
/// means depends on the operation. A number is `None` if it depends on the size of the group and
/// that is unknown.
pub fn elements(operation: &str, count: u64, size: Option<u32>) -> (Option<u64>, Option<u64>) {
    let all = size.map(|size| count.saturating_mul(size.into()));
    match operation {
        "all_gather" | "gather" => (Some(count), all),
        "reduce_scatter" | "scatter" => (all, Some(count)),
        "all_to_all" => (all, all),
        "send" | "put_signal" => (Some(count), Some(0)),
        "recv" => (Some(0), Some(count)),
        "signal" | "wait_signal" => (Some(0), Some(0)),
        _ => (Some(count), Some(count)),
    }
}

/// The types of elements by `ncclDataType_t`: the name in PyTorch's traces, NCCL's name, and the
/// bytes of an element.
const TYPES: [(&str, &str, u64); 12] = [
    ("Char", "ncclInt8", 1),
    ("Byte", "ncclUint8", 1),
    ("Int", "ncclInt32", 4),
    ("UInt32", "ncclUint32", 4),
    ("Long", "ncclInt64", 8),
    ("UInt64", "ncclUint64", 8),
    ("Half", "ncclFloat16", 2),
    ("Float", "ncclFloat32", 4),
    ("Double", "ncclFloat64", 8),
    ("BFloat16", "ncclBfloat16", 2),
    ("Float8_e4m3fn", "ncclFloat8e4m3", 1),
    ("Float8_e5m2", "ncclFloat8e5m2", 1),
];

/// Returns the name and the bytes of a type, by its number.
pub fn type_of_number(number: u32) -> Option<(&'static str, u64)> {
    TYPES.get(number as usize).map(|(name, _, bytes)| (*name, *bytes))
}

/// Returns the name and the bytes of a type, by NCCL's name.
pub fn type_of_text(text: &str) -> Option<(&'static str, u64)> {
    let found = TYPES.iter().find(|(_, nccls, _)| *nccls == text);
    found.map(|(name, _, bytes)| (*name, *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_and_the_plugins_name_for_it_are_the_same_operation() {
        assert_eq!(operation("ncclAllReduce"), operation("AllReduce"));
        assert_eq!(operation("ncclReduceScatterConfig"), "reduce_scatter");
        assert_eq!(operation("ncclBcast"), "broadcast");
        assert_eq!(operation("AllGatherV"), "all_gather_v");
    }

    #[test]
    fn a_type_is_the_same_by_number_and_by_text() {
        for number in 0..12 {
            let text = TYPES[number as usize].1;
            assert_eq!(type_of_number(number), type_of_text(text));
        }
        assert_eq!(type_of_text("Unknown"), None);
        assert_eq!(type_of_number(u32::MAX), None);
    }
}

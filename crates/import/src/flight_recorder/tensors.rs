//! Says which types and sizes of an operation's tensors all ranks must give alike.

use super::node::Node;
use std::fmt::Write as _;

/// Most tensors and most dimensions that are listed.
const LISTED: usize = 4;
const DIMENSIONS: usize = 8;
/// Longest text of several operations in a batch, in bytes.
const MAX_TEXT: usize = 400;

/// Returns the types and sizes that must be the same in all ranks; `None` if none is known.
pub(super) fn alike(name: &str, entry: Node<'_>) -> Option<String> {
    let list = |sizes, types, has_sizes| described(entry.get(sizes), entry.get(types), has_sizes);
    let inputs = |has_sizes| list("input_sizes", "input_dtypes", has_sizes);
    let outputs = |has_sizes| list("output_sizes", "output_dtypes", has_sizes);
    match name {
        "send" | "gather" => inputs(true),
        "recv" | "scatter" => outputs(true),
        // Each rank may give others a different part.
        _ if name.starts_with("all_to_all")
            || name.starts_with("alltoall")
            || name.contains("_v") =>
        {
            inputs(false)
        }
        _ => match (inputs(true), outputs(true)) {
            (Some(inputs), Some(outputs)) if inputs != outputs => {
                Some(format!("{inputs} to {outputs}"))
            }
            (inputs, outputs) => inputs.or(outputs),
        },
    }
}

/// Joins the texts of operations in a batch.
pub(super) fn joined(first: Option<String>, next: Option<&str>) -> Option<String> {
    match (first, next) {
        (Some(first), Some(next)) if first.len() + next.len() < MAX_TEXT => {
            Some(format!("{first}; {next}"))
        }
        (first, next) => first.or(next.map(str::to_owned)),
    }
}

fn described(sizes: Option<Node<'_>>, types: Option<Node<'_>>, has_sizes: bool) -> Option<String> {
    let mut types = types.into_iter().flat_map(Node::items);
    let sizes: Vec<Node<'_>> = sizes.into_iter().flat_map(Node::items).take(1 << 12).collect();
    let mut text = String::new();
    for size in sizes.iter().take(if has_sizes { LISTED } else { 1 }) {
        let comma = if text.is_empty() { "" } else { ", " };
        let name = types.next().and_then(|name| Some(name.text()?.chars().take(32).collect()));
        let name: String = name.unwrap_or_else(|| "unknown type".to_owned());
        let _ = write!(text, "{comma}{name}");
        if has_sizes {
            let sizes = size.items().take(DIMENSIONS);
            let sizes: Vec<String> = sizes.filter_map(|s| Some(s.number()?.to_string())).collect();
            let _ = write!(text, " [{}]", sizes.join(", "));
        }
    }
    if has_sizes && sizes.len() > LISTED {
        let elements = |size: &Node<'_>| {
            let sizes = size.items().take(DIMENSIONS).filter_map(Node::number);
            sizes.fold(1, u64::saturating_mul)
        };
        let sum = sizes.iter().map(elements).fold(0, u64::saturating_add);
        let _ = write!(text, " and {} more, {sum} elements in all", sizes.len() - LISTED);
    }
    (!text.is_empty()).then_some(text)
}

//! Builds a model's graph as TensorBoard draws it: modules within modules, and the operators that
//! each module calls.
//!
//! The graph shows the first call of each outermost module. A node is an operator, or a module in
//! which no operator was recorded. A node's name contains the enclosing modules, which TensorBoard
//! draws as boxes. It was not recorded which operator uses whose result, so edges show the order of
//! execution.

use std::collections::{HashMap, HashSet};

use tprof_facts::modules::ModuleName;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, SpanKind, SpanOutline, ThreadIndex};

use crate::OpenRank;
use crate::proto::Proto;

/// Largest number of nodes. TensorBoard can lay out only a few thousand nodes, so more would be
/// useless.
const MOST_NODES: usize = 20_000;
/// Largest size of an attribute in bytes.
const MOST_ATTRIBUTE: usize = 1 << 10;

/// Fields of `GraphDef`, `NodeDef`, `AttrValue`, `VersionDef`.
mod field {
    pub const NODE: u32 = 1;
    pub const VERSIONS: u32 = 4;
    pub const NAME: u32 = 1;
    pub const OPERATION: u32 = 2;
    pub const INPUT: u32 = 3;
    pub const ATTRIBUTE: u32 = 5;
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
    pub const BYTES: u32 = 2;
    pub const PRODUCER: u32 = 1;
}

/// The graph of a model, ready to be written to an event file.
pub(super) struct Graph {
    /// The encoded message `GraphDef` of TensorFlow.
    pub encoded: Vec<u8>,
    /// Number of nodes that were left out because of the limit.
    pub left_out: u64,
}

/// A node before it is written.
#[derive(Debug, PartialEq, Eq)]
struct Node {
    name: String,
    operation: String,
    /// The preceding node in the same outermost module; an edge leads from it.
    input: Option<String>,
    attributes: Vec<(&'static str, String)>,
}

/// Builds the graph of a rank's modules; `None` if none were recorded.
pub(super) fn of(part: &OpenRank<'_>) -> Option<Graph> {
    let trace = &part.trace;
    let modules: HashMap<NameId, ModuleName<'_>> =
        trace.names().filter_map(|(id, name)| Some((id, ModuleName::of(name)?))).collect();
    if modules.is_empty() {
        return None;
    }
    let spans = || {
        let within = |span: &SpanOutline| part.window.touches(span.start_ns, end_ns(span));
        trace.blocks::<SpanOutline>().flatten().filter(within)
    };
    let roots = first_calls(spans(), &modules);
    let mut calls: Vec<SpanOutline> = spans()
        .filter(|span| span.kind == SpanKind::Operator || is_module(span, &modules))
        .filter(|span| roots.iter().any(|root| holds(root, span)))
        .collect();
    calls.sort_by_key(|span| (span.process, span.thread, span.start_ns, u64::MAX - end_ns(span)));
    let (nodes, left_out) = nodes(trace, &calls, &modules);
    (!nodes.is_empty()).then(|| Graph { encoded: encoded(&nodes), left_out })
}

fn end_ns(span: &SpanOutline) -> u64 {
    span.start_ns.saturating_add(span.duration_ns)
}

fn is_module(span: &SpanOutline, modules: &HashMap<NameId, ModuleName<'_>>) -> bool {
    let is_range = matches!(span.kind, SpanKind::Annotation | SpanKind::Python);
    is_range && modules.contains_key(&span.name)
}

fn holds(outer: &SpanOutline, inner: &SpanOutline) -> bool {
    let place = |span: &SpanOutline| (span.process, span.thread);
    place(outer) == place(inner)
        && outer.start_ns <= inner.start_ns
        && end_ns(inner) <= end_ns(outer)
}

/// Returns the first call of each module that is not inside another module's first call.
fn first_calls(
    spans: impl Iterator<Item = SpanOutline>,
    modules: &HashMap<NameId, ModuleName<'_>>,
) -> Vec<SpanOutline> {
    let mut first: HashMap<(ProcessIndex, ThreadIndex, NameId), SpanOutline> = HashMap::new();
    for span in spans.filter(|span| is_module(span, modules)) {
        let known = first.entry((span.process, span.thread, span.name)).or_insert(span);
        if span.start_ns < known.start_ns {
            *known = span;
        }
    }
    let mut first: Vec<SpanOutline> = first.into_values().collect();
    first.sort_by_key(|span| (span.process, span.thread, span.start_ns, u64::MAX - end_ns(span)));
    let mut roots: Vec<SpanOutline> = Vec::new();
    for span in first {
        if roots.last().is_none_or(|last| !holds(last, &span)) {
            roots.push(span);
        }
    }
    // If several threads or processes run copies of one model, draw only one copy of each module.
    let mut taken = HashSet::new();
    roots.retain(|root| taken.insert(root.name));
    roots
}

/// An open span, during which other spans are called.
struct Scope {
    end_ns: u64,
    /// For a module: its scope in the graph, and its path.
    module: Option<(String, String)>,
    node: Option<usize>,
}

fn nodes(
    trace: &TraceFile,
    calls: &[SpanOutline],
    modules: &HashMap<NameId, ModuleName<'_>>,
) -> (Vec<Node>, u64) {
    let (mut nodes, mut left_out): (Vec<Node>, u64) = (Vec::new(), 0);
    let mut taken: HashMap<String, u32> = HashMap::new();
    let mut open: Vec<Scope> = Vec::new();
    let mut dropped: HashSet<usize> = HashSet::new();
    let mut before: Option<usize> = None;
    let mut place: Option<(ProcessIndex, ThreadIndex)> = None;
    for call in calls {
        if place.replace((call.process, call.thread)) != Some((call.process, call.thread)) {
            open.clear();
        }
        let is_over = |scope: &Scope| scope.end_ns < end_ns(call) || scope.end_ns <= call.start_ns;
        while open.last().is_some_and(is_over) {
            open.pop();
        }
        if open.is_empty() {
            before = None;
        }
        let end_ns = end_ns(call);
        // Skip an operator inside another operator, because it is an implementation detail.
        if open.last().is_some_and(|scope| scope.module.is_none()) {
            continue;
        }
        let around = open.last().and_then(|scope| scope.module.clone());
        let module = modules.get(&call.name).filter(|_| call.kind != SpanKind::Operator);
        let (scope, path, operation) = match module {
            Some(module) => (scope_of(around.as_ref(), module), module.path, module.class),
            None => {
                let Some((around, _)) = &around else { continue };
                let operator = trace.name(call.name);
                let short = operator.rsplit("::").next().unwrap_or(operator);
                (format!("{around}/{}", plain(short)), "", operator)
            }
        };
        // A module that calls something is drawn as a box, so it is not a node.
        if let Some(own) = open.last_mut().and_then(|scope| scope.node.take()) {
            dropped.insert(own);
        }
        if nodes.len() - dropped.len() >= MOST_NODES {
            left_out += 1;
            let module = module.map(|_| (scope, path.to_owned()));
            open.push(Scope { end_ns, module, node: None });
            continue;
        }
        let number = taken.entry(scope.clone()).or_default();
        let name = if *number == 0 { scope.clone() } else { format!("{scope}_{number}") };
        *number += 1;
        let mut attributes = Vec::new();
        if module.is_some() {
            attributes.push(("module", path.to_owned()));
        } else if let Some(sizes) = sizes(trace.name(call.args)) {
            attributes.push(("input_sizes", sizes));
        }
        nodes.push(Node { name, operation: operation.to_owned(), input: None, attributes });
        let at = nodes.len() - 1;
        let module = module.map(|_| (scope, path.to_owned()));
        let node = module.as_ref().map(|_| at);
        open.push(Scope { end_ns, module, node });
        link(&mut nodes, at, &mut before, &dropped);
    }
    let mut at = 0;
    nodes.retain(|_| {
        at += 1;
        !dropped.contains(&(at - 1))
    });
    (nodes, left_out)
}

/// Adds an edge from the preceding node, skipping nodes that turned out to be boxes.
fn link(nodes: &mut [Node], at: usize, before: &mut Option<usize>, dropped: &HashSet<usize>) {
    let input = match *before {
        Some(last) if dropped.contains(&last) => nodes[last].input.clone(),
        Some(last) => Some(nodes[last].name.clone()),
        None => None,
    };
    nodes[at].input = input;
    *before = Some(at);
}

/// Returns the scope of a module. The scope is below that of the enclosing module if the module's
/// path begins with that module's path.
fn scope_of(around: Option<&(String, String)>, module: &ModuleName<'_>) -> String {
    let within = |path: &str| module.path.strip_prefix(path)?.strip_prefix('.');
    match around {
        None => plain(module.path).replace('.', "/"),
        Some((scope, path)) => {
            let rest = within(path).unwrap_or(module.path);
            format!("{scope}/{}", plain(rest).replace('.', "/"))
        }
    }
}

/// Replaces characters that have a meaning in node names: `/` separates boxes, and `:` outputs.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let plain: String = name.chars().take(200).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

/// Returns the sizes of an operator's inputs, if they were recorded.
fn sizes(args: &str) -> Option<String> {
    let args: serde_json::Value = serde_json::from_str(args).ok()?;
    let text = args.get("Input Dims")?.to_string();
    Some(text.chars().take(MOST_ATTRIBUTE).collect())
}

fn encoded(nodes: &[Node]) -> Vec<u8> {
    let mut proto = Proto::default();
    for node in nodes {
        let open = proto.open(field::NODE);
        proto.text(field::NAME, &node.name);
        proto.text(field::OPERATION, &node.operation);
        if let Some(input) = &node.input {
            proto.text(field::INPUT, input);
        }
        for (key, value) in &node.attributes {
            let attribute = proto.open(field::ATTRIBUTE);
            proto.text(field::KEY, key);
            let of = proto.open(field::VALUE);
            proto.text(field::BYTES, value);
            proto.close(of);
            proto.close(attribute);
        }
        proto.close(open);
    }
    let versions = proto.open(field::VERSIONS);
    proto.uint(field::PRODUCER, 22);
    proto.close(versions);
    proto.bytes().to_vec()
}

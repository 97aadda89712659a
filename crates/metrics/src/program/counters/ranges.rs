//! Joins ranges on a device that have hardware counters with the operators that launched them.

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{CallTree, RankTrace};
use tprof_trace::calls::is_launch;
use tprof_trace::model::{DeviceSpan, DeviceSpanKind, SpanKind};

/// A range on a device with hardware counters, usually one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The time of the range on its device.
    pub interval: Interval,
    /// Name of the range, as the profiler wrote it.
    pub name: String,
    /// The outermost and the innermost operator around the range's launch; `None` if the launch
    /// isn't known or lies in no operator.
    pub operators: Option<(String, String)>,
    /// Names and values of the counters, in order of name.
    pub values: Vec<(String, f64)>,
}

/// The counters with this prefix and `FLOP_SUFFIX` count thread-level instructions. Those for
/// additions, multiplications and fused multiply-adds count floating-point operations; a fused
/// multiply-add is two.
const FLOP_PREFIX: &str = "smsp__sass_thread_inst_executed_op_";
const FLOP_SUFFIX: &str = "_pred_on.sum";
/// Name of the value that adds up these operations.
pub(super) const FLOP: &str = "flop";

/// Returns the ranges of a rank in order of time, and the reason if their operators aren't known.
pub(super) fn ranges(rank: &RankTrace, tree: &CallTree) -> (Vec<Range>, Option<String>) {
    let is_range = |span: &&DeviceSpan| span.kind == DeviceSpanKind::Counters;
    let spans: Vec<&DeviceSpan> = rank.device_spans.iter().filter(is_range).collect();
    let (calls, why) = launches(rank, &spans);
    let range = |(span, call): (&&DeviceSpan, &Option<usize>)| {
        let place = call.and_then(|call| tree.of_call(call));
        let operators = place.and_then(|at| operators(rank, tree, at));
        let end_ns = span.start_ns.saturating_add(span.duration_ns);
        Range {
            interval: Interval::new(span.start_ns, end_ns),
            name: rank.name(span.name).to_owned(),
            operators,
            values: values(rank.name(span.args)),
        }
    };
    (spans.iter().zip(&calls).map(range).collect(), why)
}

fn operators(rank: &RankTrace, tree: &CallTree, call: u32) -> Option<(String, String)> {
    let is_operator = |at: &u32| tree.spans[*at as usize].kind == SpanKind::Operator;
    let mut around = tree.outwards(call).filter(is_operator);
    let innermost = around.next()?;
    let outermost = around.last().unwrap_or(innermost);
    let name = |at: u32| rank.name(tree.spans[at as usize].name).to_owned();
    Some((name(outermost), name(innermost)))
}

/// Returns the call that launched each range, and the reason if the ranges and launches can't be
/// joined. A range profiler runs kernels one by one and reports no correlation. So the n-th range
/// belongs to the n-th launch if there are as many ranges as launches.
fn launches(rank: &RankTrace, spans: &[&DeviceSpan]) -> (Vec<Option<usize>>, Option<String>) {
    let mut by_correlation: FxHashMap<(u32, u64), usize> = FxHashMap::default();
    let mut in_order = Vec::new();
    let mut launches: FxHashMap<_, bool> = FxHashMap::default();
    for (at, call) in rank.calls.iter().enumerate() {
        if let Some(correlation) = call.correlation.get() {
            by_correlation.entry((call.process, correlation)).or_insert(at);
        }
        let named = || is_launch(rank.name(call.name));
        if *launches.entry(call.name).or_insert_with(named) {
            in_order.push(at);
        }
    }
    if spans.iter().all(|span| span.correlation.is_some()) {
        let of =
            |span: &&DeviceSpan| by_correlation.get(&(span.process, span.correlation?)).copied();
        return (spans.iter().map(of).collect(), None);
    }
    if in_order.len() == spans.len() {
        return (in_order.into_iter().map(Some).collect(), None);
    }
    let why = format!(
        "{} ranges and {} kernel launches: they cannot be joined",
        spans.len(),
        in_order.len()
    );
    (vec![None; spans.len()], Some(why))
}

/// Returns the numbers in a JSON object, and the sum of its floating-point operations if there are
/// any.
fn values(args: &str) -> Vec<(String, f64)> {
    let Ok(Value::Object(object)) = serde_json::from_str(args) else { return Vec::new() };
    let mut values: Vec<(String, f64)> =
        object.into_iter().filter_map(|(key, value)| Some((key, value.as_f64()?))).collect();
    let flop = |(name, value): &(String, f64)| {
        let instruction = name.strip_prefix(FLOP_PREFIX)?.strip_suffix(FLOP_SUFFIX)?;
        let known = ["add", "mul", "fma"].iter().any(|kind| instruction.ends_with(kind));
        known.then(|| if instruction.ends_with("fma") { value * 2.0 } else { *value })
    };
    let known: Vec<f64> = values.iter().filter_map(flop).collect();
    if !known.is_empty() {
        values.push((FLOP.to_owned(), known.iter().sum()));
    }
    values.sort_rows_by(|a, b| a.0.cmp(&b.0));
    values
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::model::{NameId, Span};

    use super::*;

    fn trace(launches: u64) -> Fixture {
        let mut trace = Fixture::new();
        let operator = |start_ns, duration_ns| Span {
            start_ns,
            duration_ns,
            kind: SpanKind::Operator,
            ..Span::default()
        };
        trace.span(operator(0, 100), "conv2d");
        trace.span(operator(10, 80), "cudnn_convolution");
        for at in 0..launches {
            trace.call(0, 20 + at, 1, "__cudaLaunchKernel_ptsz", 1 + at);
        }
        let args = r#"{"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 10,
            "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum": 3, "note": "x"}"#;
        let (name, args) = (trace.name("kernel"), trace.name(args));
        let span = DeviceSpan {
            start_ns: 500,
            duration_ns: 10,
            kind: DeviceSpanKind::Counters,
            name,
            args,
            ..DeviceSpan::default()
        };
        trace.device_spans.push(span);
        trace.device_spans.push(DeviceSpan { start_ns: 600, args: NameId(0), ..span });
        trace
    }

    fn found(launches: u64) -> (Vec<Range>, Option<String>) {
        let file = trace(launches).finish();
        let rank = RankTrace::load(&file, Needs::ALL);
        ranges(&rank, rank.operator_tree())
    }

    #[test]
    fn ranges_follow_launches_in_order_and_count_operations() {
        let (ranges, why) = found(2);
        assert_eq!(why, None);
        let operators = Some(("conv2d".to_owned(), "cudnn_convolution".to_owned()));
        assert_eq!(ranges[0].operators, operators);
        assert_eq!(ranges[1].operators, operators);
        assert_eq!(ranges[0].values.len(), 3, "a value that is text is not a counter");
        assert_eq!(ranges[0].values[0], (FLOP.to_owned(), 23.0));
        assert_eq!(ranges[1].values, []);
    }

    #[test]
    fn more_launches_than_ranges_leave_operators_unknown() {
        let (ranges, why) = found(3);
        assert_eq!(ranges[0].operators, None);
        assert!(why.unwrap().starts_with("2 ranges and 3 kernel launches"));
    }
}

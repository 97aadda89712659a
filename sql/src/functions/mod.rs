//! Defines the SQL functions that tprof adds to the engine's own: arithmetic of intervals, and
//! reports.

mod integers;
mod interval_union;
mod overlap;
pub mod report;

use datafusion::prelude::SessionContext;

/// Functions that only tprof has: their calls and their results.
pub const OWN: [(&str, &str); 5] = [
    ("interval_union(start, duration)", "aggregate: for how long at least one interval lasts"),
    ("overlap(start_a, end_a, start_b, end_b)", "how long two intervals last together"),
    (
        "report('KIND'[, 'TABLE'[, 'RUN']])",
        "a table of tprof report KIND, its first if none is named; report() lists the kinds",
    ),
    ("breakdown(['RUN'])", "report('breakdown', 'breakdown'): time of each rank's devices"),
    ("stragglers(['RUN'])", "report('stragglers', 'late_arrivals'): how late each rank came"),
];

/// Registers the interval functions.
pub fn register(context: &SessionContext) {
    context.register_udaf(interval_union::function());
    context.register_udf(overlap::function());
}

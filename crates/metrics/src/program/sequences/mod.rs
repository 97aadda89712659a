//! The report `sequences`: sequences of kernels that an operator launches again and again.
//!
//! A sequence that runs hundreds of times is worth fusing, or capturing as a graph.

mod find;
#[cfg(test)]
mod tests;
mod work_name;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{
    Analysis, Body, Column, DocumentKind, OptionMatches, Options, RankContext, Table, Unit, View,
    boxed,
};
use tprof_rank::{HostSpan, Needs, RankTrace};
use tprof_trace::model::SpanKind;

pub use find::{FEWEST_KERNELS, Roots, patterns};
pub use work_name::{WorkName, name_of, work_name};

/// The report `sequences`.
pub const KIND: DocumentKind = DocumentKind {
    name: "sequences",
    about: "kernels that operators launch in a row, most frequent first",
    analysis: || boxed(Sequences),
};

/// The operator in Holistic Trace Analysis's own examples of sequences.
const HTA_OPERATOR: &str = "aten::linear";

/// Reports frequent sequences of kernels.
pub struct Sequences;

/// Number and durations of the runs of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Number of the operator's runs that launched the sequence.
    pub runs: u64,
    /// Sum of the durations of the kernels, copies and memsets in these runs, ns.
    pub device_ns: u64,
    /// Sum of the durations of these runs on the host, ns.
    pub host_ns: u64,
    /// Number of kernels, copies and memsets in each of these runs.
    pub kernels: usize,
}

impl Pattern {
    fn add(&mut self, other: &Pattern) {
        self.runs += other.runs;
        self.device_ns += other.device_ns;
        self.host_ns += other.host_ns;
        self.kernels = self.kernels.max(other.kernels);
    }
}

/// Patterns by operator and by kernels, joined by ` | `.
pub type Patterns = BTreeMap<(String, String), Pattern>;

impl Analysis for Sequences {
    const KIND: &'static str = KIND.name;
    const TAKES: &'static [&'static str] = &["--operator"];
    type Part = Patterns;

    fn needs(&self, options: &Options) -> Needs {
        match options.hta {
            true => Needs::ALL_SPANS | Needs::WORK,
            false => Needs::WORK | Needs::CALLS | Needs::OPERATORS,
        }
    }

    fn option_matches(&self, rank: &RankTrace<'_>, options: &Options) -> Vec<OptionMatches> {
        // With `--hta`, a text that matches nothing is not refused: HTA returns an empty result for
        // it, and tests compare the results.
        let Some(operator) = options.operator.as_deref().filter(|_| !options.hta) else {
            return Vec::new();
        };
        let spans = rank.spans(SpanKind::Operator).iter();
        let name = |span: &HostSpan| rank.name(span.name).to_owned();
        vec![OptionMatches::of(("--operator", "operators"), (operator, None), spans, name)]
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, options: &Options) -> Patterns {
        let roots = match (options.hta, options.operator.as_deref()) {
            (true, operator) => Roots::Shallowest(operator.unwrap_or(HTA_OPERATOR)),
            (false, Some(operator)) => Roots::Containing(operator),
            (false, None) => Roots::Outermost,
        };
        patterns(rank, rank.operator_tree(), roots)
    }

    fn join(&self, parts: Vec<(RankContext, Patterns)>, _options: &Options) -> Body {
        let mut all = Patterns::default();
        for ((operator, kernels), pattern) in parts.iter().flat_map(|(_, patterns)| patterns) {
            all.entry((operator.clone(), kernels.clone())).or_default().add(pattern);
        }
        let mut whole = table("sequences", &[]);
        add(&mut whole, &all, None);
        let mut by_rank =
            table("sequences_by_rank", &[Column::new("rank", "rank", Unit::Text)]).view(View::Data);
        for (at, patterns) in &parts {
            add(&mut by_rank, patterns, Some(at));
        }
        Body { tables: vec![whole, by_rank], notes: Vec::new() }
    }
}

fn table(key: &'static str, first: &[Column]) -> Table {
    let mut columns = first.to_vec();
    columns.extend([
        Column::new("runs", "runs", Unit::Count),
        Column::new("device_ns", "on GPU", Unit::Duration),
        Column::new("host_ns", "on host", Unit::Duration),
        Column::new("kernel_count", "kernels", Unit::Count),
        Column::data("operator", Unit::Text),
        Column::data("kernels", Unit::Text),
        Column::new("sequence", "operator: kernels, in order", Unit::Name),
    ]);
    Table::new(key, "Sequences of kernels", columns)
        .about("on GPU: sum over the kernels; on host: sum over the operator's runs")
        .empty(format!("no run of an operator with {FEWEST_KERNELS} kernels or more was recorded"))
}

fn add(table: &mut Table, patterns: &Patterns, at: Option<&RankContext>) {
    let mut rows: Vec<(&(String, String), &Pattern)> = patterns.iter().collect();
    rows.sort_by_key(|(names, pattern)| (Reverse((pattern.runs, pattern.device_ns)), *names));
    for ((operator, kernels), pattern) in rows {
        let mut cells: Vec<_> = at.iter().map(|at| at.label.as_str().into()).collect();
        cells.extend([
            pattern.runs.into(),
            pattern.device_ns.into(),
            pattern.host_ns.into(),
            pattern.kernels.into(),
            operator.as_str().into(),
            kernels.as_str().into(),
            format!("{operator}: {kernels}").into(),
        ]);
        table.row(cells);
    }
}

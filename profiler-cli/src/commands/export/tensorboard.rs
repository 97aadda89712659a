//! Collects results of reports for TensorBoard: figures and counters by step.

use std::collections::HashMap;
use std::path::Path;

use tprof_analyze::{KINDS, Kind, ReportRequest, make_reports};
use tprof_document::{Document, Options as Analyze, TableRow, TimeSelection};
use tprof_export::tensorboard::{
    self, CounterKey, Figure, LiveLog, RankFigures, RunAnalysis, StepCounter, StepFigures,
};
use tprof_export::{Options, Slice, Written};
use tprof_trace::RunDir;
use tprof_trace::live::is_collector_alive;

use super::args::ExportArgs;
use super::failure;
use crate::commands::report::{document, print};
use crate::runs::failure::{analyze_failure, trace_failure};
use crate::runs::symbols::LateSymbolizer;
use crate::terminal::page::Form;

/// Kinds of report that are read.
const READ: [&str; 3] = ["steps", "counters", FINDINGS];
/// The kind of report that is written as a text, next to the summary.
const FINDINGS: &str = "findings";
/// Number of rows that tables in texts have.
const TOP: usize = 10;

/// Completes the log directory of a run that has just ended.
pub fn complete(log: LiveLog, path: &Path) -> anyhow::Result<Written> {
    let late = LateSymbolizer::default();
    let options = Options { symbols: Some(&late), ..Options::default() };
    let args = ExportArgs { path: path.to_owned(), ..ExportArgs::default() };
    let run = RunDir::open(path).map_err(|error| trace_failure(path, &error))?;
    let analysed =
        analysed(&run, &args, &options).map_err(|error| analyze_failure(path, &error))?;
    let written = log.finish(&run, &options, &analysed);
    Ok(written.map_err(|error| failure::failure(path, &error))?)
}

/// Writes the log directory of a run.
pub fn export(run: &RunDir, args: &ExportArgs, options: &Options<'_>) -> anyhow::Result<Written> {
    let analysed =
        analysed(run, args, options).map_err(|error| analyze_failure(&args.path, &error))?;
    let written = tensorboard::export(run, options, &analysed);
    Ok(written.map_err(|error| failure::failure(&args.path, &error))?)
}

fn analysed(
    run: &RunDir,
    args: &ExportArgs,
    options: &Options<'_>,
) -> Result<RunAnalysis, tprof_analyze::AnalyzeError> {
    let kinds: Vec<_> = KINDS.iter().filter(|kind| READ.contains(&kind.name)).collect();
    let wanted = ReportRequest { reports: &[Kind::Summary], kinds: &kinds };
    let Slice { from_ns, to_ns, steps_from, cycle, .. } = options.slice;
    let steps = options.slice.steps.as_ref().map(|steps| steps.ranges().to_vec());
    let cut = TimeSelection { from_ns, to_ns, steps };
    let is_running = Some(is_collector_alive as _);
    let asked = Analyze { steps_from, cycle, cut, data: true, is_running, ..Analyze::default() };
    let mut made = make_reports(run.path(), &wanted, &asked, options.symbols)?;
    for report in &mut made.reports {
        report.run.path.clone_from(&args.path);
    }
    for document in &mut made.documents {
        document.run.path.clone_from(&args.path);
    }
    let summaries = made.reports.iter().map(|report| print::text(report, TOP, Form::Markdown));
    let findings = made.documents.iter().filter(|document| document.kind == FINDINGS);
    let findings = findings.map(|findings| document::text(findings, TOP, Form::Markdown));
    let texts = summaries.map(|text| ("summary".to_owned(), text));
    let texts = texts.chain(findings.map(|text| (FINDINGS.to_owned(), text))).collect();
    let rows = |key| {
        let tables = made.documents.iter().flat_map(|document: &Document| &document.tables);
        let tables = tables.filter(move |table| table.key == key);
        tables.flat_map(TableRow::all)
    };
    let mut ranks: HashMap<String, RankFigures> = HashMap::new();
    for row in rows("device_time_by_step") {
        if let (Some(rank), Some(step)) = (row.text("rank"), step(&row)) {
            ranks.entry(rank.to_owned()).or_default().steps.push(step);
        }
    }
    for row in rows("counters_by_step") {
        if let (Some(rank), Some(counter)) = (row.text("rank"), counter(&row)) {
            ranks.entry(rank.to_owned()).or_default().counters.push(counter);
        }
    }
    Ok(RunAnalysis { ranks, texts })
}

/// The figures of a step, with the column that each comes from.
const FIGURES: [(&str, Figure); 6] = [
    ("compute_ns", Figure::Compute),
    ("exposed_communication_ns", Figure::ExposedCommunication),
    ("exposed_copies_ns", Figure::ExposedCopies),
    ("idle_ns", Figure::Idle),
    ("gpu_busy", Figure::Busy),
    ("launches", Figure::Launches),
];

fn step(row: &TableRow<'_>) -> Option<StepFigures> {
    let value = |(key, figure): &(&str, Figure)| Some((*figure, row.number(key)?));
    Some(StepFigures {
        number: row.whole("step")?,
        start_ns: row.whole("start_ns")?,
        values: FIGURES.iter().filter_map(value).collect(),
    })
}

fn counter(row: &TableRow<'_>) -> Option<StepCounter> {
    Some(StepCounter {
        step: row.whole("step")?,
        counter: CounterKey {
            name: row.text("counter")?.to_owned(),
            pid: row.whole("pid").map(|pid| pid as u32),
            device: row.whole("device").map(|device| device as u32),
        },
        mean: row.number("mean")?,
    })
}

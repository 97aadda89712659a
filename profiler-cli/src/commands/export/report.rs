//! The report page: the page of `tprof serve` with the reports of one run inside.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tprof_analyze::{KINDS, Kind, Report, ReportRequest, Reports, make_reports};
use tprof_document::{Document, LineTables, Options as Analyze};
use tprof_export::output::Output;
use tprof_export::{ExportError, Options, Written, page_path, paths, run_title};
use tprof_facts::units::count;
use tprof_trace::RunDir;
use tprof_trace::live::is_collector_alive;
use tprof_ui::errors::Failure;

use super::args::ExportArgs;
use super::failure;
use crate::commands::report::{kind_name, report_kinds};
use crate::runs::failure::analyze_failure;

/// Largest number of rows of a table in the page, unless [`CHARTED`] has the table.
const MOST_ROWS: usize = 100;
/// Tables that the page draws, by kind and key: a chart may need more rows than people read.
const CHARTED: [(&str, &str, usize); 4] = [
    ("gpu-time", "parts", 1_000),
    ("host", "parts", 1_000),
    ("roofline", "roofline", 400),
    ("steps", "steps", 120),
];
/// Largest number of call stacks that hold memory, over all ranks; each rank has at least
/// [`LEAST_SITES`]. A stack can have kilobytes.
const MOST_SITES: usize = 100;
/// Number of call stacks that each rank has, however many ranks there are.
const LEAST_SITES: usize = 12;
/// Largest number of program images in the page.
const MOST_IMAGES: usize = 500;
/// Number of the run in its page.
const RUN: &str = "1";

/// Writes the page `report.html`.
pub fn export(run: &RunDir, args: &ExportArgs, options: &Options<'_>) -> anyhow::Result<Written> {
    let rank = one_rank(args, "the report page")?;
    let failed = |error: &ExportError| failure::failure(&args.path, error);
    let path = page_path(run, options, "report.html").map_err(|error| failed(&error))?;
    let kinds: Vec<_> = KINDS.iter().collect();
    let lines = LineTables::Too;
    let steps_from = options.slice.steps_from;
    let is_running = Some(is_collector_alive as _);
    let asked = Analyze { rank, lines, steps_from, is_running, ..Analyze::default() };
    let wanted = ReportRequest { reports: &[Kind::Summary, Kind::Memory], kinds: &kinds };
    let mut made = make_reports(run.path(), &wanted, &asked, options.symbols)
        .map_err(|error| analyze_failure(&args.path, &error))?;
    // People give the page to others, whom this machine's directories don't concern.
    let name = PathBuf::from(args.path.file_name().unwrap_or(args.path.as_os_str()));
    for report in &mut made.reports {
        report.run.path.clone_from(&name);
        shorten_report(report);
    }
    for document in &mut made.documents {
        document.run.path.clone_from(&name);
        shorten(document);
    }
    let page = tprof_present::one_file(&run_title(run), &site(&path), &answers(&made)?);
    let path = write(&path, &page).map_err(|error| failed(&error))?;
    Ok(Written { paths: path.into_iter().collect(), ..Written::default() })
}

fn write(path: &Path, page: &str) -> Result<Option<PathBuf>, ExportError> {
    paths::parent(path)?;
    let mut output = Output::create(path)?;
    output
        .write_all(page.as_bytes())
        .map_err(|source| ExportError::Write { path: path.to_path_buf(), source })?;
    output.keep()
}

/// Returns the rank that `--rank` selects, or `None` for all ranks. Fails for several ranks,
/// because the data can't be limited to several. `what` names the data in the error.
pub(super) fn one_rank(args: &ExportArgs, what: &str) -> Result<Option<u32>, Failure> {
    let Some(text) = args.slice.rank.as_deref() else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        Failure::new(format!("{what} covers one rank or all, not `{text}`"))
            .cause("--rank has more than one rank")
            .hint("--rank 0, or no --rank")
    })
}

/// Returns the answers that `tprof serve` would give about the run: their paths and texts.
fn answers(made: &Reports) -> serde_json::Result<Vec<(String, String)>> {
    let mut reports: Vec<(&str, String)> = Vec::new();
    for report in &made.reports {
        reports.push((kind_name(report.kind), serde_json::to_string(report)?));
    }
    for document in &made.documents {
        reports.push((document.kind, serde_json::to_string(document)?));
    }
    let of_figures = |(kind, _): &&(&str, String)| {
        matches!(*kind, "summary" | "steps" | "breakdown" | "history")
    };
    let read = |(kind, text): &(&str, String)| {
        serde_json::from_str::<Value>(text).map(|report| ((*kind).to_owned(), report))
    };
    let of_row = reports.iter().filter(of_figures).map(read).collect::<Result<Map<_, _>, _>>()?;
    let row = tprof_present::run_row(&json!({ "reports": of_row }));
    let kinds = report_kinds().map(|(name, about)| json!({ "name": name, "about": about }));
    let index = json!({ "tprof": env!("CARGO_PKG_VERSION"), "kinds": kinds.collect::<Vec<_>>() });
    let of_run = format!("runs/{RUN}");
    let reports = reports.into_iter().map(|(kind, text)| (format!("{of_run}/report/{kind}"), text));
    let first = [("index".to_owned(), index.to_string()), (of_run.clone(), row.to_string())];
    Ok(first.into_iter().chain(reports).collect())
}

/// Describes the page: its run, and those of the other pages that are in the same directory.
fn site(path: &Path) -> Value {
    let mut site = json!({ "run": RUN });
    for page in ["timeline", "flame"] {
        let file = format!("{page}.html");
        if path.with_file_name(&file).is_file() {
            site[page] = file.into();
        }
    }
    site
}

/// Cuts the tables of a document.
fn shorten(document: &mut Document) {
    for table in &mut document.tables {
        let charted =
            CHARTED.iter().find(|(kind, key, _)| (*kind, *key) == (document.kind, table.key));
        table.keep_first(charted.map_or(MOST_ROWS, |(.., most)| *most));
    }
    document.completeness.blind.truncate(MOST_ROWS);
}

/// Cuts the lists of the summary or of the report on memory.
fn shorten_report(report: &mut Report) {
    let images = report.processes.len();
    if images > MOST_IMAGES {
        report.processes.truncate(MOST_IMAGES);
        let of = count(images as u64);
        report.notes.push(format!("this page has the first {MOST_IMAGES} of {of} program images"));
    }
    let sites = MOST_SITES.div_ceil(report.ranks.len().max(1)).max(LEAST_SITES);
    for rank in &mut report.ranks {
        rank.host_memory.sites.truncate(sites);
    }
    report.completeness.blind.truncate(MOST_ROWS);
}

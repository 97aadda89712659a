//! Finds the first finding of a run, and what recording cost per step, for the summary of `tprof
//! run`.
//!
//! The run's files were just written, so they are still in the page cache. The shell prompt must
//! not wait for long: if the files are larger than [`MOST_BYTES`], only `tprof report findings`
//! shows these facts.

use std::path::Path;

use tprof_analyze::{KINDS, ReportRequest, make_reports};
use tprof_document::{Cell, Document, Options, Value};
use tprof_trace::run::RunInfo;

/// Largest size of a run's files to read. That is about a minute of a job with one rank, and takes
/// some tenths of a second to read.
const MOST_BYTES: u64 = 4 << 20;

/// Facts from a run's files; all are `None` if it would take long to find them.
#[derive(Default)]
pub struct Shown {
    /// The first finding's headline, without its number.
    pub finding: Option<String>,
    /// A sentence about the cost of recording per step.
    pub step: Option<String>,
}

/// Reads the facts of a run. Facts that cannot be read are `None`.
pub fn of(directory: &Path, info: &RunInfo) -> Shown {
    read(directory, info).unwrap_or_default()
}

/// Returns the headline of a run's first finding; `None` if there is none, or if it would take long
/// to find it.
pub fn first_finding(directory: &Path, info: &RunInfo) -> Option<String> {
    of(directory, info).finding
}

fn read(directory: &Path, info: &RunInfo) -> Option<Shown> {
    let sizes = info.files.iter().map(|file| directory.join(file).metadata());
    if sizes.map(|meta| meta.map_or(0, |meta| meta.len())).sum::<u64>() > MOST_BYTES {
        return None;
    }
    let findings = KINDS.iter().find(|kind| kind.name == "findings")?;
    let wanted = ReportRequest { reports: &[], kinds: &[findings] };
    let made = make_reports(directory, &wanted, &Options::default(), None).ok()?;
    let finding = made.documents.first().and_then(headline);
    Some(Shown { finding, step: made.step.map(|step| step.brief()) })
}

fn headline(findings: &Document) -> Option<String> {
    let table = findings.tables.iter().find(|table| table.key == "findings")?;
    let at = table.columns.iter().position(|column| column.key == "headline")?;
    let Some(Value::Text(headline)) = table.rows.first()?.get(at).and_then(Cell::value) else {
        return None;
    };
    Some(headline.strip_prefix("1. ").unwrap_or(headline).to_owned())
}

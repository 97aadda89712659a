//! The first finding of a run, and what recording cost a step of it, for its summary.
//!
//! It reads the files that were just written, which are still in the page cache. A shell prompt
//! must not wait for it: above [`MOST_BYTES`], it is left to `tprof report findings`.

use std::path::Path;

use tprof_analyze::document::{Cell, Options, Value};
use tprof_analyze::{Document, KINDS, ReportRequest, read_together};
use tprof_trace::run::RunInfo;

/// About a minute of a job of one rank, which takes some tenths of a second.
const MOST_BYTES: u64 = 4 << 20;

/// What a run's files show; nothing where it would take long to find.
#[derive(Default)]
pub struct Shown {
    /// The headline of the first finding, without its number.
    pub finding: Option<String>,
    /// What recording cost a step, in a sentence.
    pub step: Option<String>,
}

/// Of a run.
pub fn of(directory: &Path, info: &RunInfo) -> Shown {
    read(directory, info).unwrap_or_default()
}

fn read(directory: &Path, info: &RunInfo) -> Option<Shown> {
    let sizes = info.files.iter().map(|file| directory.join(file).metadata());
    if sizes.map(|meta| meta.map_or(0, |meta| meta.len())).sum::<u64>() > MOST_BYTES {
        return None;
    }
    let findings = KINDS.iter().find(|kind| kind.name == "findings")?;
    let wanted = ReportRequest { reports: &[], kinds: &[findings] };
    let made = read_together(directory, &wanted, &Options::default(), None).ok()?;
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

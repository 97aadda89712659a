//! Finds the first finding of a run for its summary.
//!
//! It reads the files that were just written, which are still in the page cache. A shell prompt
//! must not wait for it: above [`MOST_BYTES`], it is left to `tprof report findings`.

use std::path::Path;

use tprof_analyze::document::{Cell, Options, Value};
use tprof_analyze::{Document, KINDS};
use tprof_trace::run::RunInfo;

/// About a minute of a job of one rank, which takes some tenths of a second.
const MOST_BYTES: u64 = 4 << 20;

/// Returns the finding's headline without its number; `None` if there is none, or if finding it
/// would take long.
pub fn of(directory: &Path, info: &RunInfo) -> Option<String> {
    let sizes = info.files.iter().map(|file| directory.join(file).metadata());
    if sizes.map(|meta| meta.map_or(0, |meta| meta.len())).sum::<u64>() > MOST_BYTES {
        return None;
    }
    let findings = KINDS.iter().find(|kind| kind.name == "findings")?;
    headline(&findings.make(directory, &Options::default(), None).ok()?)
}

fn headline(findings: &Document) -> Option<String> {
    let table = findings.tables.iter().find(|table| table.key == "findings")?;
    let at = table.columns.iter().position(|column| column.key == "headline")?;
    let Some(Value::Text(headline)) = table.rows.first()?.get(at).and_then(Cell::value) else {
        return None;
    };
    Some(headline.strip_prefix("1. ").unwrap_or(headline).to_owned())
}

//! `tprof report`: what a run's files say, as text, JSON or CSV on stdout.

mod csv;
pub mod document;
mod failure;
mod frames;
mod gpu;
mod head;
mod memory;
pub mod page;
mod plot;
mod ranks;
mod sites;
mod summary;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::process::ExitCode;

use tprof_analyze::document::{Document, DocumentKind, Options, Table};
use tprof_analyze::{Kind, Report};

use crate::cli::ReportArgs;
use crate::errors::{Failure, said};
use crate::import::open_run_or_import;
use crate::symbols::Late;
pub use failure::{analyze_failure, no_rank, no_table, trace_failure};

/// Reads a run and prints the report.
pub fn run(args: ReportArgs) -> anyhow::Result<ExitCode> {
    let kind = args.kind.as_deref().unwrap_or("summary");
    let text = match (kind, tprof_analyze::KINDS.iter().find(|known| known.name == kind)) {
        (_, Some(kind)) => of_document(kind, &args)?,
        ("summary", None) => of_report(Kind::Summary, &args)?,
        ("memory", None) => of_report(Kind::Memory, &args)?,
        (other, None) => return Err(failure::unknown_kind(other).into()),
    };
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write the report")
                .cause(said(&error))
                .hint("> FILE elsewhere")
                .into())
        }
        wrote => Ok(wrote.map(|()| ExitCode::SUCCESS)?),
    }
}

fn of_document(kind: &DocumentKind, args: &ReportArgs) -> anyhow::Result<String> {
    let late = Late::default();
    let options = Options {
        rank: args.rank,
        hta: args.hta,
        operator: args.operator.clone(),
        within: args.within.clone(),
        data: args.json || args.csv,
    };
    let run = open_run_or_import(&args.path)?;
    let mut document = (kind.make)(run.path(), &options, Some(&late))
        .map_err(|error| failure::analyze_failure(&args.path, &error))?;
    document.run.path.clone_from(&args.path);
    document.notes.extend(late.notes());
    Ok(if args.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else if args.csv {
        document::csv(table_for_csv(&document, args.table.as_deref())?)
    } else {
        document::text(&document, args.top)
    })
}

/// The table that CSV prints: the first, unless another is named.
fn table_for_csv<'a>(document: &'a Document, name: Option<&str>) -> anyhow::Result<&'a Table> {
    let mut tables = document.tables.iter();
    let found = match name {
        None => tables.next(),
        Some(name) => tables.find(|table| table.key == name),
    };
    let keys: Vec<&str> = document.tables.iter().map(|table| table.key).collect();
    found.ok_or_else(|| failure::no_table(name.unwrap_or_default(), document.kind, &keys).into())
}

fn of_report(kind: Kind, args: &ReportArgs) -> anyhow::Result<String> {
    if args.hta {
        let name = args.kind.as_deref().unwrap_or("summary");
        return Err(Failure::new(format!("the {name} report has no `--hta`"))
            .cause("Holistic Trace Analysis has nothing to compare it with")
            .hint("leave out --hta")
            .into());
    }
    if let Some(table) = &args.table {
        let name = args.kind.as_deref().unwrap_or("summary");
        return Err(Failure::new(format!("the {name} report has one table alone as CSV"))
            .cause(format!("`--table {table}` was given"))
            .hint("leave out --table")
            .into());
    }
    let late = Late::default();
    let run = open_run_or_import(&args.path)?;
    let mut report = tprof_analyze::report_with(run.path(), kind, args.rank, Some(&late))
        .map_err(|error| failure::analyze_failure(&args.path, &error))?;
    report.run.path.clone_from(&args.path);
    report.notes = late.notes();
    Ok(if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else if args.csv {
        csv::csv(&report)
    } else {
        text(&report, args.top)
    })
}

/// The report for a person; `top` rows in each table.
fn text(report: &Report, top: usize) -> String {
    match report.kind {
        Kind::Summary => summary::text(report, top),
        Kind::Memory => memory::text(report, top),
    }
}

//! Reads a run, and prints its reports.

use std::io::Write;
use std::process::ExitCode;

use tprof_analyze::{KINDS, Kind, Report, ReportRequest, Reports, make_reports};
use tprof_document::{Document, DocumentKind, LineTables, Options, Table, TimeSelection, Window};
use tprof_trace::live::is_collector_alive;

use super::args::ReportArgs;
use super::kinds::{REPORTS, kind_name};
use super::{csv, document, many, memory, summary};

use tprof_ui::columns;
use tprof_ui::errors::Failure;

use crate::commands::live::written_out;
use crate::commands::ls;
use crate::runs::failure;
use crate::runs::foreign::open_run_or_import;
use crate::runs::symbols::LateSymbolizer;
use crate::terminal::page::Form;

/// Reads a run, and prints one or several reports.
pub fn run(args: ReportArgs) -> anyhow::Result<ExitCode> {
    let made = make(&args)?;
    let text = match &args.output {
        Some(directory) => {
            many::write_csv(&made, directory)?;
            return Ok(ExitCode::SUCCESS);
        }
        None => rendered(&made, &args)?,
    };
    write_out(&text)
}

/// Prints the JSON Schema of all JSON output.
pub fn print_schema() -> anyhow::Result<ExitCode> {
    let merged = tprof_schema::merged(vec![("ls", ls::schema())]);
    write_out(&format!("{merged:#}\n"))
}

fn write_out(text: &str) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write the report")
                .because(&error, "redirect stdout to another file")
                .into())
        }
        wrote => Ok(wrote.map(|()| ExitCode::SUCCESS)?),
    }
}

/// Makes the requested reports in one pass over the run's files.
fn make(args: &ReportArgs) -> anyhow::Result<Reports> {
    let is_wanted = |name: &str| args.kinds.iter().any(|kind| kind == name);
    let reports: Vec<Kind> =
        REPORTS.into_iter().filter(|kind| is_wanted(kind_name(*kind))).collect();
    let kinds: Vec<&DocumentKind> = KINDS.iter().filter(|kind| is_wanted(kind.name)).collect();
    let given = [
        ("--within", args.within.is_some()),
        ("--operator", args.operator.is_some()),
        ("--lines", args.lines),
        ("--sort", args.sort.is_some()),
        ("--mine", args.mine),
        ("--stalls", args.stalls),
        ("--thread", args.thread.is_some()),
        ("--peaks", args.peaks.is_some()),
        ("--steady", args.steady),
    ];
    for (option, is_given) in given {
        let takes = |kind: &DocumentKind| kind.takes(option);
        if is_given && !kinds.iter().any(|kind| takes(kind)) {
            let takers: Vec<_> =
                KINDS.iter().filter(|one| takes(one)).map(|one| one.name).collect();
            return Err(failure::not_taken(option, &args.kinds, &takers).into());
        }
    }
    if let [kind] = args.kinds.as_slice()
        && !reports.is_empty()
    {
        refuse_for_report(kind, args)?;
    }
    let late = LateSymbolizer::default();
    let options = Options {
        rank: args.rank,
        hta: args.hta,
        steady: args.steady,
        steps_from: args.steps_from,
        cycle: args.cycle,
        window: args.window,
        cut: TimeSelection::default(),
        operator: args.operator.clone(),
        within: args.within.clone(),
        thread: args.thread.clone(),
        lines: match args.lines {
            true => LineTables::Only,
            false => LineTables::No,
        },
        sort: args.sort.unwrap_or_default(),
        mine: args.mine,
        stalls: args.stalls,
        peaks: args.peaks,
        data: args.json || args.csv,
        is_running: Some(is_collector_alive),
    };
    let unwritten = match args.window {
        Some(Window::OfProgram { to_ns, device_until_ns, .. }) => {
            written_out(&args.path, Some(device_until_ns.unwrap_or(to_ns)))?
        }
        Some(Window::OfRun(..)) | None => Vec::new(),
    };
    let run = open_run_or_import(&args.path)?;
    let wanted = ReportRequest { reports: &reports, kinds: &kinds };
    let mut made = make_reports(run.path(), &wanted, &options, Some(&late))
        .map_err(|error| failure::analyze_failure(&args.path, &error))?;
    let mut notes = late.notes();
    notes.extend(unwritten);
    for report in &mut made.reports {
        report.run.path.clone_from(&args.path);
        report.notes.extend(notes.iter().cloned());
    }
    for document in &mut made.documents {
        document.run.path.clone_from(&args.path);
        document.notes.extend(notes.iter().cloned());
    }
    Ok(made)
}

fn rendered(made: &Reports, args: &ReportArgs) -> anyhow::Result<String> {
    let (top, json) = (args.top, args.json);
    let form = match args.markdown {
        true => Form::Markdown,
        false => Form::Text(columns::of_stdout()),
    };
    Ok(match (made.reports.as_slice(), made.documents.as_slice()) {
        ([report], []) if json => serde_json::to_string_pretty(report)? + "\n",
        ([report], []) if args.csv => csv::csv(report),
        ([report], []) => text(report, top, form),
        ([], [document]) if json => serde_json::to_string_pretty(document)? + "\n",
        ([], [document]) if args.csv => {
            document::csv(table_for_csv(document, args.table.as_deref())?)
        }
        ([], [document]) => document::text(document, top, form),
        _ if json => many::json(made, &args.kinds)?,
        _ => many::text(made, &args.kinds, top, form),
    })
}

/// Returns the table to print as CSV: the named one, otherwise the first.
fn table_for_csv<'a>(document: &'a Document, name: Option<&str>) -> anyhow::Result<&'a Table> {
    let mut tables = document.tables.iter();
    let found = match name {
        None => tables.next(),
        Some(name) => tables.find(|table| table.key == name),
    };
    let keys: Vec<&str> = document.tables.iter().map(|table| table.key).collect();
    found.ok_or_else(|| failure::no_table(name.unwrap_or_default(), document.kind, &keys).into())
}

/// Refuses options that the summary and the memory report don't support.
fn refuse_for_report(name: &str, args: &ReportArgs) -> Result<(), Failure> {
    if args.hta {
        return Err(Failure::new(format!("the {name} report has no `--hta`"))
            .cause("Holistic Trace Analysis has no such report")
            .hint("drop --hta"));
    }
    if let Some(table) = &args.table {
        return Err(Failure::new(format!("the {name} report has only one CSV table"))
            .cause(format!("`--table {table}` was given"))
            .hint("drop --table"));
    }
    Ok(())
}

/// Formats the report as text, with `top` rows per table.
pub fn text(report: &Report, top: usize, form: Form) -> String {
    match report.kind {
        Kind::Summary => summary::text(report, top, form),
        Kind::Memory => memory::text(report, top, form),
    }
}

//! Prints several kinds of report. The run is read only once for all.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tprof_analyze::{Kind, Report, Reports};
use tprof_document::{Document, REPORT_VERSION};
use tprof_ui::errors::Failure;

use super::head::{self, Head};
use super::kinds::{kind_name, report_kinds};
use super::{csv, document, memory, summary};
use crate::terminal::page::{Form, Page};

/// One of several reports: a report or a document.
#[derive(Clone, Copy)]
enum SingleReport<'a> {
    Report(&'a Report),
    Document(&'a Document),
}

impl SingleReport<'_> {
    fn kind(self) -> &'static str {
        match self {
            SingleReport::Report(report) => kind_name(report.kind),
            SingleReport::Document(document) => document.kind,
        }
    }

    fn head(&self) -> Head<'_> {
        match self {
            SingleReport::Report(report) => Head::of_report(report),
            SingleReport::Document(document) => Head::of_document(document),
        }
    }
}

/// Returns the reports in the order in which they were requested.
fn in_order<'a>(made: &'a Reports, kinds: &[String]) -> Vec<SingleReport<'a>> {
    let reports = made.reports.iter().map(SingleReport::Report);
    let mut all: Vec<SingleReport> =
        reports.chain(made.documents.iter().map(SingleReport::Document)).collect();
    all.sort_by_key(|one| kinds.iter().position(|kind| kind == one.kind()));
    all
}

/// Formats the reports as text: first the parts that all share, then each report under a heading.
pub fn text(made: &Reports, kinds: &[String], top: usize, form: Form) -> String {
    let all = in_order(made, kinds);
    let mut page = Page::new(form);
    let mut problems: Vec<String> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for one in &all {
        let head = one.head();
        for (sum, of_one) in [(&mut problems, head.problems), (&mut notes, one_notes(*one))] {
            let new: Vec<String> =
                of_one.iter().filter(|text| !sum.contains(text)).cloned().collect();
            sum.extend(new);
        }
    }
    let Some(least) = all.iter().min_by_key(|one| one.head().completeness.complete) else {
        return page.into_text();
    };
    let common = Head { problems: &problems, notes: &notes, ..least.head() };
    head::completeness(&mut page, &common, &title(kinds));
    for one in &all {
        page.part(&heading(one.kind()));
        page.gap();
        match one {
            SingleReport::Report(report) if report.kind == Kind::Summary => {
                summary::body(&mut page, report, top);
            }
            SingleReport::Report(report) => memory::body(&mut page, report, top),
            SingleReport::Document(document) => {
                head::notes(&mut page, &document.notes);
                document::tables(&mut page, &document.tables, top);
            }
        }
    }
    page.into_text()
}

/// Returns the notes of a report that concern the whole run. Documents have none, because they
/// print their notes under their heading.
fn one_notes(one: SingleReport<'_>) -> &[String] {
    match one {
        SingleReport::Report(report) => &report.notes,
        SingleReport::Document(_) => &[],
    }
}

fn title(kinds: &[String]) -> String {
    match kinds.len() == report_kinds().count() {
        true => "all".to_owned(),
        false => kinds.join(", "),
    }
}

/// Returns a heading such as `kernels: kernels and copies by kind and by name`.
fn heading(kind: &str) -> String {
    let about = report_kinds().find(|(name, _)| *name == kind).map_or("", |(_, about)| about);
    format!("{kind}: {}", about.trim_end_matches(" (default)"))
}

/// Formats the reports as one JSON object. Each entry of `reports` equals the JSON of the report
/// alone.
pub fn json(made: &Reports, kinds: &[String]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&ReportsJson(&in_order(made, kinds)))? + "\n")
}

struct ReportsJson<'a>(&'a [SingleReport<'a>]);

impl Serialize for ReportsJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &REPORT_VERSION)?;
        map.serialize_entry("tprof", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("reports", &ReportJson(self.0))?;
        map.end()
    }
}

struct ReportJson<'a>(&'a [SingleReport<'a>]);

impl Serialize for ReportJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|one| (one.kind(), one)))
    }
}

impl Serialize for SingleReport<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            SingleReport::Report(report) => report.serialize(to),
            SingleReport::Document(document) => document.serialize(to),
        }
    }
}

/// Writes every table as a file `KIND.TABLE.csv` into a directory.
pub fn write_csv(made: &Reports, directory: &Path) -> Result<(), Failure> {
    let failed = |what: &Path, error: &std::io::Error| {
        Failure::new(format!("cannot write `{}`", what.display()))
            .because(error, "-o with a writable directory")
    };
    crate::runs::directory::make(directory)?;
    let write = |kind: &str, table: &str, text: String| {
        let path = directory.join(format!("{kind}.{table}.csv"));
        fs::write(&path, text).map_err(|error| failed(&path, &error))
    };
    for report in &made.reports {
        let table = if report.kind == Kind::Summary { "ranks" } else { "sites" };
        write(kind_name(report.kind), table, csv::csv(report))?;
    }
    for document in &made.documents {
        for table in &document.tables {
            write(document.kind, table.key, document::csv(table))?;
        }
    }
    Ok(())
}

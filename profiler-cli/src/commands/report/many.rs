//! Several kinds of report at once, of a run that is read once.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tprof_analyze::document::Document;
use tprof_analyze::document::REPORT_VERSION;
use tprof_analyze::{Kind, Report, Reports};

use super::head::{self, Head};
use super::kinds::{kind_name, report_kinds};
use super::{csv, document, memory, summary};
use crate::terminal::errors::Failure;
use crate::terminal::page::{Form, Page};

/// One of the reports.
#[derive(Clone, Copy)]
enum One<'a> {
    Report(&'a Report),
    Document(&'a Document),
}

impl One<'_> {
    fn kind(self) -> &'static str {
        match self {
            One::Report(report) => kind_name(report.kind),
            One::Document(document) => document.kind,
        }
    }

    fn head(&self) -> Head<'_> {
        match self {
            One::Report(report) => Head::of_report(report),
            One::Document(document) => Head::of_document(document),
        }
    }
}

/// The reports in the order in which they were asked for.
fn in_order<'a>(made: &'a Reports, kinds: &[String]) -> Vec<One<'a>> {
    let reports = made.reports.iter().map(One::Report);
    let mut all: Vec<One> = reports.chain(made.documents.iter().map(One::Document)).collect();
    all.sort_by_key(|one| kinds.iter().position(|kind| kind == one.kind()));
    all
}

/// For a person: what all have in common first, then each under a heading.
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
            One::Report(report) if report.kind == Kind::Summary => {
                summary::body(&mut page, report, top);
            }
            One::Report(report) => memory::body(&mut page, report, top),
            One::Document(document) => {
                head::notes(&mut page, &document.notes);
                document::tables(&mut page, &document.tables, top);
            }
        }
    }
    page.into_text()
}

/// Notes that concern the whole run: documents print theirs under their heading.
fn one_notes(one: One<'_>) -> &[String] {
    match one {
        One::Report(report) => &report.notes,
        One::Document(_) => &[],
    }
}

fn title(kinds: &[String]) -> String {
    match kinds.len() == report_kinds().count() {
        true => "all".to_owned(),
        false => kinds.join(", "),
    }
}

/// `kernels: kernels and copies by kind and by name`.
fn heading(kind: &str) -> String {
    let about = report_kinds().find(|(name, _)| *name == kind).map_or("", |(_, about)| about);
    format!("{kind}: {}", about.trim_end_matches(" (default)"))
}

/// As one object; under `reports` each is what it would be by itself.
pub fn json(made: &Reports, kinds: &[String]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(&Several(&in_order(made, kinds)))? + "\n")
}

struct Several<'a>(&'a [One<'a>]);

impl Serialize for Several<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("version", &REPORT_VERSION)?;
        map.serialize_entry("tprof", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("reports", &Each(self.0))?;
        map.end()
    }
}

struct Each<'a>(&'a [One<'a>]);

impl Serialize for Each<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|one| (one.kind(), one)))
    }
}

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            One::Report(report) => report.serialize(to),
            One::Document(document) => document.serialize(to),
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

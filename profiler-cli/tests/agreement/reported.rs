//! Reads the figures that reports of a run contain.

use std::collections::BTreeMap;
use std::path::Path;

use tprof_analyze::{KINDS, Kind, ReportRequest, make_reports};
use tprof_document::{Cell, Document, DocumentKind, Options, Value};

/// Class and name of device work, and how often work of that name ran.
pub type Work = BTreeMap<(String, String), u64>;
/// Start and end of steps in nanoseconds since the run began, by the file's label and the step's
/// number. If several steps of a file have one number, the start of the first and the end of the
/// last.
pub type Steps = BTreeMap<(String, u64), (u64, u64)>;

/// Figures from reports.
pub struct Reported {
    pub work: Work,
    /// Time in which a device was busy, summed over devices, in nanoseconds.
    pub busy_ns: f64,
    pub steps: Steps,
    pub start_unix_ns: u64,
    pub labels: Vec<String>,
}

impl Reported {
    /// Returns the names of copies and memsets, and how often each ran.
    pub fn copies(&self) -> BTreeMap<String, u64> {
        let copies = self.work.iter().filter(|((class, _), _)| class == "memory");
        copies.map(|((_, name), count)| (name.clone(), *count)).collect()
    }
}

pub fn of(run: &Path) -> Reported {
    let kind = |name: &str| KINDS.iter().find(|kind| kind.name == name).unwrap();
    let kinds: [&DocumentKind; 3] = [kind("kernels"), kind("breakdown"), kind("steps")];
    let wanted = ReportRequest { reports: &[Kind::Summary], kinds: &kinds };
    let made = make_reports(run, &wanted, &Options::default(), None).unwrap();
    let [kernels, breakdown, steps] = &made.documents[..] else { panic!("three were wanted") };
    let mut work = Work::new();
    for row in rows(kernels, "kernels") {
        *work.entry((text(&row, "class"), text(&row, "name"))).or_default() +=
            number(&row, "count") + number(&row, "outside_count");
    }
    let devices = rows(breakdown, "breakdown");
    let busy = |row: &Row<'_>| number(row, "window_ns") as f64 - number(row, "idle_ns") as f64;
    let outside = rows(breakdown, "outside_of_steps");
    let outside = outside.iter().map(|row| number(row, "busy_ns") as f64);
    let mut of_number = Steps::new();
    for row in rows(steps, "steps") {
        // Exports cut steps by their times on the host.
        let start_ns = number(&row, "host_start_ns");
        let end_ns = start_ns + number(&row, "host_ns");
        let all = of_number.entry((text(&row, "rank"), number(&row, "step")));
        let (first_ns, last_ns) = all.or_insert((start_ns, end_ns));
        (*first_ns, *last_ns) = (start_ns.min(*first_ns), end_ns.max(*last_ns));
    }
    Reported {
        work,
        busy_ns: devices.iter().map(busy).chain(outside).sum(),
        steps: of_number,
        start_unix_ns: made.reports[0].run.start_unix_ns.get().unwrap_or(0),
        labels: made.reports[0].ranks.iter().map(|rank| rank.label.clone()).collect(),
    }
}

type Row<'a> = BTreeMap<&'a str, &'a Cell>;

fn rows<'a>(document: &'a Document, table: &str) -> Vec<Row<'a>> {
    let table = document.tables.iter().find(|found| found.key == table).unwrap();
    let keys: Vec<&str> = table.columns.iter().map(|column| column.key).collect();
    table.rows.iter().map(|row| keys.iter().copied().zip(row).collect()).collect()
}

fn text(row: &Row<'_>, key: &str) -> String {
    match row[key].value() {
        Some(Value::Text(text)) => text.clone(),
        other => panic!("{key} is {other:?}"),
    }
}

fn number(row: &Row<'_>, key: &str) -> u64 {
    match row[key].value() {
        Some(Value::Unsigned(number)) => *number,
        other => panic!("{key} is {other:?}"),
    }
}

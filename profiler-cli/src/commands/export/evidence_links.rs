//! Links findings and slow spans on the report page to their place on the timeline, a page in the
//! same directory.

use tprof_document::{Cell, Document, Table, Value};
use tprof_export::report_page;

/// Page that the links lead to.
pub const TIMELINE: &str = "timeline.html";

/// Returns the link to the first piece of evidence of each finding, with the finding's number.
pub fn of(document: &Document) -> Vec<(u64, String)> {
    let Some(table) = document.tables.iter().find(|table| table.key == "evidence") else {
        return Vec::new();
    };
    let number = |row: &[Cell], key: &str| number(table, row, key);
    let mut links: Vec<(u64, String)> = Vec::new();
    for row in &table.rows {
        let (Some(finding), Some(start), Some(end)) =
            (number(row, "finding"), number(row, "start_ns"), number(row, "end_ns"))
        else {
            continue;
        };
        if links.iter().any(|(known, _)| *known == finding as u64) {
            continue;
        }
        links.push((finding as u64, link(start, end, number(row, "thread"))));
    }
    links
}

/// Returns the link to an interval of the timeline, with some time around it.
fn link(start_ns: f64, end_ns: f64, thread: Option<f64>) -> String {
    let around = ((end_ns - start_ns) * 2.0).max(1e6);
    let from = (start_ns - around).max(0.0);
    let mut link = format!("{TIMELINE}#from={from:.0}&to={:.0}", end_ns + around);
    if let Some(thread) = thread {
        link.push_str(&format!("&thread={thread:.0}"));
    }
    link
}

/// Adds links to the cells of a table that name a place in the run: of findings, or of slow spans.
pub fn linked(
    mut page: report_page::Table,
    table: &Table,
    links: &[(u64, String)],
) -> report_page::Table {
    let shown = || table.columns.iter().filter(|column| !column.heading.is_empty());
    let place = |key: &str| shown().position(|column| column.key == key);
    for (cells, row) in page.rows.iter_mut().zip(&table.rows) {
        let (at, link) = match (place("look_at"), place("from_time")) {
            (Some(at), _) => {
                let finding = number(table, row, "finding").map(|number| number as u64);
                let link = links.iter().find(|(of, _)| Some(*of) == finding);
                (at, link.map(|(_, link)| link.clone()))
            }
            (None, Some(at)) => (at, of_span(table, row)),
            (None, None) => return page,
        };
        if let (Some(link), false) = (link, cells[at].text.is_empty()) {
            cells[at].href = link;
        }
    }
    page
}

fn of_span(table: &Table, row: &[Cell]) -> Option<String> {
    let number = |key: &str| number(table, row, key);
    let start_ns = number("start_ns")?;
    Some(link(start_ns, start_ns + number("duration_ns")?, number("tid")))
}

fn number(table: &Table, row: &[Cell], key: &str) -> Option<f64> {
    let at = table.columns.iter().position(|column| column.key == key)?;
    row[at].value().and_then(Value::number)
}

//! Where a finding's evidence lies on the timeline beside the report page.

use tprof_analyze::document::{Cell, Document, Table, Value};
use tprof_export::report_page;

/// The page that the links lead to.
pub const TIMELINE: &str = "timeline.html";

/// Links to the first piece of evidence of each finding, by the finding's number.
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
        // With what surrounds it.
        let around = ((end - start) * 2.0).max(1e6);
        let from = (start - around).max(0.0);
        let mut link = format!("{TIMELINE}#from={from:.0}&to={:.0}", end + around);
        if let Some(thread) = number(row, "thread") {
            link.push_str(&format!("&thread={thread:.0}"));
        }
        links.push((finding as u64, link));
    }
    links
}

/// A table of findings with links in its cells of places.
pub fn linked(
    mut page: report_page::Table,
    table: &Table,
    links: &[(u64, String)],
) -> report_page::Table {
    let shown = || table.columns.iter().filter(|column| !column.heading.is_empty());
    let Some(at) = shown().position(|column| column.key == "look_at") else { return page };
    for (cells, row) in page.rows.iter_mut().zip(&table.rows) {
        let finding = number(table, row, "finding").map(|number| number as u64);
        let link = links.iter().find(|(of, _)| Some(*of) == finding);
        if let (Some((_, link)), false) = (link, cells[at].text.is_empty()) {
            cells[at].href.clone_from(link);
        }
    }
    page
}

fn number(table: &Table, row: &[Cell], key: &str) -> Option<f64> {
    let at = table.columns.iter().position(|column| column.key == key)?;
    row[at].value().and_then(Value::number)
}

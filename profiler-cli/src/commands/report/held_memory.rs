//! Formats the memory that ranks hold at one moment, for `tprof ctl snapshot`.

use std::sync::Arc;

use tprof_document::{Cell, Document, Table, Value};

use super::document::{shown_cell, tables};
use super::frames;
use super::head::{self, Head};
use crate::terminal::page::{Form, Page};
use crate::terminal::table::cut;

/// Returns the text of the whole page, with `top` sites.
pub fn text(document: &Document, top: usize, width: usize) -> String {
    let mut page = Page::new(Form::Text(width));
    head::completeness(&mut page, &Head::of_document(document), document.kind);
    let (ranks, rest) = document.tables.split_at(document.tables.len().min(1));
    tables(&mut page, ranks, top);
    for table in rest {
        sites(&mut page, table, top);
    }
    page.into_text()
}

/// Adds the sites with their stacks, as the memory report does.
fn sites(page: &mut Page, table: &Table, top: usize) {
    let all = table.rows.len();
    page.heading(&format!("{}{}", table.title, cut(top, all)));
    if table.rows.is_empty() {
        page.paragraph(2, &format!("none: {}", table.empty));
    }
    let place = |key: &str| table.columns.iter().position(|column| column.key == key);
    let Some(stack) = place("stack") else { return };
    for row in table.rows.iter().take(top) {
        let shown = row.iter().zip(&table.columns).take(stack);
        let cells: Vec<String> =
            shown.map(|(cell, column)| format!("{:>10}", shown_cell(cell, column))).collect();
        page.fixed(&format!("  {}", cells.join(" ")));
        let texts: Vec<Arc<str>> = match &row[stack] {
            Cell::Is(Value::Text(text)) => text.lines().map(Arc::from).collect(),
            _ => Vec::new(),
        };
        for frame in frames::shown(&texts, page.width() - 8) {
            page.fixed(&format!("      {frame}"));
        }
    }
}

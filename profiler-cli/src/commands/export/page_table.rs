//! Tables of the report page, with limits on rows and on frames.

use tprof_document::{Cell, Column, Table, Unit, Value, View};
use tprof_export::report_page;

use crate::commands::report::document::shown_cell;

/// Largest number of rows of a table.
pub(super) const MOST_ROWS: usize = 100;
/// Largest number of frames of a stack in a tooltip.
pub(super) const MOST_FRAMES: usize = 40;

/// Converts a table of a report to one of the page.
pub(super) fn page_table(table: &Table) -> report_page::Table {
    let shown: Vec<(usize, &Column)> =
        table.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty()).collect();
    let mut reasons: Vec<String> = Vec::new();
    let rows = table.rows.iter().take(table.counted(MOST_ROWS).1).map(|row| {
        let cell = |(at, column): &(usize, &Column)| {
            let cell = &row[*at];
            if let Cell::Missing(why) = cell {
                let reason = format!("{}: {why}", column.heading);
                if !reasons.contains(&reason) && reasons.len() < 5 {
                    reasons.push(reason);
                }
            }
            page_cell(cell, column, table.view)
        };
        shown.iter().map(cell).collect()
    });
    let rows = rows.collect();
    report_page::Table {
        title: table.title.clone(),
        about: match &table.folded {
            Some(folded) => format!("{}; {}", table.about, folded.line),
            None => table.about.clone(),
        },
        headings: (shown.iter())
            .map(|(_, column)| {
                (column.heading.to_owned(), matches!(column.unit, Unit::Text | Unit::Name))
            })
            .collect(),
        rows,
        cards: table.view == View::Cards,
        severities: severities(table),
        left_out: table.counted(MOST_ROWS).0.saturating_sub(MOST_ROWS),
        reasons,
        empty: table.empty.clone(),
    }
}

/// Returns the severity of each row, if the table has severities.
fn severities(table: &Table) -> Vec<String> {
    let Some(at) = table.place("severity") else { return Vec::new() };
    table.rows.iter().map(|row| shown_cell(&row[at], &table.columns[at])).collect()
}

fn page_cell(cell: &Cell, column: &Column, view: View) -> report_page::TableCell {
    // A card or a line has room for sentences, a table's cell doesn't.
    let room = if matches!(view, View::Cards | View::Lines) { 4_000 } else { 240 };
    let number = cell.value().and_then(Value::number);
    let text = match cell {
        Cell::Empty => String::new(),
        cell => cut(&shown_cell(cell, column), room),
    };
    let title = match cell {
        Cell::Missing(why) => why.clone(),
        Cell::Is(Value::Text(name)) if name.len() > 30 => cut(name, 600),
        _ => String::new(),
    };
    let share = number.filter(|_| column.unit == Unit::Share && column.key.contains("share"));
    report_page::TableCell { text, number, share, title, href: String::new() }
}

/// Returns `text` if it has at most `most` characters, otherwise its beginning and an ellipsis.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Joins the function names of the innermost frames, without files and lines.
pub(super) fn short(names: &[&str]) -> String {
    let function = |name: &&str| {
        let function = name.rsplit_once(" (").map_or(*name, |(function, _)| function);
        cut(function, 80)
    };
    names.iter().take(4).map(function).collect::<Vec<_>>().join(" ‹ ")
}

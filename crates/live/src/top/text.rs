//! Formats one snapshot as text, for a script or a log.

use std::fmt::Write;

use super::phrases;
use super::table::{Column, cell, columns};
use super::view::View;
use crate::snapshot::Snapshot;

/// A width in which all columns fit.
const WIDTH: usize = 160;
/// Number of events to show.
const EVENTS: usize = 10;

/// Formats a snapshot as text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut view = View::default();
    view.take(snapshot.clone());
    let mut text = String::new();
    let _ = writeln!(text, "{}", phrases::command(&view));
    let _ = writeln!(text, "{}: {}", phrases::state(&view), phrases::totals(&view));
    if let Some(verdict) = phrases::verdict(&view) {
        let _ = writeln!(text, "{verdict}");
    }
    let columns = columns(&view, WIDTH);
    line(&mut text, columns.iter().map(|column| (*column, column.title().to_owned())));
    for at in view.order() {
        line(&mut text, columns.iter().map(|column| (*column, cell(&view, at, *column))));
    }
    for stall in &view.now.stalls {
        let _ = writeln!(text, "{}", phrases::stall(stall));
    }
    for failed in view.now.ranks.iter().filter_map(phrases::out_of_memory) {
        let _ = writeln!(text, "{failed}");
    }
    let last = view.events.len().saturating_sub(EVENTS);
    for event in view.events.iter().skip(last) {
        let _ = writeln!(text, "{}", phrases::event(event));
    }
    text
}

fn line(text: &mut String, cells: impl Iterator<Item = (Column, String)>) {
    let mut line = String::new();
    for (column, cell) in cells {
        let width = column.width();
        let _ = match column.is_number() {
            true => write!(line, "{cell:>width$} "),
            false => write!(line, "{cell:<width$} "),
        };
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

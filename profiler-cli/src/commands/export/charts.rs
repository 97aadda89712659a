//! Charts of the report page: device time by rank, times of steps, and curves over time.

use tprof_document::{Cell, Column, Document, Table, Unit, Value, View};
use tprof_export::report_page::Chart;
use tprof_facts::units::duration;

use super::{gpu_time_chart, host_charts};
use crate::commands::report::document::shown_cell;

/// Largest number of columns of a step plot.
const MOST_STEPS: usize = 120;
/// Largest number of bars in a chart of ranks.
const MOST_RANKS: usize = 64;

/// Returns all charts of a document.
pub(super) fn all(document: &Document) -> Vec<Chart> {
    let find = |key: &str| document.tables.iter().find(|table| table.key == key);
    let mut charts: Vec<Chart> = document
        .tables
        .iter()
        .filter(|table| table.view == View::Curve)
        .filter_map(curves)
        .collect();
    if document.kind == "breakdown" {
        charts.extend(find("breakdown").and_then(stacks));
    }
    if document.kind == "gpu-time" {
        charts.extend(find("parts").and_then(|table| gpu_time_chart::chart(table, MOST_RANKS)));
    }
    if document.kind == "host" {
        charts.extend(host_charts::all(document, MOST_RANKS));
    }
    if document.kind == "steps" {
        charts.extend(find("steps").and_then(steps));
    }
    charts
}

/// Draws the parts of each rank's device time: one bar per row, from the shares that the table
/// shows.
fn stacks(table: &Table) -> Option<Chart> {
    let rank = table.place("rank")?;
    let device = table.place("device");
    let parts: Vec<(usize, &Column)> = (table.columns.iter().enumerate())
        .filter(|(_, column)| column.unit == Unit::Share && !column.heading.is_empty())
        .collect();
    let mut rows: Vec<(String, Vec<f64>)> = (table.rows.iter())
        .map(|row| {
            let number = |at: usize| row[at].value().and_then(Value::number);
            let rank = shown_cell(&row[rank], &table.columns[rank]);
            let label = match device.and_then(number) {
                Some(device) => format!("{rank}, GPU {device}"),
                None => rank,
            };
            (label, parts.iter().map(|(at, _)| number(*at).unwrap_or(0.0)).collect())
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(MOST_RANKS);
    let title = match all > MOST_RANKS {
        true => format!("GPU time of the {MOST_RANKS} ranks with the most idle time, of {all}"),
        false => "GPU time by rank, by idle time".to_owned(),
    };
    let named = |(at, (_, column)): (usize, &(usize, &Column))| {
        (format!("part{at}"), column.heading.to_owned())
    };
    let parts = parts.iter().enumerate().map(named).collect();
    Some(Chart::Stacks { title, parts, rows })
}

/// Draws the times of the steps of the first rank in the table.
fn steps(table: &Table) -> Option<Chart> {
    let [rank, step, time] =
        [table.place("rank")?, table.place("step")?, table.place("duration_ns")?];
    let remark = table.place("remark");
    let first = table.rows.first()?[rank].clone();
    let of_first: Vec<_> = table.rows.iter().filter(|row| row[rank] == first).collect();
    let columns = of_first.iter().take(MOST_STEPS).filter_map(|row| {
        let value = row[time].value().and_then(Value::number)?;
        let label = shown_cell(&row[step], &table.columns[step]);
        let text = shown_cell(&row[time], &table.columns[time]);
        let stands_out =
            remark.is_some_and(|at| shown_cell(&row[at], &table.columns[at]).len() > 1);
        Some((label, value, text, stands_out))
    });
    let columns: Vec<_> = columns.collect();
    let whose = shown_cell(&first, &table.columns[rank]);
    let cut = match of_first.len() > MOST_STEPS {
        true => format!(", the first {MOST_STEPS} of {}", of_first.len()),
        false => String::new(),
    };
    let title = format!("Step times of {whose}{cut}; outliers are highlighted");
    Some(Chart::Columns { title, columns })
}

/// Draws a table of curves: each column over the first column.
fn curves(table: &Table) -> Option<Chart> {
    const POINTS: usize = 300;
    let number =
        |row: &[Cell], at: usize| row.get(at).and_then(Cell::value).and_then(Value::number);
    let times: Vec<f64> = table.rows.iter().filter_map(|row| number(row, 0)).collect();
    let (first, last) = (*times.first()?, *times.last()?);
    let scale = (POINTS - 1) as f64 / (last - first).max(1.0);
    let shown =
        table.columns.iter().enumerate().skip(1).filter(|(_, column)| !column.heading.is_empty());
    let curves = shown.take(4).map(|(at, column)| {
        let mut points: Vec<Option<f64>> = vec![None; POINTS];
        for row in &table.rows {
            if let (Some(time), Some(value)) = (number(row, 0), number(row, at)) {
                let slot = &mut points[(((time - first) * scale) as usize).min(POINTS - 1)];
                *slot = Some(slot.map_or(value, |other| other.max(value)));
            }
        }
        let mut held = None;
        for point in &mut points {
            held = point.or(held);
            *point = held;
        }
        let most = points.iter().flatten().copied().fold(0.0, f64::max);
        let peak = shown_cell(&most.into(), column);
        (column.heading.to_owned(), peak, points)
    });
    let ends = [first, last].map(|ns| duration(ns.max(0.0) as u64));
    Some(Chart::Curves { title: table.title.clone(), ends, curves: curves.collect() })
}

//! The plot of `report roofline`. Each operator with one list of input sizes is a point.

use tprof_document::{Cell, Document, Table, Value};
use tprof_export::report_page::{Chart, RooflinePoint};
use tprof_facts::units::{counted, duration, percent, rate};

use super::evidence_links::TIMELINE;

/// Largest number of points. The operators with the most time are drawn.
const MOST_POINTS: usize = 400;

/// Smallest share of the time that an operator must have to be drawn. Smaller ones would be tiny
/// dots, and would extend the axes.
const LEAST_SHARE: f64 = 5e-4;

/// Classes of points, with the text for each.
const CLASSES: [(&str, &str); 4] = [
    ("compute", "bound by operations"),
    ("memory", "bound by memory"),
    ("launch", "bound by the host"),
    ("unknown", "bound not known"),
];

/// Draws the plot; `None` if no operator can be drawn. Points have links if there is a timeline.
pub fn of(document: &Document, has_timeline: bool) -> Option<Chart> {
    let find = |key: &str| document.tables.iter().find(|table| table.key == key);
    let (table, peaks) = (find("roofline")?, find("peaks")?);
    let is_placed = |row: &&Vec<Cell>| {
        number(table, row, "intensity").is_some_and(|n| n > 0.0)
            && number(table, row, "flops_per_s").is_some_and(|n| n > 0.0)
            && number(table, row, "share").is_some()
    };
    let placed: Vec<&Vec<Cell>> = table.rows.iter().filter(is_placed).collect();
    let all = placed.len();
    let placed: Vec<&Vec<Cell>> = placed
        .into_iter()
        .filter(|row| number(table, row, "share").is_some_and(|share| share >= LEAST_SHARE))
        .collect();
    let points: Vec<RooflinePoint> =
        placed.iter().take(MOST_POINTS).map(|row| point(table, row, has_timeline)).collect();
    if points.is_empty() {
        return None;
    }
    let mut left_out = Vec::new();
    if placed.len() > MOST_POINTS {
        left_out.push(format!("{} with less than others", placed.len() - MOST_POINTS));
    }
    let short = all - placed.len();
    if short > 0 {
        left_out.push(format!("{short} with less than {} of the time", percent(LEAST_SHARE)));
    }
    let others = table.rows.len() - all;
    if others > 0 {
        left_out.push(format!("{others} without operations or known bytes"));
    }
    let mut title = "Operators below the roof; area: time".to_owned();
    if !left_out.is_empty() {
        title += &format!(". Not drawn: {}", left_out.join(", "));
    }
    let roofs = peaks.rows.iter().filter_map(|row| {
        let name = text(peaks, row, "peak");
        let roof = number(peaks, row, "flops_per_s")?;
        Some((format!("{name}, {} TFLOP/s", text(peaks, row, "rate")), roof))
    });
    let memory = peaks.rows.first().and_then(|row| number(peaks, row, "bytes_per_s"));
    // With several devices, the slope could be of one device and the roof of another, so neither is
    // drawn.
    let is_one = peaks
        .rows
        .windows(2)
        .all(|rows| text(peaks, &rows[0], "device") == text(peaks, &rows[1], "device"));
    let class = |(class, name): (&str, &str)| (format!("bound-{class}"), name.to_owned());
    Some(Chart::Roofline {
        title,
        memory: memory.filter(|_| is_one),
        roofs: if is_one { roofs.collect() } else { Vec::new() },
        classes: CLASSES.into_iter().map(class).collect(),
        points,
    })
}

fn point(table: &Table, row: &[Cell], has_timeline: bool) -> RooflinePoint {
    let of = |key: &str| number(table, row, key);
    let bound = text(table, row, "bound");
    let known = CLASSES.iter().any(|(class, _)| *class == bound);
    let share = of("share").unwrap_or(0.0);
    let mut lines = vec![text(table, row, "what").to_owned()];
    lines.push(format!(
        "{} in {}, {} of the time",
        duration(of("time_ns").unwrap_or(0.0) as u64),
        counted(of("runs").unwrap_or(0.0) as u64, "run", "runs"),
        percent(share),
    ));
    lines.push(format!(
        "{} TFLOP/s, {}, {:.1} operations for each byte",
        text(table, row, "rate"),
        rate(of("bytes_per_s").unwrap_or(0.0)),
        of("intensity").unwrap_or(0.0),
    ));
    if let Some(of_roof) = of("of_roof") {
        lines.push(format!("{} of the roof, {bound}", percent(of_roof)));
    }
    let href = match (of("slowest_start_ns"), of("slowest_ns")) {
        (Some(start), Some(time)) if has_timeline => {
            let around = (time * 2.0).max(1e6);
            format!(
                "{TIMELINE}#from={:.0}&to={:.0}",
                (start - around).max(0.0),
                start + time + around
            )
        }
        _ => String::new(),
    };
    RooflinePoint {
        intensity: of("intensity").unwrap_or(0.0),
        flops_per_s: of("flops_per_s").unwrap_or(0.0),
        share,
        class: format!("bound-{}", if known { bound } else { "unknown" }),
        title: lines.join("\n"),
        href,
    }
}

fn cell<'t>(table: &Table, row: &'t [Cell], key: &str) -> Option<&'t Value> {
    let at = table.columns.iter().position(|column| column.key == key)?;
    row[at].value()
}

fn number(table: &Table, row: &[Cell], key: &str) -> Option<f64> {
    cell(table, row, key).and_then(Value::number)
}

fn text<'t>(table: &Table, row: &'t [Cell], key: &str) -> &'t str {
    match cell(table, row, key) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

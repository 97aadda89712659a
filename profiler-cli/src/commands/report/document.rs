//! Formats a document as text. Its tables are cut to fit a page.

use tprof_document::{Cell, Column, Document, Table, Unit, Value, View};
use tprof_facts::csv;
use tprof_facts::units::{bytes, count, counted, duration, percent, since_start};
use tprof_findings::BUSY;

use super::head::{self, Head};
use super::plot;
use crate::terminal::page::{Form, Page};
use crate::terminal::table;

/// Largest number of reasons for missing values that are listed below a table.
const MOST_REASONS: usize = 3;

/// Returns the text of the whole document, with `top` rows per table.
pub fn text(document: &Document, top: usize, form: Form) -> String {
    let mut page = Page::new(form);
    let head = Head::of_document(document);
    // In a list of causes, the notes on how to read their gains follow the list. Only the note
    // about a busy machine precedes it, because it concerns all figures.
    let is_first = |note: &String| !is_of_causes(document) || note.starts_with(BUSY);
    let (notes, late): (Vec<String>, Vec<String>) =
        document.notes.iter().cloned().partition(is_first);
    head::completeness(&mut page, &Head { notes: &notes, ..head }, document.kind);
    let (first, rest) = document.tables.split_at(document.tables.len().min(1));
    tables(&mut page, first, top);
    if !late.is_empty() {
        page.gap();
        head::notes(&mut page, &late);
    }
    tables(&mut page, rest, top);
    page.into_text()
}

/// Whether the first table lists causes of lost time. People act on these, so the notes follow the
/// table instead of preceding it.
fn is_of_causes(document: &Document) -> bool {
    document.tables.first().is_some_and(|table| table.view == View::Cards)
}

/// Adds tables to a page, each in the form that its view asks for.
pub fn tables(page: &mut Page, tables: &[Table], top: usize) {
    for table in tables {
        match table.view {
            View::Rows | View::Groups => rows(page, table, top),
            View::Curve => curves(page, table),
            View::Cards => cards(page, table, top),
            View::Lines => lines(page, table),
            View::Data => {}
        }
    }
}

fn title(page: &mut Page, table: &Table, top: usize) {
    let (all, _) = table.counted(top);
    let top = table.most_shown(top);
    let cut = match table.view {
        View::Curve => String::new(),
        _ => table::cut(top, all),
    };
    page.caption(&format!("{}{cut}", table.title));
    if !table.about.is_empty() {
        page.paragraph(2, &table.about);
    }
    if table.rows.is_empty() {
        page.paragraph(2, &format!("none: {}", table.empty));
    }
}

fn rows(page: &mut Page, table: &Table, top: usize) {
    title(page, table, top);
    if table.rows.is_empty() {
        return;
    }
    let shown: Vec<(usize, &Column)> =
        table.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty()).collect();
    let left = |column: &Column| matches!(column.unit, Unit::Text | Unit::Name);
    let headings: Vec<(&str, bool)> =
        shown.iter().map(|(_, column)| (column.heading, left(column))).collect();
    let mut out = table::Table::aligned(&headings);
    for (at, (_, column)) in shown.iter().enumerate() {
        if column.unit == Unit::Name {
            out = out.names(at);
            if column.is_of_functions {
                out = out.functions();
            }
        }
    }
    // Columns that lack values for the same reason share a line.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let (_, rows) = table.counted(top);
    for row in table.rows.iter().take(rows) {
        let cell = |(at, column): &(usize, &Column)| {
            let cell = &row[*at];
            if let Cell::Missing(why) = cell {
                match reasons.iter_mut().find(|(known, _)| *known == &**why) {
                    Some((_, headings)) if headings.contains(&column.heading) => {}
                    Some((_, headings)) => headings.push(column.heading),
                    None => reasons.push((&**why, vec![column.heading])),
                }
            }
            shown_cell(cell, column)
        };
        out.row(shown.iter().map(cell).collect());
    }
    page.table(&out);
    if let Some(folded) = &table.folded {
        page.paragraph(2, &folded.line);
    }
    let left_out = reasons.len().saturating_sub(MOST_REASONS);
    for (why, headings) in reasons.iter().take(MOST_REASONS) {
        page.paragraph(2, &format!("? {}: {why}", headings.join(", ")));
    }
    if left_out > 0 {
        let more = counted(left_out as u64, "more reason", "more reasons");
        page.paragraph(2, &format!("? and {more}: --json lists them"));
    }
}

/// Adds each row as a block: its first cell, then its other cells with their headings.
fn cards(page: &mut Page, table: &Table, top: usize) {
    title(page, table, top);
    for row in table.rows.iter().take(top) {
        let mut columns = table.columns.iter().zip(row);
        if let Some((column, cell)) = columns.next() {
            page.lead(&shown_cell(cell, column));
        }
        for (column, cell) in columns.filter(|(column, _)| !column.heading.is_empty()) {
            match cell {
                Cell::Empty => {}
                Cell::Missing(why) => page.field(column.heading, &format!("unknown: {why}")),
                cell => page.field(column.heading, &shown_cell(cell, column)),
            }
        }
    }
}

/// Adds each row as a paragraph. No row is left out.
fn lines(page: &mut Page, table: &Table) {
    title(page, table, usize::MAX);
    for row in &table.rows {
        page.item(&shown_cell(&row[0], &table.columns[0]));
    }
}

/// Adds each numeric column as a curve over the first column, which is a time.
fn curves(page: &mut Page, table: &Table) {
    title(page, table, usize::MAX);
    let time = |row: &Vec<Cell>| row.first().and_then(Cell::value).and_then(Value::number);
    let times: Vec<f64> = table.rows.iter().filter_map(time).collect();
    let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return };
    for (at, column) in table.columns.iter().enumerate().skip(1) {
        if column.heading.is_empty() {
            continue;
        }
        let buckets = buckets(table, at, first, last);
        let Some(most) = buckets.iter().flatten().max().copied() else { continue };
        let line = plot::curve(&buckets, buckets.len(), most, page.width());
        let highest = shown_value(&Value::Unsigned(most), column.unit);
        page.fixed(&format!("  {:<8} {line} {highest:>10} max", column.heading));
    }
    page.fixed(&format!(
        "  {:<8} from {} to {}",
        "",
        duration(first.max(0.0) as u64),
        duration(last.max(0.0) as u64)
    ));
}

/// Returns the highest value of a column in each of [`plot::COLUMNS`] equal parts of the time. A
/// value holds until the next row.
fn buckets(table: &Table, at: usize, first: f64, last: f64) -> Vec<Option<u64>> {
    let mut buckets = vec![None; plot::COLUMNS];
    let scale = (plot::COLUMNS - 1) as f64 / (last - first).max(1.0);
    let (mut held, mut filled) = (None, 0);
    for row in &table.rows {
        let (Some(time), Some(value)) = (
            row.first().and_then(Cell::value).and_then(Value::number),
            row.get(at).and_then(Cell::value).and_then(Value::number),
        ) else {
            continue;
        };
        let bucket = ((time - first) * scale) as usize;
        let bucket = bucket.min(plot::COLUMNS - 1);
        for slot in &mut buckets[filled.min(bucket)..bucket] {
            *slot = (*slot).max(held);
        }
        let value = Some(value.max(0.0).round() as u64);
        buckets[bucket] = buckets[bucket].max(value);
        (held, filled) = (value, bucket);
    }
    buckets
}

/// Formats a cell for people.
pub fn shown_cell(cell: &Cell, column: &Column) -> String {
    let unit = column.unit;
    match cell {
        Cell::Is(value) if column.coarse => shown_value(value, Unit::Duration),
        Cell::Is(value) if column.signed && value.number().is_some_and(|n| n > 0.0) => {
            format!("+{}", shown_value(value, unit))
        }
        Cell::Is(value) => shown_value(value, unit),
        Cell::Estimate { value, .. } => format!("~{}", shown_value(value, unit)),
        Cell::Missing(_) => "?".to_owned(),
        Cell::Empty => "-".to_owned(),
    }
}

/// Formats a value for people.
pub fn shown_value(value: &Value, unit: Unit) -> String {
    let number = value.number();
    let whole = |show: fn(u64) -> String| {
        let number = number.unwrap_or(0.0);
        let sign = if number <= -0.5 { "-" } else { "" };
        // A `u64` above 2^53 would lose digits as an `f64`.
        match value {
            Value::Unsigned(value) => show(*value),
            _ => format!("{sign}{}", show(number.abs().round() as u64)),
        }
    };
    match (value, unit) {
        (Value::Text(text), _) => text.clone(),
        (Value::Flag(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
        (_, Unit::Duration) => whole(duration),
        (_, Unit::Time) => whole(since_start),
        (_, Unit::Bytes) => whole(bytes),
        (_, Unit::BytesPerSecond) => format!("{}/s", whole(bytes)),
        (_, Unit::Share) => percent(number.unwrap_or(0.0)),
        (Value::Unsigned(value), Unit::Id) => value.to_string(),
        (Value::Signed(value), Unit::Id) => value.to_string(),
        (Value::Float(value), _) => shown_float(*value),
        _ => whole(count),
    }
}

/// Formats a number without a unit, with about three digits.
fn shown_float(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => {
            format!("{}{}", if value < 0.0 { "-" } else { "" }, count(size.round() as u64))
        }
        size if size >= 1.0 => format!("{value:.1}"),
        size if size >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a table as CSV (RFC 4180). An unknown value is an empty cell. If a column has estimates,
/// their errors are another column.
pub fn csv(table: &Table) -> String {
    let estimated: Vec<bool> = (0..table.columns.len())
        .map(|at| table.rows.iter().any(|row| matches!(row[at], Cell::Estimate { .. })))
        .collect();
    let mut headings = Vec::new();
    for (column, estimated) in table.columns.iter().zip(&estimated) {
        headings.push(column.key.to_owned());
        if *estimated {
            headings.push(format!("error_{}", column.key));
        }
    }
    let mut out = headings.join(",") + "\n";
    for row in &table.rows {
        let mut cells = Vec::new();
        for (cell, estimated) in row.iter().zip(&estimated) {
            cells.push(cell.value().map(plain).unwrap_or_default());
            if *estimated {
                cells.push(match cell {
                    Cell::Estimate { error, .. } => plain(error),
                    _ => String::new(),
                });
            }
        }
        out += &(cells.join(",") + "\n");
    }
    out
}

fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => csv::text(text).into_owned(),
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Flag(value) => value.to_string(),
    }
}

#[cfg(test)]
fn fits(text: &str) -> bool {
    text.lines().all(|line| line.chars().count() <= tprof_ui::columns::USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![
            Column::new("kind", "kind", Unit::Text),
            Column::new("total_ns", "total", Unit::Duration),
            Column::new("share", "share", Unit::Share),
            Column::data("stream", Unit::Id),
            Column::new("name", "kernel", Unit::Name),
        ];
        let mut table = Table::new("kernels", "Kernels by time", columns);
        let name =
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>";
        table.row(vec![
            "compute".into(),
            1_500_000u64.into(),
            0.75.into(),
            7u64.into(),
            name.into(),
        ]);
        let why = "no driver";
        table.row(vec![
            "copy".into(),
            Cell::missing(why),
            Cell::Estimate { value: 0.25.into(), error: 0.1.into() },
            Cell::Empty,
            "a,\"b\"\x1b[31m".into(),
        ]);
        table
    }

    #[test]
    fn coarse_times_read_like_durations() {
        let columns = [Column::coarse_time("at_ns", "at"), Column::new("at_ns", "at", Unit::Time)];
        let shown = columns.map(|column| shown_cell(&4_352_000_000_000_u64.into(), &column));
        assert_eq!(shown, ["1 h 12 min", "4352.0000 s"]);
    }

    #[test]
    fn columns_that_lack_values_for_one_reason_share_a_line() {
        let columns = ["faults", "disk"].map(|name| Column::new(name, name, Unit::Count));
        let mut table = Table::new("threads", "Threads", columns.to_vec());
        let why = || Cell::missing("it was short-lived");
        table.row(vec![why(), why()]);
        table.row(vec![why(), Cell::missing("no permission")]);
        let mut page = Page::new(Form::Text(80));
        rows(&mut page, &table, 10);
        let text = page.into_text();
        let reasons = "\n  ? faults, disk: it was short-lived\n  ? disk: no permission\n";
        assert!(text.ends_with(reasons), "{text}");
    }

    #[test]
    fn a_table_fits_its_page_and_lists_reasons_for_missing_values() {
        let mut page = Page::new(Form::Text(80));
        rows(&mut page, &table(), 10);
        let text = page.into_text();
        assert!(fits(&text), "{text}");
        assert!(text.contains("  kind      total    share  kernel"), "{text}");
        assert!(text.contains("? total: no driver"), "{text}");
        assert!(text.contains("~25.0 %"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn rows_that_are_left_out_are_counted() {
        let mut page = Page::new(Form::Text(80));
        rows(&mut page, &table(), 1);
        assert!(page.into_text().starts_with("Kernels by time, 1 of 2 (--top N shows more)\n"));
        let mut page = Page::new(Form::Text(80));
        rows(&mut page, &Table::new("x", "X", Vec::new()).empty("no kernel was recorded"), 1);
        assert_eq!(page.into_text(), "X\n  none: no kernel was recorded\n");
    }

    #[test]
    fn a_card_is_a_line_and_paragraphs_behind_their_headings() {
        let columns = vec![
            Column::new("headline", "finding", Unit::Text),
            Column::data("gain_ns", Unit::Duration),
            Column::new("seen", "evidence", Unit::Text),
            Column::new("longest_ns", "longest", Unit::Duration),
            Column::new("try", "try", Unit::Text),
        ];
        let mut table = Table::new("findings", "Findings", columns).view(View::Cards);
        let long = "the device is idle while the host waits for the next batch, ".repeat(3);
        table.row(vec![
            "HIGH".into(),
            7u64.into(),
            long.as_str().into(),
            Cell::missing("x"),
            Cell::Empty,
        ]);
        table.row(vec!["LOW".into(), 7u64.into(), "a".into(), 1_500_000u64.into(), "b".into()]);
        let mut page = Page::new(Form::Text(80));
        cards(&mut page, &table, 10);
        let text = page.into_text();
        assert!(fits(&text), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["Findings", "", "HIGH"]);
        assert!(lines[3].starts_with("  evidence      the device is idle"), "{text}");
        assert!(lines[4].starts_with("                "), "{text}");
        assert!(text.contains("\n  longest       unknown: x\n\nLOW\n"), "{text}");
        assert!(text.ends_with("  longest       1.5 ms\n  try           b\n"), "{text}");
        let mut page = Page::new(Form::Text(80));
        cards(&mut page, &table, 1);
        assert!(page.into_text().starts_with("Findings, 1 of 2 (--top N shows more)\n"));
    }

    #[test]
    fn csv_has_a_column_for_the_error_of_estimates() {
        assert_eq!(
            csv(&table())
                .lines()
                .map(|line| line.chars().take(60).collect())
                .collect::<Vec<String>>(),
            [
                "kind,total_ns,share,error_share,stream,name",
                "compute,1500000,0.75,,7,\"void at::native::vectorized_element",
                "copy,,0.25,0.1,,\"a,\"\"b\"\"\u{1b}[31m\"",
            ]
        );
    }

    #[test]
    fn a_curve_keeps_a_value_until_the_next_row() {
        let columns = vec![
            Column::new("time_ns", "time", Unit::Time),
            Column::new("bytes", "bytes", Unit::Bytes),
        ];
        let mut table = Table::new("curve", "Curve", columns).view(View::Curve);
        for (time, value) in [(0u64, 10u64), (50, 20), (100, 5)] {
            table.row(vec![time.into(), value.into()]);
        }
        let buckets = buckets(&table, 1, 0.0, 100.0);
        assert_eq!(
            (buckets[0], buckets[24], buckets[25], buckets[51]),
            (Some(10), Some(10), Some(20), Some(5))
        );
        assert!(buckets.iter().all(Option::is_some));
    }

    #[test]
    fn numbers_are_rounded_and_have_units() {
        let shown = |value: Value, unit| shown_value(&value, unit);
        assert_eq!(shown(u64::MAX.into(), Unit::Count), "18,446,744,073,709,551,615");
        assert_eq!(shown(Value::Signed(-1500), Unit::Duration), "-1.5 us");
        assert_eq!(shown(2.5e9.into(), Unit::BytesPerSecond), "2.3 GiB/s");
        assert_eq!(
            [1234.5, 12.34, 0.1234, 1e-6, 0.0].map(shown_float),
            ["1,235", "12.3", "0.123", "1.0e-6", "0"]
        );
    }
}

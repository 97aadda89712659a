//! The wall time of driving threads, from the tables of `tprof report host`: what the charts
//! of the page and the tables of other formats show.

use std::path::Path;

use tprof_analyze::document::{Cell, Cut, Document, Options, Table, Value};
use tprof_analyze::{AnalyzeError, KINDS, Wanted, read_together};
use tprof_export::{HostTime, Slice};
use tprof_trace::SymbolSource;
use tprof_trace::live::collector_lives;

/// Of all ranks of a run, in a part of its time.
pub fn read(
    path: &Path,
    slice: &Slice,
    symbols: Option<&dyn SymbolSource>,
) -> Result<Vec<HostTime>, AnalyzeError> {
    let kinds: Vec<_> = KINDS.iter().filter(|kind| kind.name == "host").collect();
    let wanted = Wanted { reports: &[], kinds: &kinds };
    let is_running = Some(collector_lives as _);
    let Slice { from_ns, to_ns, steps_from, cycle, .. } = *slice;
    let steps = slice.steps.as_ref().map(|steps| steps.ranges().to_vec());
    let cut = Cut { from_ns, to_ns, steps };
    let options = Options { steps_from, cycle, cut, is_running, ..Options::default() };
    let made = read_together(path, &wanted, &options, symbols)?;
    Ok(made.documents.iter().flat_map(all).collect())
}

/// Of a report: the judged time and start-up by part, and each step.
pub fn all(document: &Document) -> Vec<HostTime> {
    let find = |key: &str| document.tables.iter().find(|table| table.key == key);
    let mut times = Vec::new();
    for (key, read) in [
        ("parts", judged as fn(&HostRow<'_>) -> Vec<HostTime>),
        ("start_up", start_up),
        ("steps", step),
    ] {
        let table = find(key);
        let rows =
            table.iter().flat_map(|table| table.rows.iter().map(|cells| HostRow { table, cells }));
        times.extend(rows.flat_map(|row| read(&row)));
    }
    times.retain(|time| time.wall_ns > 0);
    times
}

/// A row of a table, its cells by key.
struct HostRow<'t> {
    table: &'t Table,
    cells: &'t [Cell],
}

impl HostRow<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        let at = self.table.columns.iter().position(|column| column.key == key)?;
        self.cells[at].value()
    }

    fn number(&self, key: &str) -> Option<u64> {
        Some(self.value(key)?.number()? as u64)
    }

    fn text(&self, key: &str) -> String {
        match self.value(key) {
            Some(Value::Text(text)) => text.to_string(),
            _ => String::new(),
        }
    }

    fn time(&self, section: &'static str, part: &str, key: &str) -> HostTime {
        HostTime {
            rank: self.number("rank").unwrap_or(0) as u32,
            section,
            part: part.to_owned(),
            wall_ns: self.number(key).unwrap_or(0),
            ..HostTime::default()
        }
    }
}

fn judged(row: &HostRow<'_>) -> Vec<HostTime> {
    let at = row.table.columns.iter().position(|column| column.key == "wall_ns");
    let error_ns = match at.map(|at| &row.cells[at]) {
        Some(Cell::Estimate { error, .. }) => error.number().map(|error| error as u64),
        _ => None,
    };
    vec![HostTime {
        error_ns,
        function: row.text("function"),
        file: row.text("file"),
        line: row.number("line"),
        ..row.time("judged", &row.text("part"), "wall_ns")
    }]
}

fn start_up(row: &HostRow<'_>) -> Vec<HostTime> {
    let running = row.time("start_up", "running", "running_ns");
    let unknown = row.time("start_up", "unknown", "unknown_ns");
    let mut waiting = row.time("start_up", "waiting", "wall_ns");
    // What is unknown was on a core.
    waiting.wall_ns = waiting.wall_ns.saturating_sub(running.wall_ns);
    let running = HostTime { wall_ns: running.wall_ns.saturating_sub(unknown.wall_ns), ..running };
    vec![running, waiting, unknown]
}

/// Parts of a step have columns named after them.
fn step(row: &HostRow<'_>) -> Vec<HostTime> {
    let step = row.number("step");
    let parts = row.table.columns.iter().filter_map(|column| column.key.strip_suffix("_ns"));
    let parts = parts.filter(|part| *part != "wall");
    parts.map(|part| HostTime { step, ..row.time("step", part, &format!("{part}_ns")) }).collect()
}

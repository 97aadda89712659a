//! Exports CSV for pandas and spreadsheets: a directory with one file for each table. A file has
//! the rows of all ranks.
//!
//! An unknown value is an empty cell. [`tprof_facts::csv`] decides which texts are quoted, and
//! which get an apostrophe at the beginning so that spreadsheets don't take them for formulas.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use tprof_export::output::{Output, OutputDir};
use tprof_export::text::Text;
use tprof_export::{ExportError, Options, Selection, Written, paths};
use tprof_facts::csv;

use crate::column::{Cell, Column, Sink};
use crate::context::Context;
use crate::each::{self, RankTables};
use crate::host_time::HostTimes;
use crate::row_source::name_of;
use crate::run::{OwnedCell, RUN_TABLES, read_run, run_columns};
use tprof_trace::RunDir;

/// Number of bytes to collect before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes the directory `DIR/csv`, or the directory that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("csv")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path = options.output.clone().unwrap_or_else(|| paths::default_directory(run).join("csv"));
    OutputDir::check(&path, options.force, "csv")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let mut written = Written::default();
    let mut files: HashMap<&'static str, Output> = HashMap::new();
    let (name, host_times) = (name_of(run.path()), HostTimes::of(run, options));
    for file in &selection.files {
        let part = written.open_spans(&selection, file)?;
        let before = written.events;
        let context = Context::of(&name, &part);
        let mut rank =
            Rank { dir: output.unfinished(), files: &mut files, events: &mut written.events };
        let tables = RankTables::of(&context, &part, host_times.of_file(&selection, file));
        tables.each(&mut rank).map_err(failed)?;
        let all = each::count(&part.trace);
        written.left_out += all.saturating_sub(written.events - before);
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    for file in files.into_values() {
        file.keep()?;
    }
    if options.slice.is_whole() {
        let read = read_run(run, &name, &RUN_TABLES.map(|(name, _)| name), options.symbols);
        written.notes.extend(read.problems);
        for table in read.tables.iter().filter(|table| !table.rows.is_empty()) {
            let mut file =
                Output::create(&output.unfinished().join(format!("{}.csv", table.name)))?;
            let columns = run_columns(table.name);
            let names: Vec<_> = columns.iter().map(|column| column.name).collect();
            let mut text = Text::default();
            text.raw(&names.join(","));
            for row in &table.rows {
                text.raw("\n");
                line(row.iter().map(OwnedCell::cell), &mut text);
            }
            text.raw("\n");
            file.write_all(text.bytes()).map_err(failed)?;
            file.keep()?;
        }
    } else {
        written.notes.push(crate::run::NO_SUMS.to_owned());
    }
    written.paths.push(output.keep()?);
    Ok(written)
}

/// A sink that appends the rows of one rank to the files.
struct Rank<'a> {
    dir: &'a Path,
    files: &'a mut HashMap<&'static str, Output>,
    events: &'a mut u64,
}

impl Sink for Rank<'_> {
    type Error = io::Error;

    fn table<R>(
        &mut self,
        name: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> io::Result<()> {
        let mut text = Text::default();
        for batch in rows {
            let file = match self.files.entry(name) {
                std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
                std::collections::hash_map::Entry::Vacant(none) => {
                    let path = self.dir.join(format!("{name}.csv"));
                    let file =
                        Output::create(&path).map_err(|e| io::Error::other(e.to_string()))?;
                    let file = none.insert(file);
                    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
                    writeln!(file, "{}", names.join(","))?;
                    file
                }
            };
            for row in &batch {
                line(columns.iter().map(|column| (column.get)(row, context)), &mut text);
                text.raw("\n");
                if text.bytes().len() > BUFFER_BYTES {
                    file.write_all(text.bytes())?;
                    text.clear();
                }
            }
            file.write_all(text.bytes())?;
            text.clear();
            if each::is_timed(name) {
                *self.events += batch.len() as u64;
            }
        }
        Ok(())
    }
}

fn line<'c>(cells: impl Iterator<Item = Cell<'c>>, text: &mut Text) {
    for (at, value) in cells.enumerate() {
        if at > 0 {
            text.raw(",");
        }
        cell(value, text);
    }
}

fn cell(value: Cell<'_>, text: &mut Text) {
    match value {
        Cell::Null => {}
        Cell::Int(value) if value < 0 => {
            text.raw("-");
            text.uint(value.unsigned_abs());
        }
        Cell::Int(value) => text.uint(value.unsigned_abs()),
        Cell::Float(value) if value.is_finite() => text.float(value),
        Cell::Float(value) => text.raw(&value.to_string()),
        Cell::Bool(value) => text.raw(if value { "true" } else { "false" }),
        Cell::Text(value) => text.raw(&csv::text(value)),
    }
}

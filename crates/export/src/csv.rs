//! CSV: a directory with a file for each table, all ranks in it, for pandas and
//! spreadsheets.
//!
//! The first column is the rank; the others are those of `tables`. What
//! is not known is empty. [`tprof_facts::csv`] decides which texts are quoted, and which
//! begin with an apostrophe.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use tprof_facts::csv;
use tprof_trace::RunDir;

use crate::output::{Output, OutputDir};
use crate::tables::{self, Cell, Column, Context, Sink};
use crate::text::Text;
use crate::{ExportError, Options, Selection, Written, paths};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes a directory: `DIR/csv`, or what the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("csv")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path = options.output.clone().unwrap_or_else(|| paths::beside(run).join("csv"));
    OutputDir::check(&path, options.force, "csv")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let mut written = Written::default();
    let mut files: HashMap<&'static str, Output> = HashMap::new();
    for file in &selection.files {
        let part = written.open_spans(&selection, file)?;
        let before = written.events;
        let mut rank = Rank {
            dir: output.unfinished(),
            rank: file.rank.map_or(String::new(), |rank| rank.to_string()),
            files: &mut files,
            events: &mut written.events,
        };
        tables::each(&part, &options.host_times_of(&selection, file), &mut rank).map_err(failed)?;
        let all = tables::count(&part.trace);
        written.left_out += all.saturating_sub(written.events - before);
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    for file in files.into_values() {
        file.keep()?;
    }
    written.paths.push(output.keep()?);
    Ok(written)
}

/// One rank's rows.
struct Rank<'a> {
    dir: &'a Path,
    rank: String,
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
        debug_assert!(tables::NAMES.contains(&name), "{name}");
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
                    writeln!(file, "rank,{}", names.join(","))?;
                    file
                }
            };
            for row in &batch {
                text.raw(&self.rank);
                for column in columns {
                    text.raw(",");
                    cell((column.get)(row, context), &mut text);
                }
                text.raw("\n");
                if text.bytes().len() > BUFFER_BYTES {
                    file.write_all(text.bytes())?;
                    text.clear();
                }
            }
            file.write_all(text.bytes())?;
            text.clear();
            if tables::is_timed(name) {
                *self.events += batch.len() as u64;
            }
        }
        Ok(())
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
        Cell::Uint(value) => text.uint(value),
        Cell::Float(value) if value.is_finite() => text.float(value),
        Cell::Float(value) => text.raw(&value.to_string()),
        Cell::Bool(value) => text.raw(if value { "true" } else { "false" }),
        Cell::Text(value) => text.raw(&csv::text(value)),
    }
}

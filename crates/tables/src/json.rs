//! Exports all tables of all ranks as one JSON document, for scripts.
//!
//! ```json
//! {"tables_version": 2, "run": "…", "start_unix_ns": …, "ranks": [
//!   {"rank": 0, "instance": 0, "host": "node1", "file": "rank-0.tprof", "tables": {
//!     "kernels": {"columns": ["start_ns", …], "rows": [[…], …]}, …}}],
//!  "tables": {"runs": {"columns": ["run", …], "rows": [[…], …]}, …}}
//! ```
//!
//! The tables in a rank's object lack the columns that would repeat the object: `run`, `rank`,
//! `instance` and `host`. Unknown values are `null`. The document is streamed, and compressed if
//! its name ends in `.gz`.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tprof_export::output::Output;
use tprof_export::text::Text;
use tprof_export::{ExportError, Options, Selection, Written, paths};
use tprof_trace::RunDir;

use crate::about::VERSION;
use crate::column::{Cell, Column, IDENTITY, Sink};
use crate::context::Context;
use crate::each::{self, RankTables};
use crate::host_time::HostTimes;
use crate::row_source::name_of;
use crate::run::{NO_SUMS, OwnedCell, RUN_TABLES, read_run, run_columns};

/// Number of bytes to collect before they are compressed.
const BUFFER_BYTES: usize = 1 << 16;
/// Compression level. Level 1 is fast; level 6 takes three times the CPU time and halves the size.
const LEVEL: u32 = 1;

/// Writes the document `DIR/tables.json.gz`, or the file that the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("json")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let default = || paths::default_directory(run).join("tables.json.gz");
    let path = options.output.clone().unwrap_or_else(default);
    Output::check(&path, options.force)?;
    paths::parent(&path)?;
    let mut output = Output::create(&path)?;
    let mut written = Written::default();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let gzip = GzEncoder::new(output, Compression::new(LEVEL));
        let gzip = document(run, (&selection, options), gzip, &path, &mut written)?;
        output =
            gzip.finish().map_err(|source| ExportError::Write { path: path.clone(), source })?;
    } else {
        output = document(run, (&selection, options), output, &path, &mut written)?;
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    written.paths.extend(output.keep()?);
    Ok(written)
}

fn document<W: Write>(
    run: &RunDir,
    (selection, options): (&Selection<'_>, &Options<'_>),
    to: W,
    path: &std::path::Path,
    written: &mut Written,
) -> Result<W, ExportError> {
    let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
    let mut document = Document { to, text: Text::default(), first: true, events: 0 };
    let (name, host_times) = (name_of(run.path()), HostTimes::of(run, options));
    let unix_ns = (selection.zero.unix_ns > 0).then_some(selection.zero.unix_ns);
    document.text.raw(&format!(
        "{{\"tables_version\":{VERSION},\"tprof\":\"{}\",\"run\":{},\"start_unix_ns\":{},\"ranks\":[",
        env!("CARGO_PKG_VERSION"),
        Value::from(name.as_str()),
        Value::from(unix_ns),
    ));
    for (at, file) in selection.files.iter().enumerate() {
        let part = written.open_spans(selection, file)?;
        let context = Context::of(&name, &part);
        let file_name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let text = &mut document.text;
        text.raw(if at > 0 { ",\n{\"rank\":" } else { "\n{\"rank\":" });
        text.raw(&Value::from(file.rank).to_string());
        text.raw(",\"instance\":");
        text.uint(context.source.instance.into());
        text.raw(",\"file\":");
        text.string(&file_name);
        text.raw(",\"host\":");
        text.string(&part.trace.header().host);
        text.raw(",\"tables\":{");
        (document.first, document.events) = (true, 0);
        let tables = RankTables::of(&context, &part, host_times.of_file(selection, file));
        tables.each(&mut document).map_err(failed)?;
        document.text.raw("}}");
        written.events += document.events;
        written.left_out += each::count(&part.trace).saturating_sub(document.events);
    }
    document.text.raw("]");
    if options.slice.is_whole() {
        let read = read_run(run, &name, &RUN_TABLES.map(|(name, _)| name), options.symbols);
        written.notes.extend(read.problems);
        document.text.raw(",\n\"tables\":{");
        document.first = true;
        for table in &read.tables {
            let columns = run_columns(table.name);
            document.begin(table.name, columns.iter().map(|column| column.name));
            for (at, row) in table.rows.iter().enumerate() {
                document.row(at == 0, row.iter().map(OwnedCell::cell));
            }
            document.text.raw("]}");
        }
        document.text.raw("}");
    } else {
        written.notes.push(NO_SUMS.to_owned());
    }
    document.text.raw("}\n");
    document.flush().map_err(failed)?;
    Ok(document.to)
}

struct Document<W: Write> {
    to: W,
    text: Text,
    /// Whether the next table is the first one in its object, so that no comma precedes it.
    first: bool,
    /// Number of rows of the rank that have a time.
    events: u64,
}

impl<W: Write> Document<W> {
    /// Begins a table with this name and these columns.
    fn begin(&mut self, name: &str, columns: impl Iterator<Item = &'static str>) {
        self.text.raw(if self.first { "\n" } else { ",\n" });
        self.first = false;
        let columns: Vec<_> = columns.collect();
        self.text.raw(&format!("\"{name}\":{{\"columns\":{},\"rows\":[", Value::from(columns)));
    }

    fn row<'c>(&mut self, first: bool, cells: impl Iterator<Item = Cell<'c>>) {
        self.text.raw(if first { "\n[" } else { ",\n[" });
        for (at, value) in cells.enumerate() {
            if at > 0 {
                self.text.raw(",");
            }
            cell(value, &mut self.text);
        }
        self.text.raw("]");
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(self.text.bytes())?;
        self.text.clear();
        Ok(())
    }
}

impl<W: Write> Sink for Document<W> {
    type Error = io::Error;

    fn table<R>(
        &mut self,
        name: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> io::Result<()> {
        let columns = &columns[IDENTITY..];
        self.begin(name, columns.iter().map(|column| column.name));
        let mut first = true;
        for row in rows.flatten() {
            self.row(first, columns.iter().map(|column| (column.get)(&row, context)));
            first = false;
            self.events += u64::from(each::is_timed(name));
            if self.text.bytes().len() > BUFFER_BYTES {
                self.flush()?;
            }
        }
        self.text.raw("]}");
        Ok(())
    }
}

fn cell(value: Cell<'_>, text: &mut Text) {
    match value {
        Cell::Null => text.raw("null"),
        Cell::Int(value) => {
            if value < 0 {
                text.raw("-");
            }
            text.uint(value.unsigned_abs());
        }
        Cell::Float(value) => text.float(value),
        Cell::Bool(value) => text.raw(if value { "true" } else { "false" }),
        Cell::Text(value) => text.string(value),
    }
}

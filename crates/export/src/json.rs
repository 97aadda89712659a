//! JSON: all tables of all ranks in one document, for scripts.
//!
//! ```json
//! {"tables_version": 1, "start_unix_ns": …, "ranks": [
//!   {"rank": 0, "file": "rank-0.tprof", "host": "node1", "tables": {
//!     "kernels": {"columns": ["start_ns", …], "rows": [[…], …]}, …}}]}
//! ```
//!
//! Columns are those of `tables`; what is not known is `null`. It is
//! compressed if its name ends in `.gz`, and streamed.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tprof_trace::RunDir;

use crate::output::Output;
use crate::tables::{self, Cell, Column, Context, Sink};
use crate::text::Text;
use crate::{ExportError, Options, Selection, Written, paths};

/// Bytes gathered before they are compressed.
const BUFFER_BYTES: usize = 1 << 16;
/// Fast: level 6 takes three times the CPU for half the size.
const LEVEL: u32 = 1;

/// Writes one document: `DIR/tables.json.gz`, or what the options name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("json")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let default = || paths::beside(run).join("tables.json.gz");
    let path = options.output.clone().unwrap_or_else(default);
    Output::check(&path, options.force)?;
    paths::parent(&path)?;
    let mut output = Output::create(&path)?;
    let mut written = Written::default();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let gzip = GzEncoder::new(output, Compression::new(LEVEL));
        let gzip = document((&selection, options), gzip, &path, &mut written)?;
        output =
            gzip.finish().map_err(|source| ExportError::Write { path: path.clone(), source })?;
    } else {
        output = document((&selection, options), output, &path, &mut written)?;
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    written.paths.extend(output.keep()?);
    Ok(written)
}

fn document<W: Write>(
    (selection, options): (&Selection<'_>, &Options<'_>),
    to: W,
    path: &std::path::Path,
    written: &mut Written,
) -> Result<W, ExportError> {
    let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
    let mut document = Document { to, text: Text::default(), first: true, events: 0 };
    let unix_ns = (selection.zero.unix_ns > 0).then_some(selection.zero.unix_ns);
    document.text.raw(&format!(
        "{{\"tables_version\":{},\"tprof\":\"{}\",\"start_unix_ns\":{},\"ranks\":[",
        tables::VERSION,
        env!("CARGO_PKG_VERSION"),
        Value::from(unix_ns),
    ));
    for (at, file) in selection.files.iter().enumerate() {
        let part = written.open_spans(selection, file)?;
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let text = &mut document.text;
        text.raw(if at > 0 { ",\n{\"rank\":" } else { "\n{\"rank\":" });
        text.raw(&Value::from(file.rank).to_string());
        text.raw(",\"file\":");
        text.string(&name);
        text.raw(",\"host\":");
        text.string(&part.trace.header().host);
        text.raw(",\"tables\":{");
        (document.first, document.events) = (true, 0);
        tables::each(&part, &options.host_times_of(selection, file), &mut document)
            .map_err(failed)?;
        document.text.raw("}}");
        written.events += document.events;
        written.left_out += tables::count(&part.trace).saturating_sub(document.events);
    }
    document.text.raw("]}\n");
    document.flush().map_err(failed)?;
    Ok(document.to)
}

struct Document<W: Write> {
    to: W,
    text: Text,
    /// Whether no table of the rank was written yet.
    first: bool,
    /// Rows of the rank that have a time.
    events: u64,
}

impl<W: Write> Document<W> {
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
        let names: Vec<_> = columns.iter().map(|column| column.name).collect();
        self.text.raw(if self.first { "\n" } else { ",\n" });
        self.first = false;
        self.text.raw(&format!("\"{name}\":{{\"columns\":{},\"rows\":[", Value::from(names)));
        let mut first = true;
        for row in rows.flatten() {
            self.text.raw(if first { "\n[" } else { ",\n[" });
            first = false;
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    self.text.raw(",");
                }
                cell((column.get)(&row, context), &mut self.text);
            }
            self.text.raw("]");
            self.events += u64::from(tables::is_timed(name));
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
        Cell::Uint(value) => text.uint(value),
        Cell::Float(value) => text.float(value),
        Cell::Bool(value) => text.raw(if value { "true" } else { "false" }),
        Cell::Text(value) => text.string(value),
    }
}

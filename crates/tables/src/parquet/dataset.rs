//! Writes the files of a Parquet dataset. Ranks are independent of each other, so they are written
//! in parallel on all cores.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, json};
use tprof_export::output::OutputDir;
use tprof_export::{ExportError, Options, Selection, Written, paths};
use tprof_rank::base::parallel;
use tprof_trace::{RankFile, RunDir};

use super::file::TableFile;
use crate::about::{Scope, TableAbout, VERSION, catalogue};
use crate::column::{Column, ColumnAbout, Sink};
use crate::context::Context;
use crate::each::{self, RANK_TABLES, RankTables};
use crate::host_time::HostTimes;
use crate::row_source::name_of;
use crate::run::{NO_SUMS, OwnedCell, RUN_TABLES, RunTable, read_run, run_columns};

/// Writes the dataset `DIR/parquet`, or the directory that the options name.
///
/// # Errors
///
/// Returns an error if the run cannot be read, the slice is empty, or the output cannot be written.
/// Nothing then exists under the final name.
pub fn export(run: &RunDir, options: &Options<'_>) -> Result<Written, ExportError> {
    options.without_max_bytes("parquet")?;
    let selection = Selection::new(run, &options.slice, options.symbols)?;
    let path =
        options.output.clone().unwrap_or_else(|| paths::default_directory(run).join("parquet"));
    OutputDir::check(&path, options.force, "parquet")?;
    paths::parent(&path)?;
    let output = OutputDir::create(&path)?;
    let failed = |source| ExportError::Write { path: path.clone(), source };
    let name = options.run_name.map_or_else(|| name_of(run.path()), str::to_owned);
    let host_times = HostTimes::of(run, options);
    let making = ExportContext {
        dir: output.unfinished(),
        run: &name,
        selection: &selection,
        host_times: &host_times,
        options,
    };
    let files: Vec<(&RankFile, String)> =
        selection.files.iter().copied().zip(paths::names(&selection.files)).collect();
    let parts = match options.files_of_ranks {
        _ if !RANK_TABLES.into_iter().any(|table| options.wants(table)) => Vec::new(),
        None => making.each_apart(&files),
        Some(ranks) => making.together(&files, ranks),
    };
    let mut written = Written::default();
    let mut rows: BTreeMap<&str, u64> = BTreeMap::new();
    for part in parts {
        let part = part?;
        written.add(part.written);
        part.rows.into_iter().for_each(|(table, count)| *rows.entry(table).or_default() += count);
    }
    if written.events == 0 && !options.slice.is_all_time() {
        return Err(ExportError::EmptySlice);
    }
    if options.slice.is_whole() {
        let names = RUN_TABLES.map(|(name, _)| name);
        let names: Vec<&str> = names.into_iter().filter(|name| options.wants(name)).collect();
        let read = read_run(run, &name, &names, options.symbols);
        written.notes.extend(read.problems);
        for table in &read.tables {
            let count = run_table(output.unfinished(), &name, table).map_err(failed)?;
            rows.insert(table.name, count);
        }
    } else {
        written.notes.push(NO_SUMS.to_owned());
    }
    let wanted = || catalogue().into_iter().filter(|table| options.wants(table.name));
    for table in wanted().filter(|table| rows.get(table.name).is_none_or(|n| *n == 0)) {
        empty_table(output.unfinished(), &table).map_err(failed)?;
    }
    about(output.unfinished(), &selection, &name, wanted(), &rows).map_err(failed)?;
    written.paths.push(output.keep()?);
    Ok(written)
}

/// The data that all parts of an export share.
struct ExportContext<'a> {
    dir: &'a Path,
    run: &'a str,
    selection: &'a Selection<'a>,
    host_times: &'a HostTimes,
    options: &'a Options<'a>,
}

/// The result of writing one rank or several.
#[derive(Default)]
struct ExportPart {
    written: Written,
    rows: Vec<(&'static str, u64)>,
}

impl ExportContext<'_> {
    /// Writes the files of each rank separately.
    fn each_apart(&self, files: &[(&RankFile, String)]) -> Vec<Result<ExportPart, ExportError>> {
        parallel::each(files, |(file, name)| {
            let rank = match file.rank {
                Some(rank) => format!("rank={rank}"),
                // This is Hive's name for the partition of rows without a value.
                None => "rank=__HIVE_DEFAULT_PARTITION__".to_owned(),
            };
            self.write(PathBuf::from(rank).join(format!("{name}.parquet")), &[file])
        })
    }

    /// Writes one file of each table for every `ranks` files of the run, so that several ranks
    /// share a file.
    fn together(
        &self,
        files: &[(&RankFile, String)],
        ranks: usize,
    ) -> Vec<Result<ExportPart, ExportError>> {
        let chunks: Vec<&[(&RankFile, String)]> = files.chunks(ranks.max(1)).collect();
        parallel::each(&chunks, |chunk| {
            // Name an output file by the first and last file of its ranks. A rank's number would
            // not do, because a rank that was started again has several files.
            let of = |name: &'_ str| name.strip_prefix("rank-").unwrap_or(name).to_owned();
            let name = match chunk {
                [first, .., last] => format!("ranks-{}-{}.parquet", of(&first.1), of(&last.1)),
                [one] => format!("ranks-{}.parquet", of(&one.1)),
                [] => return Ok(ExportPart::default()),
            };
            let files: Vec<&RankFile> = chunk.iter().map(|(file, _)| *file).collect();
            self.write(PathBuf::from(name), &files)
        })
    }

    fn write(&self, inside: PathBuf, files: &[&RankFile]) -> Result<ExportPart, ExportError> {
        let output = self.options.output.clone().unwrap_or_else(|| self.dir.to_owned());
        let failed = |source| ExportError::Write { path: output.clone(), source };
        let mut part = ExportPart::default();
        let mut dataset =
            Dataset { dir: self.dir, inside, open: Vec::new(), events: 0, options: self.options };
        for file in files {
            let rank = part.written.open_spans(self.selection, file)?;
            let context = Context::of(self.run, &rank);
            let host_times = self.host_times.of_file(self.selection, file);
            let before = dataset.events;
            RankTables::of(&context, &rank, host_times).each(&mut dataset).map_err(failed)?;
            // If the user selected tables, rows of the other tables do not count as left out.
            if self.options.tables.is_none() {
                part.written.left_out +=
                    each::count(&rank.trace).saturating_sub(dataset.events - before);
            }
        }
        part.written.events += dataset.events;
        for (table, file) in dataset.open {
            part.rows.push((table, file.finish().map_err(failed)?));
        }
        Ok(part)
    }
}

/// A sink that writes one rank or several to the files of all tables.
struct Dataset<'a> {
    dir: &'a Path,
    inside: PathBuf,
    open: Vec<(&'static str, TableFile)>,
    events: u64,
    options: &'a Options<'a>,
}

impl Sink for Dataset<'_> {
    type Error = io::Error;

    fn table<R>(
        &mut self,
        name: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> io::Result<()> {
        if !self.options.wants(name) {
            return Ok(());
        }
        for batch in rows {
            let at = match self.open.iter().position(|(table, _)| *table == name) {
                Some(at) => at,
                None => {
                    let path = self.dir.join(name).join(&self.inside);
                    if let Some(directory) = path.parent() {
                        fs::create_dir_all(directory)?;
                    }
                    let columns: Vec<_> = columns.iter().map(Into::into).collect();
                    self.open.push((name, TableFile::begin(&path, name, &columns)?));
                    self.open.len() - 1
                }
            };
            self.open[at].1.add(batch.len(), |at, data| {
                (columns[at].fill)(&batch, context, data);
            })?;
            if each::is_timed(name) {
                self.events += batch.len() as u64;
            }
        }
        Ok(())
    }
}

/// Writes a table of the run as a whole.
fn run_table(dir: &Path, run: &str, table: &RunTable) -> io::Result<u64> {
    if table.rows.is_empty() {
        return Ok(0);
    }
    let directory = dir.join(table.name);
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{}.parquet", file_name(run)));
    let mut file = TableFile::begin(&path, table.name, &run_columns(table.name))?;
    for row in &table.rows {
        file.row(row.iter().map(OwnedCell::cell))?;
    }
    file.finish()
}

/// Writes a file without rows, so that engines know the table's columns.
fn empty_table(dir: &Path, table: &TableAbout) -> io::Result<()> {
    let directory = dir.join(table.name);
    fs::create_dir_all(&directory)?;
    TableFile::begin(&directory.join("none.parquet"), table.name, &table.columns)?.finish()?;
    Ok(())
}

/// Converts the name of a run to a part of a file name. Characters with a meaning in paths or in
/// Hive's convention are replaced.
fn file_name(run: &str) -> String {
    let plain = |letter: char| match letter {
        '/' | '=' | '%' | '\0' => '-',
        other => other,
    };
    // Remove `.` and `_` at the beginning, because readers skip files with such names.
    let name: String = run.chars().map(plain).collect();
    let name = name.trim_start_matches(['.', '_']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

/// Writes the description of the dataset, `_tprof.json`.
fn about(
    dir: &Path,
    selection: &Selection<'_>,
    run: &str,
    wanted: impl Iterator<Item = TableAbout>,
    rows: &BTreeMap<&str, u64>,
) -> io::Result<()> {
    let mut tables = Map::new();
    for table in wanted {
        let rows = rows.get(table.name).copied().unwrap_or(0);
        let column = |of: &ColumnAbout| json!({ "name": of.name, "type": of.kind.name(), "about": of.about });
        let columns: Vec<_> = table.columns.iter().map(column).collect();
        let scope = if table.scope == Scope::Rank { "rank" } else { "run" };
        let about = json!({ "about": table.about, "of": scope, "rows": rows, "columns": columns });
        tables.insert(table.name.to_owned(), about);
    }
    let about = json!({
        "tables_version": VERSION,
        "tprof": env!("CARGO_PKG_VERSION"),
        "run": run,
        "start_unix_ns": (selection.zero.unix_ns > 0).then_some(selection.zero.unix_ns),
        "files": selection.files.len(),
        "tables": tables,
    });
    let text = serde_json::to_string(&about).unwrap_or_default() + "\n";
    fs::write(dir.join("_tprof.json"), text)
}

//! Reads chosen columns of one table, for an engine that runs queries.

use std::path::Path;

use tprof_export::{OpenRank, Window};
use tprof_facts::Zero;
use tprof_trace::{Problem, RankFile, RunDir, TraceError, TraceFile};

use crate::about::column_names;
use crate::column::{Column, Sink};
use crate::context::Context;
use crate::data::Data;
use crate::each::{RANK_TABLES, RankTables};
use crate::host_time;
use crate::row_source::name_of;
use crate::run::{RunTables, read_run};

/// A run that is open for queries.
#[derive(Debug)]
pub struct OpenRun {
    dir: RunDir,
    name: String,
    zero: Zero,
}

/// The part of a table that a query needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Indexes of columns in [`crate::TableAbout::columns`]. A batch has the columns in this order.
    pub columns: Vec<usize>,
    /// The query needs no rows that ended before this moment, in nanoseconds since the run began.
    /// The reader may still return such rows, because the engine filters again.
    pub from_ns: Option<i64>,
    /// The query needs no rows that begin at this moment or later. The reader may still return such
    /// rows.
    pub to_ns: Option<i64>,
}

/// Some rows of a table.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// The requested columns, in the order of the request.
    pub columns: Vec<Data>,
}

impl OpenRun {
    /// Opens a run's directory, or one file of it.
    ///
    /// # Errors
    ///
    /// Returns an error if no part of the run can be read.
    pub fn open(path: &Path) -> Result<OpenRun, TraceError> {
        let dir = RunDir::open(path)?;
        let zero = Zero::of(&dir);
        Ok(OpenRun { name: name_of(path), dir, zero })
    }

    /// Changes the name of the run. If an engine opens several runs, their names must differ.
    pub fn named(self, name: String) -> OpenRun {
        OpenRun { name, ..self }
    }

    /// Returns the name of the run, which is the value of the column `run`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the run.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the files of the run: ranks in order, then launchers.
    pub fn files(&self) -> &[RankFile] {
        self.dir.files()
    }

    /// Returns the problems with parts of the directory that could not be read, as sentences.
    pub fn problems(&self) -> Vec<String> {
        self.dir.problems().iter().map(|problem| problem.what.clone()).collect()
    }

    /// Passes the rows of one file's table to `each`, batch by batch, until `each` returns false.
    /// Returns the problems with parts of the file that could not be read, as sentences.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub fn read_rank(
        &self,
        file: usize,
        table: &str,
        request: &Request,
        each: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<Vec<String>, TraceError> {
        let Some(table) = RANK_TABLES.into_iter().find(|name| *name == table) else {
            return Ok(vec![format!("there is no table {table}")]);
        };
        let file = &self.dir.files()[file];
        let trace = TraceFile::open(&file.path)?;
        let clock = self.zero.clock(&trace, &self.dir);
        let at = |ns: i64| clock.file_ns(u64::try_from(ns).unwrap_or(0));
        // Times before the run's beginning are negative. They are rare, so a limit that isn't
        // positive selects everything.
        let from_ns = request.from_ns.filter(|ns| *ns > 0).map_or(0, at);
        let to_ns = request.to_ns.filter(|ns| *ns > 0).map_or(u64::MAX, at);
        let window = Window { from_ns, to_ns };
        let (steps_from, by_inferred_steps) = (None, false);
        let part = OpenRank { file, trace, clock, window, steps_from, by_inferred_steps };
        let context = Context::of(&self.name, &part);
        let mut problems = Vec::new();
        let host_times = match table {
            "host_times" => match host_time::read(&file.path, &Default::default(), None) {
                Ok((times, unread)) => {
                    problems.extend(unread);
                    times
                }
                Err(error) => {
                    problems.push(error.to_string());
                    Vec::new()
                }
            },
            _ => Vec::new(),
        };
        let mut sink = ColumnPicker { wanted: &request.columns, each, names: column_names(table) };
        let tables = RankTables::of(&context, &part, host_times);
        // The only error of this sink means that the engine has enough rows, so ignore it.
        let _ = tables.one(table, &mut sink);
        let unread = part.trace.unread().problems();
        problems.extend(unread.iter().map(|problem| sentence(&file.path, problem)));
        Ok(problems)
    }

    /// Reads tables of the run as a whole. [`crate::RUN_TABLES`] lists their names.
    pub fn read_run(&self, tables: &[&str]) -> RunTables {
        read_run(&self.dir, &self.name, tables, None)
    }
}

fn sentence(path: &Path, problem: &Problem) -> String {
    format!("{}: {} (at byte {})", path.display(), problem.what, problem.offset)
}

/// A sink that passes the wanted columns to an engine.
struct ColumnPicker<'a> {
    wanted: &'a [usize],
    each: &'a mut dyn FnMut(Batch) -> bool,
    names: Vec<&'static str>,
}

/// The error of [`ColumnPicker`]: the engine has enough rows.
struct StopReading;

impl Sink for ColumnPicker<'_> {
    type Error = StopReading;

    fn takes(&self, _: &'static str, column: &'static str) -> bool {
        self.wanted.iter().any(|at| self.names.get(*at) == Some(&column))
    }

    fn table<R>(
        &mut self,
        _: &'static str,
        columns: &[Column<R>],
        context: &Context<'_>,
        rows: &mut dyn Iterator<Item = Vec<R>>,
    ) -> Result<(), StopReading> {
        for batch in rows {
            let of = |at: &usize| {
                let column = columns.get(*at)?;
                let mut data = Data::new(column.kind);
                (column.fill)(&batch, context, &mut data);
                Some(data)
            };
            let columns = self.wanted.iter().filter_map(of).collect();
            if !(self.each)(Batch { rows: batch.len(), columns }) {
                return Err(StopReading);
            }
        }
        Ok(())
    }
}

//! Options of `tprof sql`; `tprof-sql` has this file too, so that `tprof sql --help` needs no other
//! program.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

const AFTER: &str = "\
RUN is a run directory, a trace file, a data set of `tprof export --to parquet`,
or an archive: a directory of `tprof archive`, s3://BUCKET/PREFIX, gs://…,
az://…. Of several, each table has the rows of all. A word with white space or
that begins like a statement is the query. Without a query, statements come
from a prompt on a terminal, else from stdin. Queries only read.

Examples:
  tprof sql
  tprof sql r1 \"SELECT name, sum(duration_ns) FROM kernels GROUP BY 1 ORDER BY 2 DESC\"
  tprof sql r1 \"SELECT rank, delay_ns FROM stragglers ORDER BY delay_ns DESC\"
  tprof sql r1 r2 -f report.sql --format csv -o report.csv

Tables: tprof sql RUN \"SHOW TABLES\"; their columns: \"DESCRIBE kernels\".";

/// `tprof sql`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct SqlArgs {
    /// Runs, and a query [default: the newest run here]
    #[arg(value_name = "RUN|QUERY", value_hint = clap::ValueHint::AnyPath)]
    pub words: Vec<OsString>,
    /// File of statements, - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Form of results
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ResultFormat,
    /// File to write in place of stdout; it appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Memory of a query, beyond which it uses temporary files [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Print the views that come with tprof, for other engines over `tprof export --to parquet`
    #[arg(long)]
    pub views: bool,
    /// Have queries executed by a Spark Connect server, over data sets and archives that it can
    /// read; what gives access is in SPARK_CONNECT_AUTHENTICATE_TOKEN
    #[arg(long, value_name = "sc://HOST:PORT")]
    pub remote: Option<String>,
    /// What the server has in place of the beginning of a path or address: s3://=s3a://
    #[arg(long, value_name = "FROM=TO")]
    pub remote_data: Vec<OsString>,
    /// Of archives only this run, by its ID; may be repeated. Nothing of other runs is read
    #[arg(long, value_name = "ID")]
    pub run: Vec<String>,
    /// Threads of a query [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Columns for people, the first 10,000 rows
    Table,
    /// CSV with a line of headings
    Csv,
    /// An array of objects
    Json,
    /// A Parquet file
    Parquet,
    /// An Arrow stream; with -o, an Arrow file
    Arrow,
}

impl ResultFormat {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            ResultFormat::Table => "table",
            ResultFormat::Csv => "csv",
            ResultFormat::Json => "json",
            ResultFormat::Parquet => "parquet",
            ResultFormat::Arrow => "arrow",
        }
    }
}

//! Options of `tprof sql`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

const AFTER: &str = "\
RUN is a run directory, a trace file, a data set of `tprof export --to parquet`,
or an archive: a directory of `tprof archive`, s3://BUCKET/PREFIX, gs://…,
az://…. With several, each table has the rows of all of them. An argument that
contains white space or begins like a statement is the query. Without a query,
statements are read from a prompt on a terminal, otherwise from stdin. Queries
cannot change anything.

Examples:
  tprof sql
  tprof sql r1 \"SELECT name, sum(duration_ns) FROM kernels GROUP BY 1 ORDER BY 2 DESC\"
  tprof sql r1 \"SELECT rank, delay_ns FROM stragglers ORDER BY delay_ns DESC\"
  tprof sql r1 r2 -f report.sql --format csv -o report.csv

`tprof sql RUN \"SHOW TABLES\"` lists the tables, \"DESCRIBE kernels\" the columns
of one.";

/// Arguments of `tprof sql`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct SqlArgs {
    /// Runs to query, and the query [default: the newest run in this directory]
    #[arg(value_name = "RUN|QUERY", value_hint = clap::ValueHint::AnyPath)]
    pub words: Vec<OsString>,
    /// File of statements to execute, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Format of the results
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ResultFormat,
    /// File to write instead of stdout; it appears once it is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Memory that a query may use before it spills to temporary files [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Print tprof's views as SQL, for other engines that read `tprof export --to parquet`
    #[arg(long)]
    pub views: bool,
    /// Execute queries on a Spark Connect server, over data sets and archives that it can
    /// read; it takes its token from SPARK_CONNECT_AUTHENTICATE_TOKEN
    #[arg(long, value_name = "sc://HOST:PORT")]
    pub remote: Option<String>,
    /// Prefix of paths here and the same prefix on the server, e.g. s3://=s3a://
    #[arg(long, value_name = "FROM=TO")]
    pub remote_data: Vec<OsString>,
    /// Read only the run with this ID from archives; may be repeated
    #[arg(long, value_name = "ID")]
    pub run: Vec<String>,
    /// Number of threads per query [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Aligned columns, the first 10,000 rows
    Table,
    /// CSV with a header line
    Csv,
    /// An array of objects
    Json,
    /// A Parquet file
    Parquet,
    /// An Arrow stream; with -o, an Arrow file
    Arrow,
}

impl ResultFormat {
    /// Returns the name of the format on the command line.
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

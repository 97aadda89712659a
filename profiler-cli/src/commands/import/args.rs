//! `tprof import`.

use clap::Args;
use std::path::PathBuf;

/// What is said below the options.
pub const IMPORT_NOTES: &str = "\
Reads Kineto's and Chrome's trace JSON (*.json, *.json.gz). The rank of a file
is what its `distributedInfo` says, else what its name says (rank-3, worker3),
else its place among the files.

`report`, `diff` and `export` take such files and directories directly; import
them once if you look more than once.

Example:
  tprof import traces/ -o r1; tprof report r1";

/// `tprof import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Traces, or directories of them: one file per rank
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Run directory to make
    #[arg(short, long, value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub output: PathBuf,
    /// Replace an existing run
    #[arg(long)]
    pub force: bool,
    /// Most JSON that one file may hold, decompressed [default: 64GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_input: Option<String>,
    /// Print no summary
    #[arg(short, long)]
    pub quiet: bool,
}

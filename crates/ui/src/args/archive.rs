//! Options of `tprof archive`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

const AFTER: &str = "\
An archive is a directory or a prefix in an object store: s3://BUCKET/PREFIX,
gs://BUCKET/PREFIX, az://CONTAINER/PREFIX. Credentials come from the environment
only: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL,
AWS_ALLOW_HTTP; GOOGLE_SERVICE_ACCOUNT; AZURE_STORAGE_ACCOUNT_NAME,
AZURE_STORAGE_ACCOUNT_KEY; or roles of the machine that tprof runs on.

Tables about runs (runs, ranks, rank_…, findings) are always archived, event
tables only with --raw. A run is archived whole or not at all; one that is
already in the archive stays as it is.

Examples:
  tprof archive r1 r2 --to /archive
  tprof archive r1 --to s3://jobs/tprof --raw kernels,collectives
  tprof sql s3://jobs/tprof \"SELECT run, ranks, duration_ns FROM runs\"
  tprof archive --check s3://jobs/tprof";

/// Arguments of `tprof archive`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct ArchiveArgs {
    /// Run directories or trace files
    #[arg(
        value_name = "RUN", value_hint = clap::ValueHint::AnyPath,
        required_unless_present_any = ["list", "check"]
    )]
    pub runs: Vec<PathBuf>,
    /// Archive to add the runs to; a directory is created, but not its parents
    #[arg(long, value_name = "DIR|URL", required_unless_present_any = ["list", "check"])]
    pub to: Option<OsString>,
    /// Event tables to archive: none, all, or a list of names
    #[arg(long, value_name = "TABLE,…", default_value = "none", value_delimiter = ',')]
    pub raw: Vec<String>,
    /// Archive runs in progress as they are now
    #[arg(long)]
    pub unfinished: bool,
    /// List the runs of an archive
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["runs", "to", "check", "raw", "unfinished"])]
    pub list: Option<OsString>,
    /// With --list: print JSON, with the tables and notes of each run
    #[arg(long, requires = "list", conflicts_with = "check")]
    pub json: bool,
    /// With --list: print only run IDs (one request to a store per 1,000)
    #[arg(long, requires = "list", conflicts_with_all = ["check", "json"])]
    pub ids: bool,
    /// List objects of an archive that are missing, truncated or belong to no run
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["runs", "to", "raw", "unfinished"])]
    pub check: Option<OsString>,
}

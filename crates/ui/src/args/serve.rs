//! Options of `tprof serve`. They are not in the server's crate, because the linker keeps
//! tables of unused code: the launcher would be 0.3 MB larger.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

const AFTER: &str = "\
The printed address contains a token, which a browser exchanges for a cookie;
scripts send it as `Authorization: Bearer TOKEN`. From another machine, use
ssh -L PORT:127.0.0.1:PORT HOST, or --bind with a certificate. Ctrl-C stops the
server, which leaves nothing behind.

An archive of runs (`tprof archive`: a directory, s3://BUCKET/PREFIX, gs://…,
az://…) must be the only path. Its pages come from the archived sums per rank,
which `tprof-sql` reads. Credentials come from the environment only.

Examples:
  tprof serve
  tprof serve runs/ --port 8080 --no-browser
  tprof serve runs/ --control
  tprof serve s3://jobs/tprof";

/// Arguments of `tprof serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct ServeArgs {
    /// Runs, directories that contain runs, or one archive of runs (a directory or URL)
    #[arg(value_name = "DIR|RUN|URL", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub paths: Vec<PathBuf>,
    /// Port to listen on [default: any free port]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Listen on port 6970, where scripts look for /api/profiler
    #[arg(long, conflicts_with = "port")]
    pub seed_port: bool,
    /// Print the address and do not start a browser
    #[arg(long)]
    pub no_browser: bool,
    /// Allow changes: start, stop and mark live runs, edit tags and notes, delete runs
    #[arg(long)]
    pub control: bool,
    /// Address to listen on [default: 127.0.0.1]; any but loopback needs a certificate
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Certificate chain for TLS, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// With --bind: host name by which browsers reach this machine; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// File that holds the token, so that it stays the same; created if missing
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Send figures of runs in progress to an OpenTelemetry collector, over plain http [default URL:
    /// that in OTEL_EXPORTER_OTLP_ENDPOINT, or http://127.0.0.1:4318]
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub otlp: Option<String>,
    /// Memory limit of one report, export or archive query
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub memory_limit: String,
    /// Time limit of one report, export or archive query
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub time_limit: String,
}

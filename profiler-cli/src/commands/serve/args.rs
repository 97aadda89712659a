//! Options of `tprof serve`. `tprof-serve` has this file too: `tprof` uses nothing of the server's
//! crate, since a linker keeps tables of what it drops (0.3 MB that the launcher would map).

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

const AFTER: &str = "\
The address has a token, which a browser exchanges for a cookie; scripts send
it as `Authorization: Bearer TOKEN`. From another machine:
ssh -L PORT:127.0.0.1:PORT HOST, or --bind with a certificate. Ctrl-C ends the
server; nothing of it remains.

An archive of runs (`tprof archive`), a directory or s3://BUCKET/PREFIX,
gs://…, az://…, is shown by itself, from its sums of each rank: `tprof-sql`
reads it. Credentials come from the environment only.

Examples:
  tprof serve
  tprof serve runs/ --port 8080 --no-browser
  tprof serve runs/ --control
  tprof serve s3://jobs/tprof";

/// `tprof serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct ServeArgs {
    /// Directories that contain runs, or runs; or an archive of runs, as a directory or URL
    #[arg(value_name = "DIR|RUN|URL", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub paths: Vec<PathBuf>,
    /// Port [default: any that is free]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Port 6970, where scripts look for /api/profiler
    #[arg(long, conflicts_with = "port")]
    pub seed_port: bool,
    /// Only print the address, start no browser
    #[arg(long)]
    pub no_browser: bool,
    /// Permit to change: start, stop and mark live runs, tags and notes, delete runs
    #[arg(long)]
    pub control: bool,
    /// Address to listen on, in place of 127.0.0.1; another than loopback needs a certificate
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<IpAddr>,
    /// Certificate chain for TLS, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name by which browsers reach this machine, with --bind; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// File that holds the token, for the same one each time; made if it is not there
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Most memory that one report, export or question to an archive may take
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub memory_limit: String,
    /// Longest time that it may take
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub time_limit: String,
}

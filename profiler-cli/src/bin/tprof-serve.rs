//! `tprof-serve`: the program that `tprof serve`, `tprof top` and `tprof export --to site` execute.
//! It is separate so that the launcher of jobs doesn't contain a web server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tprof_facts::units::{parse_duration, parse_size};
use tprof_live::top;
use tprof_serve::failure::Failure;
use tprof_serve::{Collector, Limits, Options, SiteOptions};
use tprof_ui::args::{ServeArgs, TopArgs};
use tprof_ui::browser;

/// Exit status when tprof itself failed.
const FAILED: u8 = 125;
/// Port of `--seed-port`: scripts that were written for the first dashboard send their requests to
/// it.
const SEED_PORT: u16 = 6970;
/// Largest file that a report or export may write, in bytes.
const MOST_OUTPUT: u64 = 4 << 30;
/// Memory limit of a report in a site, in bytes.
const SITE_MEMORY: u64 = 4 << 30;
/// Time limit of a report in a site. It is long, because no user waits for a page.
const SITE_TIME: Duration = Duration::from_secs(600);
/// Smallest memory limit of a report that a user may set, in bytes.
const LEAST_MEMORY: u64 = 64 << 20;
/// Variable with the path of the program that makes reports; `tprof` sets it to its own path.
const PROGRAM: &str = "TPROF_PROGRAM";

#[derive(Parser, Debug)]
#[command(
    name = "tprof-serve",
    version,
    about = "Serves runs of tprof to a browser; `tprof serve` starts it.",
    max_term_width = 80
)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show a directory of runs in the browser
    Serve(ServeArgs),
    /// Show what the ranks of a run do now, in the terminal
    Top(TopArgs),
    /// Write a directory of runs as static pages; `tprof export --to site` starts it
    Site(SiteArgs),
}

/// Options of `tprof export` that apply to a site.
#[derive(Args, Clone, Debug)]
struct SiteArgs {
    /// Directory that contains runs, or a run
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Directory to write, - for an archive on stdout [default: site, in DIR]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Replace an existing directory
    #[arg(long)]
    force: bool,
}

fn main() -> ExitCode {
    let done = match Words::parse().command {
        Command::Serve(args) => serve(args),
        Command::Site(args) => site(args),
        Command::Top(args) => top(args),
    };
    done.unwrap_or_else(|failure| {
        let Failure { what, why, hint, .. } = failure;
        let hint = if hint.is_empty() { "tprof serve --help".to_owned() } else { hint };
        for (label, line) in [("error", what), ("cause", why), ("  try", hint)] {
            eprintln!("{label}: {}", line.replace('\n', " "));
        }
        ExitCode::from(FAILED)
    })
}

fn top(TopArgs { run, once, json }: TopArgs) -> Result<ExitCode, Failure> {
    // Without tprof, only the reason why ranks stand still is missing.
    let program = program().unwrap_or_else(|_| "tprof".into());
    let args = top::TopArgs { run, once, json, program };
    let failure = |top::TopError { what, why, hint }| Failure::new(what, why).hint(hint);
    top::run(&args).map(|()| ExitCode::SUCCESS).map_err(failure)
}

fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    tprof_serve::serve(&options(args)?)
}

fn site(SiteArgs { path, output, force }: SiteArgs) -> Result<ExitCode, Failure> {
    let limits = Limits { memory_bytes: SITE_MEMORY, output_bytes: MOST_OUTPUT, time: SITE_TIME };
    tprof_serve::site(&SiteOptions { path, output, force, tprof: program()?, limits })
}

fn options(args: ServeArgs) -> Result<Options, Failure> {
    let is_own = args.bind.is_none();
    Ok(Options {
        tprof: program()?,
        limits: limits(&args)?,
        paths: args.paths,
        address: args.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        port: if args.seed_port { SEED_PORT } else { args.port.unwrap_or(0) },
        tls: args.tls_cert.zip(args.tls_key),
        hosts: args.host,
        token_file: args.token_file,
        is_control: args.control,
        collector: args.otlp.as_deref().map(collector).transpose()?,
        // No browser is opened if other machines can reach the server, because its user is probably
        // not at this machine's screen.
        browser: (is_own && !args.no_browser)
            .then_some(|url, folder| browser::open(url, folder).unwrap_or(false)),
    })
}

fn collector(url: &str) -> Result<Collector, Failure> {
    Collector::of(url, |name| std::env::var(name).ok())
}

fn limits(args: &ServeArgs) -> Result<Limits, Failure> {
    let bad = |option: &str, text: &str, why: &str, right: &str| {
        Failure::misuse(format!("bad value `{text}` for --{option}"), why)
            .hint(format!("--{option}={right}"))
    };
    let (memory, time) = (&args.memory_limit, &args.time_limit);
    let memory_bytes =
        parse_size(memory).filter(|bytes| *bytes >= LEAST_MEMORY).ok_or_else(|| {
            bad("memory-limit", memory, "the value is not a size of 64 MiB or more", "4G")
        })?;
    let time = parse_duration(time)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| bad("time-limit", time, "the value is not a time", "2m"))?;
    Ok(Limits { memory_bytes, output_bytes: MOST_OUTPUT, time })
}

/// Returns the path of the `tprof` that started this program, or otherwise of the `tprof` in the
/// same directory.
fn program() -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return Ok(program.into());
    }
    let own = std::env::current_exe().map_err(|error| Failure::new("cannot find tprof", error))?;
    let beside = own.with_file_name("tprof");
    match beside.is_file() {
        true => Ok(beside),
        false => {
            Err(Failure::new("cannot find tprof", format!("{} is not there", beside.display()))
                .hint("tprof serve"))
        }
    }
}

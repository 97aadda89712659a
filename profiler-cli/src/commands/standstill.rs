//! `tprof where`: what each rank of a live run does and waits for now, and which one holds up the
//! others. The job continues meanwhile. Of a job that has ended, dumps of PyTorch's Flight Recorder
//! tell.

use super::elsewhere::{self, FarRun, States};
use super::live::not_reached;
use crate::terminal::quote;
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tprof_collect::control;
use tprof_hang::Answer;
use tprof_import::flight_recorder::{self, DumpsError};
use tprof_trace::is_info_name;
use tprof_ui::errors::Failure;
use tprof_ui::newest;

/// Arguments of `tprof where`.
#[derive(Args, Debug)]
pub struct WhereArgs {
    /// Run directory, or dumps of PyTorch's Flight Recorder: one file, or a directory with one of
    /// each rank; without it, the newest live run in this directory
    #[arg(value_name = "RUN|DUMPS", value_hint = clap::ValueHint::AnyPath)]
    pub run: Option<PathBuf>,
    /// Show only this rank, with all of its threads
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Also ask tprof on another host, by ssh without a password, if the hosts of the job share no
    /// directory; may be repeated
    #[arg(long, value_name = "HOST:RUN")]
    pub from: Vec<OsString>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Print what the collectors know, for `--from` of another tprof
    #[arg(long, hide = true)]
    pub states: bool,
}

/// Asks the run's collectors, and prints the verdict and the ranks.
pub fn run(args: WhereArgs) -> anyhow::Result<ExitCode> {
    let others = far_runs(&args.from)?;
    let path = match args.run {
        None if others.is_empty() => Some(newest::live_run_here("tprof where")?),
        run => run,
    };
    let is_dump = path.as_deref().is_some_and(flight_recorder::has_dumps);
    let own = match &path {
        Some(path) if is_dump => Some(of_dumps(path)?),
        Some(path) => Some(of_run(path)?),
        None => None,
    };
    let answer = match own {
        Some(own) if others.is_empty() => own,
        own => elsewhere::with_others(own, &others),
    };
    if args.states {
        let text = serde_json::to_string(&States::of(&answer))? + "\n";
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(rank) = args.rank.filter(|rank| !answer.has(*rank)) {
        let (what, why) = match is_dump {
            true => (format!("there is no dump of rank {rank}"), "no file here is named after it"),
            false => (
                format!("rank {rank} has not answered"),
                "no collector on this host records such a rank",
            ),
        };
        return Err(Failure::new(what)
            .cause(why)
            .hint("tprof where without --rank lists the ranks")
            .into());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&answer.json(args.rank))? + "\n",
        false => answer.text(args.rank),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the runs on other hosts.
fn far_runs(given: &[OsString]) -> Result<Vec<FarRun>, Failure> {
    let parse = |text: &OsString| {
        FarRun::parse(text).ok_or_else(|| {
            Failure::new(format!("bad value `{}` for --from", text.to_string_lossy()))
                .cause("it is a host, a colon, and the run's directory there")
                .hint("--from=c12:/tmp/r1")
        })
    };
    given.iter().map(parse).collect()
}

/// Asks the collectors of a run in progress.
fn of_run(path: &Path) -> Result<Answer, Failure> {
    let is_info = |entry: std::fs::DirEntry| is_info_name(&entry.file_name().to_string_lossy());
    let is_run =
        std::fs::read_dir(path).is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(is_info)));
    if path.exists() && !is_run {
        return Err(Failure::new(format!(
            "`{}` is neither a run nor a dump of PyTorch's Flight Recorder",
            path.display()
        ))
        .cause("a run has run.json; a dump is a pickle or JSON whose name ends with the rank")
        .hint("a run directory (ls -d tprof-*), or TORCH_FR_DUMP_TEMP_FILE's directory"));
    }
    super::live::refuse_what_is_no_run(path, "tprof where")?;
    control::standstill(path).map_err(|error| not_reached(path, &error))
}

/// Reads the dumps of a job that has ended, and judges them.
fn of_dumps(path: &Path) -> Result<Answer, Failure> {
    flight_recorder::standstill(path).map_err(|error| {
        let hint = match &error {
            DumpsError::SeveralNames { path, .. } => {
                let path = quote::word(path.as_os_str());
                format!("tprof where with a directory for each, made from {path}")
            }
            DumpsError::NoRank { .. } => "a name such as nccl_trace_rank_0".to_owned(),
            _ => "write the dump again: torch._C._distributed_c10d._dump_fr_trace()".to_owned(),
        };
        Failure::new(error.to_string()).hint(hint)
    })
}

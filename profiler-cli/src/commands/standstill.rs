//! `tprof where`: what each rank of a live run does and waits for now, and which one holds up the
//! others. The job continues meanwhile. Of a job that has ended, dumps of PyTorch's Flight Recorder
//! tell.

use super::live::not_reached;
use crate::terminal::quote;
use clap::Args;
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
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// Asks the run's collectors, and prints the verdict and the ranks.
pub fn run(args: WhereArgs) -> anyhow::Result<ExitCode> {
    let path = match args.run {
        Some(run) => run,
        None => newest::live_run_here("tprof where")?,
    };
    let is_dump = flight_recorder::has_dumps(&path);
    let answer = if is_dump { of_dumps(&path)? } else { of_run(&path)? };
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

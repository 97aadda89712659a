//! `tprof where`: what each rank of a live run does and waits for now, and which one holds up the
//! others. The job continues meanwhile.

use super::live::not_reached;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use tprof_collect::control;
use tprof_ui::errors::Failure;
use tprof_ui::newest;

/// Arguments of `tprof where`.
#[derive(Args, Debug)]
pub struct WhereArgs {
    /// Run directory; without one, the newest live run in this directory
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
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
    super::live::refuse_what_is_no_run(&path, "tprof where")?;
    let answer = control::standstill(&path).map_err(|error| not_reached(&path, &error))?;
    if let Some(rank) = args.rank.filter(|rank| !answer.has(*rank)) {
        return Err(Failure::new(format!("rank {rank} has not answered"))
            .cause("no collector on this host records such a rank")
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

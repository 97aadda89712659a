//! `tprof compare`: any number of runs in one table, as text, JSON or Markdown on stdout.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tprof_diff::{ManyRuns, Side, SideOptions};
use tprof_trace::live::is_collector_alive;
use tprof_ui::columns;
use tprof_ui::errors::Failure;

use crate::commands::report::document;
use crate::commands::steps_from::steps_from;
use crate::runs::failure::analyze_failure;
use crate::runs::foreign::open_run_or_import;
use crate::terminal::page::{Form, Page};

/// The end of the help.
const COMPARE_NOTES: &str = "\
A run is marked as best in a metric only if its difference from every other run
is larger than the 95 % interval over steps. Warm-up steps are left out.
`tprof diff` shows what changed between two runs.

Example, modes of torch.compile (scripts/compile/modes.sh does this):
  tprof run -o default --operators names -- python train.py --mode default
  tprof run -o autotune --operators names -- python train.py --mode max-autotune
  tprof compare default autotune";

/// Arguments of `tprof compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_NOTES)]
pub struct CompareArgs {
    /// Runs to compare: run directories or their files
    #[arg(required = true, num_args = 2.., value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub runs: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Print Markdown for a GitHub comment (at most 60,000 characters)
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Compare only this rank of all runs
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Where training steps come from: auto, explicit, profiler, optimizer, loader, inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
}

/// Compares the runs.
pub fn run(args: CompareArgs) -> anyhow::Result<ExitCode> {
    let steps_from = steps_from(args.steps_from.as_deref())?;
    let read = |path: &PathBuf| -> anyhow::Result<Side> {
        let is_running = Some(is_collector_alive as _);
        let options = SideOptions { rank: args.rank, steps: None, steps_from, is_running };
        let run = open_run_or_import(path)?;
        let mut side =
            Side::read(run.path(), &options).map_err(|error| analyze_failure(path, &error))?;
        side.run.path.clone_from(path);
        Ok(side)
    };
    let sides = args.runs.iter().map(read).collect::<Result<Vec<Side>, _>>()?;
    let runs = ManyRuns::of(sides, &names(&args.runs));
    let text = match args.json {
        true => serde_json::to_string_pretty(&runs)? + "\n",
        false => text(&runs, args.markdown),
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error
        .kind()
    {
        std::io::ErrorKind::BrokenPipe => anyhow::Error::from(error),
        _ => Failure::new("cannot write the comparison")
            .because(&error, "redirect stdout to another file")
            .into(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns names for runs: the last components of their paths if these are unique, otherwise the
/// paths.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let last = |path: &PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let short: Vec<String> = paths.iter().map(last).collect();
    let mut different = short.clone();
    different.sort();
    different.dedup();
    match different.len() == short.len() {
        true => short,
        false => paths.iter().map(|path: &PathBuf| Path::display(path).to_string()).collect(),
    }
}

fn text(runs: &ManyRuns, markdown: bool) -> String {
    let form = match markdown {
        true => Form::Markdown,
        false => Form::Text(columns::of_stdout()),
    };
    let mut page = Page::new(form);
    page.title("tprof compare");
    for note in &runs.notes {
        page.paragraph(0, &format!("Note: {note}."));
    }
    document::tables(&mut page, &runs.tables, usize::MAX);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_directory_or_else_by_path() {
        let named = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(named(&["a/one", "b/two"]), ["one", "two"]);
        assert_eq!(named(&["a/one", "b/one"]), ["a/one", "b/one"]);
    }
}

//! `tprof diff`: compares two runs, as text, JSON or CSV on stdout.

mod brief;
mod conditions;
mod junit;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tprof_diff::{Comparison, Side, SideOptions};
use tprof_trace::live::is_collector_alive;
use tprof_ui::columns;
use tprof_ui::errors::{Failure, print_stderr};

use crate::commands::report::{document, table_without_csv};
use crate::commands::steps_from::steps_from;
use crate::runs::failure::{analyze_failure, no_table};
use crate::runs::foreign::open_run_or_import;
use crate::terminal::page::{Form, Page};
use conditions::{Condition, ConditionResult, ConditionVerdict};

/// The end of the help.
const DIFF_NOTES: &str = "\
A condition of --fail-on is METRIC>CHANGE or METRIC<CHANGE, where a change has a
sign and a unit: step_time>+5%, peak_heap>+200MiB, gpu_busy<-10%. A change within
noise (95 %, over steps or samples) never fails the check.
Metrics: step_time step_time_without_lost_cores compute_time
  exposed_communication exposed_copies idle_time gpu_busy launches wall_time
  cpu_time processes threads peak_heap peak_rss peak_device_memory
Parts of `tprof report host` (per step if both runs have steps):
  wait:data wait:gil wait:lock wait:file_io wait:socket wait:collective
  wait:device wait:no_core wait:tprof wait:other wait:unknown part:python
  part:native part:allocator part:page_fault part:gc part:start_up
CPU time of a function in all threads of a rank: function:NAME
Times and shares are not checked if the hardware differs. step_time and
wall_time are not checked if other programs took cores and only that decides.

Each condition is `ok` or `FAILED`. The exit status is 1 if one failed, and 125
if one cannot be checked.

Example:
  tprof diff main.tprof-run branch.tprof-run --fail-on 'step_time>+5%'";

/// Arguments of `tprof diff`.
#[derive(Args, Debug)]
#[command(after_help = DIFF_NOTES)]
pub struct DiffArgs {
    /// Baseline: a run directory or one of its files
    #[arg(value_name = "A", value_hint = clap::ValueHint::AnyPath)]
    pub a: PathBuf,
    /// Run to compare with the baseline
    #[arg(value_name = "B", value_hint = clap::ValueHint::AnyPath)]
    pub b: PathBuf,
    /// Exit with 1 if this condition holds (see below); may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<String>,
    /// Also write the conditions to this file as JUnit XML test cases
    #[arg(long, value_name = "FILE", requires = "fail_on", value_hint = clap::ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print Markdown for a GitHub comment (at most 60,000 characters)
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub markdown: bool,
    /// Print one table as CSV: the first one, or the one named by --table
    #[arg(long)]
    pub csv: bool,
    /// Table that --csv prints; an unknown name lists all names
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// Also print what did not change beyond noise
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub all: bool,
    /// Number of rows to print per table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Compare only this rank of both runs
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Where training steps come from: auto, explicit, profiler, optimizer, loader,
    /// inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
    /// Take only these steps of A: 5 or 5..20
    #[arg(long, value_name = "STEPS")]
    pub steps_a: Option<String>,
    /// Take only these steps of B
    #[arg(long, value_name = "STEPS")]
    pub steps_b: Option<String>,
}

/// Exit status if a change is beyond the limit of a condition of `--fail-on`.
const TRIPPED: u8 = 1;

/// Compares the two runs.
pub fn run(args: DiffArgs) -> anyhow::Result<ExitCode> {
    if args.table.is_some() && !args.csv {
        return Err(table_without_csv("tprof diff A B").into());
    }
    let conditions = args.fail_on.iter().map(|text| Condition::of(text));
    let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
    let steps_a = args.steps_a.as_deref().map(steps).transpose()?;
    let steps_b = args.steps_b.as_deref().map(steps).transpose()?;
    let steps_from = steps_from(args.steps_from.as_deref())?;
    let read = |path: &Path, steps| -> anyhow::Result<Side> {
        let is_running = Some(is_collector_alive as _);
        let options = SideOptions { rank: args.rank, steps, steps_from, is_running };
        let run = open_run_or_import(path)?;
        let read = Side::read(run.path(), &options);
        let mut side = read.map_err(|error| analyze_failure(path, &error))?;
        side.run.path = path.to_owned();
        match steps {
            Some((from, to)) if side.stepped && side.steps.is_empty() => {
                Err(no_steps(path, run.path(), from, to, &options).into())
            }
            _ => Ok(side),
        }
    };
    let comparison = Comparison::of(read(&args.a, steps_a)?, read(&args.b, steps_b)?);
    let text = if args.json {
        serde_json::to_string_pretty(&comparison)? + "\n"
    } else if args.csv {
        let keys: Vec<&str> = comparison.tables.iter().map(|table| table.key).collect();
        let name = args.table.as_deref().unwrap_or(keys[0]);
        let table = comparison.tables.iter().find(|table| table.key == name);
        document::csv(table.ok_or_else(|| no_table(name, "diff", &keys))?)
    } else {
        let form = match args.markdown {
            true => Form::Markdown,
            false => Form::Text(columns::of_stdout()),
        };
        text(&comparison, args.all, args.top, form)
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
    let judged = conditions.iter().map(|condition| condition.judge(&comparison)).collect();
    exit_code(judged, &comparison, args.junit.as_deref())
}

/// Prints the verdict of each condition to stderr, and returns the exit status.
fn exit_code(
    judged: Vec<ConditionResult>,
    comparison: &Comparison,
    junit: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    for judged in &judged {
        if let ConditionVerdict::Holds | ConditionVerdict::Fails = judged.verdict {
            print_stderr(&format!("{}\n", judged.line()));
        }
    }
    if let Some(path) = junit {
        let [a, b] = [&comparison.a, &comparison.b].map(|side| side.run.path.display().to_string());
        std::fs::write(path, junit::document(&judged, &a, &b)).map_err(|error| {
            Failure::new(format!("cannot write `{}`", path.display())).because(
                &error,
                "--junit takes a file in a directory that exists and can be written",
            )
        })?;
    }
    let mut code = ExitCode::SUCCESS;
    for judged in judged {
        match judged.verdict {
            ConditionVerdict::Holds => {}
            ConditionVerdict::Fails => code = ExitCode::from(TRIPPED),
            ConditionVerdict::Unchecked(failure) => return Err(failure.into()),
        }
    }
    Ok(code)
}

/// Formats the comparison as text, with at most `top` rows per table. Rows that did not change are
/// left out unless `all` is set.
fn text(comparison: &Comparison, all: bool, top: usize, form: Form) -> String {
    let mut page = Page::new(form);
    page.title("tprof diff");
    page.gap();
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        page.field(name, &side_text(side));
    }
    for note in &comparison.notes {
        page.paragraph(0, &format!("Note: {note}."));
    }
    if all {
        document::tables(&mut page, &comparison.tables, top);
        return page.into_text();
    }
    let (changed, same) = brief::changed(&comparison.tables);
    document::tables(&mut page, &changed, top);
    let same = match same.is_empty() {
        true => String::new(),
        false => format!(" Nothing else changed in {}.", same.join(", ")),
    };
    page.gap();
    page.paragraph(0, &format!("Rows without a change beyond noise are left out: --all.{same}"));
    page.into_text()
}

fn side_text(side: &Side) -> String {
    let steps = match side.steps.len() {
        _ if !side.stepped => "no steps".to_owned(),
        1 => "1 step".to_owned(),
        steps => format!("{steps} steps"),
    };
    let ranks = if side.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks", side.ranks) };
    let verdict = &side.completeness.verdict;
    format!("{}: {ranks}, {steps}, {verdict}", side.run.path.display())
}

/// Parses a range such as `5` or `5..20`.
fn steps(text: &str) -> Result<(u64, u64), Failure> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
        _ => Err(Failure::new(format!("bad steps `{text}`"))
            .cause("steps are a number (5), or a range (5..20) with the smaller number first")
            .hint("--steps-a 5..20")),
    }
}

fn no_steps(path: &Path, run: &Path, from: u64, to: u64, options: &SideOptions) -> Failure {
    let there = Side::read(run, &SideOptions { steps: None, ..*options });
    let failure = Failure::new(format!("`{}` has no step from {from} to {to}", path.display()));
    match there.as_ref().map(|side| (side.steps.first(), side.steps.last())) {
        Ok((Some(first), Some(last))) => failure
            .cause(format!("the steps of the run are {first} to {last}"))
            .hint(format!("{first}..{last}")),
        _ => failure.cause("the run has no steps").hint("leave out --steps-a and --steps-b"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        assert_eq!(steps("5").unwrap(), (5, 5));
        assert_eq!(steps("5..20").unwrap(), (5, 20));
        for bad in ["", "x", "5..", "..5", "9..5", "-1", "1..2..3"] {
            assert!(steps(bad).is_err(), "{bad}");
        }
    }
}

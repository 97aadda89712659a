//! `tprof diff`: two runs beside each other, as text, JSON or CSV on stdout.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tprof_analyze::diff::{Comparison, Gate, Side, SideOptions, Subject};
use tprof_analyze::document::Value;
use tprof_trace::live::collector_lives;

use crate::commands::report::document;
use crate::commands::steps_from::steps_from;
use crate::runs::failure::{analyze_failure, no_table};
use crate::runs::foreign::open_run_or_import;
use crate::terminal::columns;
use crate::terminal::errors::{Failure, nearest, print_stderr, reason};
use crate::terminal::page::{Form, Page};
use clap::Args;

/// The end of the help.
const DIFF_NOTES: &str = "\
Conditions of --fail-on are METRIC>CHANGE or METRIC<CHANGE; a change has a sign
and a unit: step_time>+5%, peak_heap>+200MiB, gpu_busy<-10%. A change within
noise (95 %, over steps or samples) never fails the check.
Metrics: step_time compute_time exposed_communication exposed_copies idle_time
  gpu_busy launches wall_time cpu_time processes threads peak_heap peak_rss
  peak_device_memory
Parts of `tprof report host`, of a step where both runs have steps:
  wait:data wait:gil wait:lock wait:file_io wait:socket wait:collective
  wait:device wait:no_core wait:other wait:unknown part:python part:native
  part:allocator part:page_fault part:gc part:start_up
CPU time of a function, all threads of a rank: function:NAME
Times and shares are not checked if the hardware differs.

The exit status is 1 if a condition holds, 125 if one cannot be checked.

Example:
  tprof diff main.tprof-run branch.tprof-run --fail-on 'step_time>+5%'";

/// `tprof diff`.
#[derive(Args, Debug)]
#[command(after_help = DIFF_NOTES)]
pub struct DiffArgs {
    /// Baseline: a run directory or one of its files
    #[arg(value_name = "A", value_hint = clap::ValueHint::AnyPath)]
    pub a: PathBuf,
    /// Run to compare with the baseline
    #[arg(value_name = "B", value_hint = clap::ValueHint::AnyPath)]
    pub b: PathBuf,
    /// Exit with 1 if this condition holds; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub fail_on: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print Markdown for a comment on GitHub, at most 60,000 characters
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub markdown: bool,
    /// Print one table as CSV: the first, or that of --table
    #[arg(long)]
    pub csv: bool,
    /// Table for --csv; an unknown name lists all names
    #[arg(long, value_name = "NAME", requires = "csv")]
    pub table: Option<String>,
    /// Rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Only this rank of both runs
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Where steps of both runs come from: auto, explicit, profiler, optimizer, loader,
    /// inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
    /// Only these steps of A: 5 or 5..20
    #[arg(long, value_name = "STEPS")]
    pub steps_a: Option<String>,
    /// Only these steps of B
    #[arg(long, value_name = "STEPS")]
    pub steps_b: Option<String>,
}

/// Exit status if a condition trips.
const TRIPPED: u8 = 1;

/// Compares two runs.
pub fn run(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let gates = args.fail_on.iter().map(|text| gate(text)).collect::<Result<Vec<_>, _>>()?;
    let steps_a = args.steps_a.as_deref().map(steps).transpose()?;
    let steps_b = args.steps_b.as_deref().map(steps).transpose()?;
    let steps_from = steps_from(args.steps_from.as_deref())?;
    let read = |path: &Path, steps| -> anyhow::Result<Side> {
        let is_running = Some(collector_lives as _);
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
        text(&comparison, args.top, form)
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error
        .kind()
    {
        std::io::ErrorKind::BrokenPipe => anyhow::Error::from(error),
        _ => Failure::new("cannot write the comparison")
            .cause(reason(&error))
            .hint("redirect stdout to another file")
            .into(),
    })?;
    judge(&comparison, &gates)
}

/// Prints to stderr for each condition whether it holds.
fn judge(comparison: &Comparison, gates: &[(Gate, Subject)]) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let other_hardware = comparison.other_hardware();
    for (gate, subject) in gates {
        let cannot = |why: String| Failure::new(format!("cannot check `{gate}`")).cause(why);
        if subject.of_hardware() && !other_hardware.is_empty() {
            return Err(cannot(format!("the hardware differs ({})", other_hardware.join(", ")))
                .hint("compare runs on the same hardware, or check a memory metric")
                .into());
        }
        if let Subject::Function(name) = subject
            && !comparison.has_function(name)
        {
            return Err(no_function(comparison, gate, name).into());
        }
        let change = comparison.change(subject);
        let known =
            change.as_ref().and_then(|change| Some((change.a.get()?, change.difference()?)));
        let (Some((a, difference)), Some(tripped)) = (known, comparison.trips(gate)) else {
            return Err(cannot(format!(
                "{} was measured in only one run, or in neither",
                subject.title()
            ))
            .hint("tprof diff without --fail-on lists what both runs have")
            .into());
        };
        let shown = |value: f64| document::shown_value(&Value::Float(value), subject.unit());
        let share = if a == 0.0 {
            String::new()
        } else {
            format!(", {:+.1} %", difference / a.abs() * 100.0)
        };
        let sure = match change.and_then(|change| change.error) {
            Some(error) => format!(", \u{b1} {}", shown(error)),
            None => String::new(),
        };
        let verdict = if tripped { "FAILS" } else { "holds" };
        print_stderr(&format!(
            "{verdict}: {gate}: {} from {} to {}{share}{sure}\n",
            subject.title(),
            shown(a),
            shown(a + difference)
        ));
        if tripped {
            code = ExitCode::from(TRIPPED);
        }
    }
    Ok(code)
}

/// The comparison for a person; `top` rows in each table.
fn text(comparison: &Comparison, top: usize, form: Form) -> String {
    let mut page = Page::new(form);
    page.title("tprof diff");
    page.gap();
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        page.field(name, &side_text(side));
    }
    for note in &comparison.notes {
        page.paragraph(0, &format!("Note: {note}."));
    }
    document::tables(&mut page, &comparison.tables, top);
    page.into_text()
}

fn side_text(side: &Side) -> String {
    let steps = match side.steps.len() {
        _ if !side.stepped => "no steps".to_owned(),
        1 => "1 step".to_owned(),
        steps => format!("{steps} steps"),
    };
    let ranks = if side.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks", side.ranks) };
    let complete = match (side.completeness.complete, side.completeness.but_for()) {
        (true, _) => "complete".to_owned(),
        (false, Some(gaps)) => format!("complete but for {gaps}"),
        (false, None) => "NOT COMPLETE".to_owned(),
    };
    format!("{}: {ranks}, {steps}, {complete}", side.run.path.display())
}

/// That no function has this name, and which is near.
fn no_function(comparison: &Comparison, gate: &Gate, name: &str) -> Failure {
    let mut names: Vec<&str> = comparison.functions();
    names.sort_unstable();
    names.dedup();
    let short = names.iter().map(|name| name.split(" (").next().unwrap_or(name));
    let failure = Failure::new(format!("cannot check `{gate}`"))
        .cause(format!("no function `{name}` was sampled on a core in either run"));
    match nearest(name, short) {
        Some(near) => {
            let typed = gate.to_string();
            failure.hint(format!("--fail-on '{}'", typed.replacen(name, near, 1)))
        }
        None => failure.hint("`tprof report cpu` lists the functions of a run"),
    }
}

/// A condition and what it is on.
fn gate(text: &str) -> Result<(Gate, Subject), Failure> {
    let failure = || Failure::new(format!("bad condition `{text}` for --fail-on"));
    let gate: Gate = text.parse().map_err(|error: tprof_analyze::diff::GateError| {
        failure().cause(error.to_string()).hint("--fail-on 'step_time>+5%'")
    })?;
    match Subject::of(&gate.metric) {
        Some(subject) => Ok((gate, subject)),
        None => {
            let names = Subject::names();
            let near = nearest(&gate.metric, names.iter().map(String::as_str));
            let near = near.unwrap_or("step_time");
            Err(failure()
                .cause(format!(
                    "`{}` is no metric, no part and no function:NAME; there are {}",
                    gate.metric,
                    names.join(", ")
                ))
                .hint(format!("--fail-on '{}'", text.replacen(&gate.metric, near, 1))))
        }
    }
}

/// Reads `5` or `5..20`.
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

    #[test]
    fn a_metric_that_does_not_exist_is_named_with_the_nearest() {
        let failure = gate("step_tme>+5%").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("--fail-on 'step_time>+5%'"));
        let failure = gate("wait:dta>+5%").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("--fail-on 'wait:data>+5%'"));
        assert!(gate("wait:python>+5%").is_err() && gate("function:>+5%").is_err());
        assert!(gate("part:start_up>+1s").is_ok() && gate("function:f<-5%").is_ok());
        assert!(gate("step_time>5%").is_err());
        assert!(gate("step_time>+5%").is_ok());
    }
}

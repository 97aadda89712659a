//! `tprof ctl`: sends requests to the collector of a live run through its session's socket.

use super::live::{self, ask};
use super::snapshot::{self, SnapshotArgs};
use crate::terminal::quote;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tprof_collect::control::Request;
use tprof_facts::units;
use tprof_ui::columns;
use tprof_ui::errors::Failure;
use tprof_ui::newest;

/// Arguments of `tprof ctl`.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// The request to send.
    #[command(subcommand)]
    pub request: CtlRequest,
}

/// Requests to a live run.
#[derive(Subcommand, Debug)]
pub enum CtlRequest {
    /// Start recording, until `ctl stop` or for a number of steps
    Start {
        /// Record this many steps of each process, the same steps on all ranks
        #[arg(long, value_name = "N")]
        steps: Option<u32>,
        /// Directory of the run; without one, the newest live run in this directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: Option<PathBuf>,
    },
    /// Stop recording; the job continues
    Stop(CtlRun),
    /// Add a named mark to the timeline
    Mark {
        /// Name of the mark
        name: String,
        /// Directory of the run; without one, the newest live run in this directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: Option<PathBuf>,
    },
    /// Begin a training step on all ranks
    Step {
        /// Number of the step [default: the one after the last], then the run directory
        #[arg(num_args = 0..=2, value_names = ["N", "RUN"], value_hint = clap::ValueHint::DirPath)]
        number_and_run: Vec<OsString>,
    },
    /// Write what a run with `--keep` keeps as a run of its own: RUN/dump-1
    Dump {
        /// Why, in a few words
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
        /// Directory of the run; without one, the newest live run in this directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: Option<PathBuf>,
    },
    /// Print and save each rank's live bytes and its largest allocation sites
    Snapshot(SnapshotArgs),
    /// Print event rates, losses and the size of the run
    Status {
        /// Directory of the run; without one, the newest live run in this directory
        #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
        run: Option<PathBuf>,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

/// Selects a live run.
#[derive(Args, Debug)]
pub struct CtlRun {
    /// Directory of the run; without one, the newest live run in this directory
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub run: Option<PathBuf>,
}

/// Sends the request, and prints the answer.
pub fn run(args: CtlArgs) -> anyhow::Result<ExitCode> {
    let (run, request, json) = match args.request {
        CtlRequest::Start { steps: None, run } => (run, Request::Start, false),
        CtlRequest::Start { steps: Some(steps), run } => {
            (run, Request::Steps { count: whole(steps)?, first: None, asker: String::new() }, false)
        }
        CtlRequest::Stop(run) => (run.run, Request::Stop, false),
        CtlRequest::Mark { name, run } => (run, Request::Mark { name: mark(name)? }, false),
        CtlRequest::Step { number_and_run } => {
            let (number, run) = step(&number_and_run)?;
            (run, Request::Step { number }, false)
        }
        CtlRequest::Dump { why, run } => return dump(why, run),
        CtlRequest::Snapshot(args) => return snapshot::run(args),
        CtlRequest::Status { run, json } => (run, Request::Status, json),
    };
    let path = match run {
        Some(run) => run,
        None => newest::live_run_here(&format!("tprof ctl {}", name_of(&request)))?,
    };
    let reply = ask(&path, &request)?;
    let mut out = io::stdout();
    match reply.status {
        Some(status) if json => writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?,
        Some(status) => out.write_all(table(&reply.message, &status).as_bytes())?,
        None if json => writeln!(out, "{}", serde_json::json!({ "message": reply.message }))?,
        None => writeln!(io::stderr(), "{}", reply.message)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what a run keeps, and prints where.
fn dump(why: Option<String>, run: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let run = match run {
        Some(run) => run,
        None => newest::live_run_here("tprof ctl dump")?,
    };
    let why =
        why.filter(|why| !why.trim().is_empty()).unwrap_or_else(|| "tprof ctl dump".to_owned());
    let name = live::dump(&run, &why)?;
    let path = run.join(name);
    writeln!(io::stdout(), "tprof report {}", quote::word(path.as_os_str()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the word for a request.
fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Start | Request::Steps { .. } => "start",
        Request::Stop => "stop",
        Request::Mark { .. } => "mark NAME",
        Request::Step { .. } => "step",
        _ => "status",
    }
}

fn whole(steps: u32) -> Result<u32, Failure> {
    match steps {
        0 => Err(Failure::new("no steps to record")
            .cause("--steps 0 records nothing")
            .hint("tprof ctl start --steps 10 RUN")),
        steps => Ok(steps),
    }
}

/// Parses `tprof ctl step [N] [RUN]`. A single word is the number of the step if it is a number and
/// no directory has this name.
fn step(words: &[OsString]) -> Result<(Option<u64>, Option<PathBuf>), Failure> {
    let number = |word: &OsString| word.to_str()?.parse().ok();
    match words {
        [] => Ok((None, None)),
        [word] if !Path::new(word).exists() && number(word).is_some() => Ok((number(word), None)),
        [run] => Ok((None, Some(run.into()))),
        [word, run, ..] => match number(word) {
            Some(number) => Ok((Some(number), Some(run.into()))),
            None => Err(Failure::new(format!("`{}` is not a step number", word.display()))
                .cause("a step number is a whole number, 0 or more")
                .hint(format!("tprof ctl step 12 {}", quote::word(run)))),
        },
    }
}

fn mark(name: String) -> Result<String, Failure> {
    if name.trim().is_empty() {
        return Err(Failure::new("the mark has no name")
            .cause("the name is empty")
            .hint("tprof ctl mark epoch-3 RUN"));
    }
    Ok(name)
}

/// Key of whether the command has ended and what it left is still recorded.
const FOLLOWING: &str = "following";
/// Keys of the first rows of `ctl status`, in order. The other rows follow, sorted by key.
const ORDER: [&str; 12] = [
    "recording",
    "command",
    "running for",
    "processes",
    "threads",
    "recorded",
    "sampled",
    "rate",
    "lost",
    "waited",
    "written",
    "collector",
];

/// Formats the status as two columns, with rounded values and units. Nested values have dotted
/// names. `--json` prints the original values.
fn table(message: &str, status: &Value) -> String {
    let mut rows = Vec::new();
    flatten("", status, &mut rows);
    let place = |name: &str| ORDER.iter().position(|known| *known == name);
    rows.sort_by_key(|(name, _)| place(name).unwrap_or(ORDER.len()));
    let width = rows.iter().map(|(name, _)| columns::width(name)).max().unwrap_or(0);
    let mut text = String::new();
    if !message.is_empty() {
        text += message;
        text.push('\n');
    }
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}  {value}", columns::left(&name, width));
    }
    text
}

fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&name, value, rows);
            }
        }
        // Lists are for programs.
        Value::Array(_) => {}
        // While the command runs, there is nothing to say of what outlives it.
        Value::Bool(false) if prefix == FOLLOWING => {}
        value => rows.push(shown(prefix, value)),
    }
}

/// Formats a row for people: removes the unit from the key, and adds it to the value.
fn shown(key: &str, value: &Value) -> (String, String) {
    let about = |number: f64| units::count(number.max(0.0).round() as u64);
    let number = value.as_f64();
    let (name, text) = match (key, number) {
        ("seconds", Some(seconds)) => ("running for", units::duration((seconds * 1e9) as u64)),
        ("bytes", Some(bytes)) => ("written", units::bytes(bytes as u64)),
        ("recorded", Some(events)) => ("recorded", format!("{} events", about(events))),
        ("samples", Some(samples)) => ("sampled", format!("{} CPU samples", about(samples))),
        ("lost", Some(0.0)) => ("lost", "none".to_owned()),
        ("lost", Some(events)) => ("lost", format!("{} events", about(events))),
        ("events_per_second", Some(rate)) => {
            ("rate", format!("{} events/s on average", about(rate)))
        }
        // A process may make steps that it doesn't show, and PyTorch's are counted only while
        // recording is on.
        ("steps", Some(0.0)) => ("steps", "none counted".to_owned()),
        ("wait_ns", Some(0.0)) => ("waited", "never".to_owned()),
        ("wait_ns", Some(ns)) => {
            ("waited", format!("{} for the collector", units::duration(ns as u64)))
        }
        ("collector_cpu_ns", Some(ns)) => {
            ("collector", format!("{} of CPU", units::duration(ns as u64)))
        }
        ("recording", None) => (
            "recording",
            match value {
                Value::Bool(true) => "on".to_owned(),
                Value::Bool(false) => "off".to_owned(),
                _ => "unknown".to_owned(),
            },
        ),
        (FOLLOWING, None) => {
            ("command", "has ended; the processes that it left are still recorded".to_owned())
        }
        (key, Some(number)) if key.ends_with("_ns") => {
            (key.trim_end_matches("_ns"), units::duration(number as u64))
        }
        (key, Some(number)) if key.ends_with("_bytes") => {
            (key.trim_end_matches("_bytes"), units::bytes(number as u64))
        }
        (key, Some(number)) if number.fract() == 0.0 && number >= 0.0 => (key, about(number)),
        (key, Some(number)) => (key, format!("{number:.1}")),
        (key, None) => (
            key,
            match value {
                Value::Null => "unknown".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
        ),
    };
    (name.replace('_', " "), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_with_units() {
        let status = serde_json::json!({
            "recording": true, "seconds": 3.840488688, "bytes": 14990, "recorded": 1234567, "samples": 1052,
            "events_per_second": 42.581138699979086, "lost": 0, "wait_ns": 0, "processes": 41,
            "collector_cpu_ns": 130787445, "steps": 0, "x": null, "y": {"queue_bytes": 2048},
        });
        let table = table("", &status);
        let rows: Vec<(&str, &str)> = table
            .lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(a, b)| (a, b.trim()))
            .collect();
        for row in [
            ("recording", "on"),
            ("running for", "3.84 s"),
            ("written", "14.6 KiB"),
            ("recorded", "1,234,567 events"),
            ("sampled", "1,052 CPU samples"),
            ("rate", "43 events/s on average"),
            ("lost", "none"),
            ("waited", "never"),
            ("collector", "130.8 ms of CPU"),
            ("processes", "41"),
            ("steps", "none counted"),
            ("x", "unknown"),
            ("y.queue", "2.0 KiB"),
        ] {
            assert!(rows.contains(&row), "{row:?} in\n{table}");
        }
    }

    #[test]
    fn what_outlives_the_command_is_said_in_words() {
        let rows = |following: bool| {
            table("", &serde_json::json!({ "recording": true, "following": following }))
        };
        assert_eq!(rows(false), "recording  on\n");
        let left = "command    has ended; the processes that it left are still recorded\n";
        assert_eq!(rows(true), format!("recording  on\n{left}"));
    }
}

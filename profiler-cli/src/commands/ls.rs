//! `tprof ls`: lists the runs in a directory, newest first.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};
use tprof_analyze::{Kind, Report, report};
use tprof_facts::labels::base_name;
use tprof_facts::units::{bytes, count, duration};
use tprof_rank::base::reading::Reading;
use tprof_trace::run::{BlindSpot, EVERYTHING};
use tprof_ui::columns::{self, cut, left, shorten, width};
use tprof_ui::errors::Failure;
use tprof_ui::newest::{FoundRun, runs_in};
use tprof_ui::paint;

use crate::runs::contents::RunContents;
use crate::terminal::page::{Form, Page};
use crate::terminal::table::Table;

/// Version of the JSON output.
const LS_VERSION: u32 = 1;
/// Indentation of lines below a run's line, in columns.
const INDENT: usize = 6;
/// Smallest room in columns for a command to be in its run's line.
const LEAST_COMMAND: usize = 20;

/// Arguments of `tprof ls`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tprof ls; tprof report; tprof rm tprof-train-*")]
pub struct LsArgs {
    /// Directory that contains runs
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Leave out the worst finding, which takes reading all of each run
    #[arg(long)]
    pub no_findings: bool,
}

/// Prints the list of runs.
pub fn run(args: LsArgs) -> anyhow::Result<ExitCode> {
    let found = runs_in(&args.directory).map_err(|error| {
        Failure::new(format!("cannot list `{}`", args.directory.display()))
            .because(&error, "tprof ls DIR, with the directory that contains the runs")
    })?;
    let rows: Vec<Row> = found.iter().map(|run| Row::of(run, !args.no_findings)).collect();
    let text = match args.json {
        true => {
            let runs: Vec<Value> = rows.iter().map(Row::json).collect();
            let all = json!({ "version": LS_VERSION, "runs": runs });
            serde_json::to_string_pretty(&all)? + "\n"
        }
        false => text(&rows, &args.directory),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A row of the list.
struct Row {
    path: PathBuf,
    command: Vec<String>,
    state: &'static str,
    start_unix_ns: Reading<u64>,
    wall_ns: Reading<u64>,
    ranks: usize,
    bytes: u64,
    /// Number of events known to be lost.
    lost: Reading<u64>,
    /// Why a part of the run cannot be read.
    unreadable: Option<String>,
    complete: bool,
    /// Which part was left out because the user asked for that; `None` if no part was.
    left_out: Option<&'static str>,
    /// Severity and text of the worst finding; `None` if no rule found anything.
    worst: Reading<Option<Worst>>,
}

/// The worst finding of a run: its severity and text.
#[derive(Clone)]
struct Worst {
    severity: &'static str,
    rule: &'static str,
    place: String,
    what: String,
}

impl Row {
    /// Reads the row of a run. If `judge`, finds the worst finding too.
    fn of(run: &FoundRun, judge: bool) -> Row {
        let path = run.dir.path();
        let contents = RunContents::of(path).unwrap_or_default();
        let found = if judge { report(path, Kind::Summary, None).ok() } else { None };
        let infos = run.dir.infos();
        let finished = !infos.is_empty() && infos.iter().all(|info| info.finished);
        let state = match (finished, run.is_live()) {
            (true, _) => "finished",
            (false, true) => "running",
            (false, false) => "cut off",
        };
        let mut ranks: Vec<u32> = run.dir.files().iter().filter_map(|file| file.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let losses = infos.iter().map(|info| &info.completeness);
        let unreadable = run.dir.unreadable();
        Row {
            path: path.to_owned(),
            command: infos.first().map(|info| info.command.clone()).unwrap_or_default(),
            state,
            start_unix_ns: match run.start_unix_ns {
                0 => Reading::missing("neither run.json nor a rank file has it"),
                ns => Reading::Is(ns),
            },
            wall_ns: match &found {
                Some(report) => report.run.wall_ns.clone(),
                None => wall_ns(run, finished),
            },
            ranks: ranks.len(),
            bytes: contents.bytes(),
            lost: match (&unreadable, &found) {
                (Some(why), _) => Reading::missing(why.as_str()),
                (None, Some(report)) => Reading::Is(report.completeness.lost),
                (None, None) => Reading::Is(losses.clone().map(|of| of.lost).sum()),
            },
            complete: match &found {
                _ if unreadable.is_some() => false,
                Some(report) => report.completeness.is_as_asked(),
                None => finished && losses.clone().all(|of| of.is_as_asked()),
            },
            left_out: left_out(losses.flat_map(|of| &of.blind)),
            worst: match &found {
                Some(report) => worst(report),
                None if judge => Reading::missing("the run cannot be read"),
                None => Reading::missing("--no-findings"),
            },
            unreadable,
        }
    }

    /// Returns the cells of the row. The run's name is padded but never cut, because users type it
    /// in other commands.
    fn cells(&self, run_columns: usize) -> Vec<String> {
        let unknown = || "?".to_owned();
        vec![
            self.start_unix_ns.get().map_or_else(unknown, ago),
            match self.state {
                "finished" => self.wall_ns.get().map_or_else(unknown, duration),
                state => state.to_owned(),
            },
            count(self.ranks as u64),
            bytes(self.bytes),
            match (self.lost.get(), self.complete) {
                (Some(0), true) => "0".to_owned(),
                // The run isn't complete: the number of lost events is unknown, or processes were
                // not recorded.
                (None | Some(0), _) => unknown(),
                (Some(lost), _) => count(lost),
            },
            left(&self.path.to_string_lossy(), run_columns),
            shown_command(&self.command),
        ]
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "path": self.path.to_string_lossy(),
            "command": self.command,
            "state": self.state,
            "ranks": self.ranks,
            "bytes": self.bytes,
            "complete": self.complete,
        });
        let mut set = |key: &str, value: Value, why: Option<&str>| {
            row[key] = value;
            if let Some(why) = why {
                row[format!("{key}_missing")] = why.into();
            }
        };
        let readings = [
            ("start_unix_ns", &self.start_unix_ns),
            ("wall_ns", &self.wall_ns),
            ("lost", &self.lost),
        ];
        for (key, reading) in readings {
            set(key, reading.get().into(), why(reading));
        }
        let worst = self.worst.value().and_then(|worst| worst.as_ref()).map(|worst| {
            json!({
                "severity": worst.severity, "rule": worst.rule, "place": worst.place,
                "what": worst.what,
            })
        });
        set("worst_finding", worst.into(), why(&self.worst));
        row
    }
}

/// Returns the JSON Schema of the output of `tprof ls --json`.
pub fn schema() -> Value {
    let (text, flag) = (json!({ "type": "string" }), json!({ "type": "boolean" }));
    let whole = json!({ "type": "integer", "minimum": 0 });
    let unknown_or_whole = json!({ "type": ["integer", "null"], "minimum": 0 });
    let worst = json!({
        "type": ["object", "null"],
        "properties": { "severity": text, "rule": text, "place": text, "what": text },
        "required": ["severity", "rule", "place", "what"],
        "additionalProperties": false,
    });
    let run = json!({
        "type": "object",
        "properties": {
            "path": text, "command": { "type": "array", "items": text }, "state": text,
            "ranks": whole, "bytes": whole, "complete": flag,
            "start_unix_ns": unknown_or_whole, "start_unix_ns_missing": text,
            "wall_ns": unknown_or_whole, "wall_ns_missing": text,
            "lost": unknown_or_whole, "lost_missing": text,
            "worst_finding": worst, "worst_finding_missing": text,
        },
        "required": [
            "path", "command", "state", "ranks", "bytes", "complete", "start_unix_ns", "wall_ns", "lost",
            "worst_finding",
        ],
        "additionalProperties": false,
    });
    json!({
        "title": "tprof ls --json",
        "type": "object",
        "properties": {
            "version": { "const": LS_VERSION }, "runs": { "type": "array", "items": run },
        },
        "required": ["version", "runs"],
        "additionalProperties": false,
    })
}

/// Says which part of a run was left out because the user asked for that.
fn left_out<'a>(gaps: impl Iterator<Item = &'a BlindSpot>) -> Option<&'static str> {
    let asked: Vec<&BlindSpot> = gaps.filter(|gap| gap.as_asked).collect();
    match asked.iter().any(|gap| gap.what == EVERYTHING) {
        true => Some("NOTHING RECORDED: recording was never on"),
        false => (!asked.is_empty()).then_some("PARTIAL, as asked"),
    }
}

fn why<T>(reading: &Reading<T>) -> Option<&str> {
    match reading {
        Reading::Missing(why) => Some(why),
        _ => None,
    }
}

/// Returns the wall time of the run, from its info files. It is missing if the run has not ended.
fn wall_ns(run: &FoundRun, finished: bool) -> Reading<u64> {
    let infos = run.dir.infos();
    let lengths = infos.iter().filter_map(|info| Some(info.end_ns?.saturating_sub(info.start_ns)));
    match lengths.max().filter(|_| finished) {
        Some(ns) => Reading::Is(ns),
        None => Reading::missing("the run has no end"),
    }
}

fn worst(report: &Report) -> Reading<Option<Worst>> {
    match &report.findings {
        Reading::Missing(why) => Reading::Missing(why.clone()),
        Reading::Is(lines) | Reading::Estimate { value: lines, .. } => {
            Reading::Is(lines.first().map(|line| Worst {
                severity: line.severity,
                rule: line.rule,
                place: line.place.clone(),
                what: line.what.clone(),
            }))
        }
    }
}

fn text(rows: &[Row], directory: &Path) -> String {
    let columns = columns::of_stdout();
    // The page doesn't limit its width, because each line is cut before it is added.
    let mut page = Page::new(Form::Text(usize::MAX));
    if rows.is_empty() {
        let shown = directory.display();
        page.line(&match FoundRun::at(directory) {
            Some(_) => format!("{shown} is a run itself: tprof report {shown}"),
            None => format!("no run in {shown}"),
        });
        return page.into_text();
    }
    let run_columns = rows.iter().map(|row| width(&row.path.to_string_lossy())).max();
    let run_columns = run_columns.unwrap_or(0).max("run".len());
    let run = left("run", run_columns);
    let headings = [
        ("when", true),
        ("took", false),
        ("ranks", false),
        ("size", false),
        ("lost", false),
        (run.as_str(), false),
        ("command", true),
    ];
    let mut table = Table::aligned(&headings);
    for row in rows {
        table.row(row.cells(run_columns));
    }
    table.fill_last(columns, |room| {
        // If there isn't enough room, each command has its own line.
        let room = if room > LEAST_COMMAND { room } else { columns - INDENT };
        rows.iter().map(|row| cut(&shown_command(&row.command), room)).collect()
    });
    // The finding of a run follows the last line of its row, which has one or two lines.
    let lines = table.lines(columns);
    let per_row = (lines.len() - 1) / rows.len();
    page.line(&lines[0]);
    for (row, lines) in rows.iter().zip(lines[1..].chunks(per_row)) {
        for line in lines {
            page.line(line);
        }
        if let Some(why) = &row.unreadable {
            page.line(&shorten(&format!("{:INDENT$}UNKNOWN what was lost: {why}", ""), columns));
        }
        if let Some(left_out) = row.left_out {
            page.line(&format!("{:INDENT$}{left_out}", ""));
        }
        if let Some(Some(worst)) = row.worst.value() {
            let severity = worst.severity.to_uppercase();
            let at = if worst.place.is_empty() { "" } else { ", " };
            let rule = format!("{severity} {}{at}{}", worst.rule, worst.place);
            page.line(&cut(&format!("{:INDENT$}{rule}: {}", "", worst.what), columns));
        }
    }
    paint::severities(&page.into_text())
}

/// Joins the words of a command, without the directory of its program.
fn shown_command(command: &[String]) -> String {
    // An imported trace has no command, nor has a job that `tprof env` records.
    if command.is_empty() {
        return "-".to_owned();
    }
    let mut words = command.iter().map(String::as_str);
    let program = words.next().map(base_name).unwrap_or_default();
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

/// Formats how long ago a moment was.
fn ago(unix_ns: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = now.saturating_sub(unix_ns / 1_000_000_000);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

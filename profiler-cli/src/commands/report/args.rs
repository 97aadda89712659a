//! Parses `tprof report [KIND] RUN`: finds out which of the words is the kind of report and which
//! is the run.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use tprof_document::{SortBy, Window};
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::steps::StepSource;
use tprof_facts::units::parse_duration;
use tprof_ui::errors::{Failure, nearest};
use tprof_ui::newest;

use super::kinds::{kinds_help, report_kind_names, report_kinds};
use crate::cli::usage::two_runs;
use crate::commands::steps_from::steps_from;
use crate::runs::failure::reversed_times;

/// `tprof report` as typed: a kind and a run, in either order; either may be left out.
#[derive(Args, Debug)]
#[command(
    override_usage = "tprof report [OPTIONS] [KIND[,KIND...]] [RUN]",
    after_help = kinds_help()
)]
pub struct ReportWords {
    /// Run directory or rank file; without one, the newest run in this directory
    #[arg(num_args = 0..=2, value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub words: Vec<OsString>,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print the JSON Schema of every --json output: of all reports, diff, compare, ls
    /// and ctl snapshot
    #[arg(long, exclusive = true)]
    pub schema: bool,
    /// Print Markdown for a GitHub comment (at most 60,000 characters)
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub markdown: bool,
    /// Print one table as CSV: the first one, or the one named by --table
    #[arg(long)]
    pub csv: bool,
    /// Table that --csv prints; an unknown name lists all names
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// With --csv: write every table into this directory, as KIND.TABLE.csv
    #[arg(short, long, value_name = "DIR", conflicts_with = "table", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Number of rows to print per table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Report only this rank
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Compute figures as Holistic Trace Analysis 0.5.0 does: in whole
    /// microseconds, without the last step (docs/metrics.md)
    #[arg(long)]
    pub hta: bool,
    /// Where training steps come from: auto, explicit, profiler, optimizer, loader,
    /// inferred
    #[arg(long, value_name = "SOURCE")]
    pub steps_from: Option<String>,
    /// Leave out warm-up and steps in which torch.compile compiled (steps)
    #[arg(long)]
    pub steady: bool,
    /// Report only this cycle of a schedule or this captured range, counted from 1
    #[arg(long, value_name = "N", conflicts_with_all = ["from_time", "to_time"])]
    pub cycle: Option<u32>,
    /// Report only what begins at or after this time since the start of the run
    #[arg(long, value_name = "TIME")]
    pub from_time: Option<String>,
    /// Report only what begins before this time
    #[arg(long, value_name = "TIME")]
    pub to_time: Option<String>,
    /// Times of this machine's monotonic clock in nanoseconds: makes the live run write its data,
    /// and reports only that part, including device work that the program waited for until DEVICES.
    /// Programs use it to report on themselves, by tprof's modules
    #[arg(long, value_name = "FROM:TO[:DEVICES]", hide = true, conflicts_with_all = ["from_time", "to_time", "cycle"])]
    pub of_clock: Option<String>,
    /// Report only operators with this text in their names (sequences)
    #[arg(long, value_name = "TEXT")]
    pub operator: Option<String>,
    /// Report only what happened inside the Nth range (from 0) with this text in its
    /// name (critical-path, cpu); without :N, inside every such range (cpu only)
    #[arg(long, value_name = "TEXT[:N]")]
    pub within: Option<String>,
    /// Show time by source line, with the text of files that did not change since (cpu)
    #[arg(long)]
    pub lines: bool,
    /// Sort functions and lines by self, total or waited time (cpu) [default: self]
    #[arg(long, value_name = "KEY")]
    pub sort: Option<String>,
    /// Show only your own code, which is outside site-packages, Python's standard
    /// library and system directories (cpu)
    #[arg(long)]
    pub mine: bool,
    /// Show why warps of kernels waited, and where, in place of their times (kernels)
    #[arg(long)]
    pub stalls: bool,
    /// Show only threads with this text in their names, with this id, or `main` (cpu)
    #[arg(long, value_name = "TEXT")]
    pub thread: Option<String>,
    /// Peak rates of the device per second, instead of tprof's table: fp32, tf32, bf16,
    /// fp16, fp8, memory, link… (roofline, flops, gemms, operators, steps)
    #[arg(long, value_name = "TYPE=N[G|T|P],…")]
    pub peaks: Option<String>,
}

/// Arguments of `tprof report`, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportArgs {
    /// Kinds of report, from [`report_kinds`]: at least one, each once.
    pub kinds: Vec<String>,
    /// Run directory, or one of its files.
    pub path: PathBuf,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to print Markdown.
    pub markdown: bool,
    /// Whether to print CSV.
    pub csv: bool,
    /// Table to print as CSV.
    pub table: Option<String>,
    /// Directory to write all tables to as CSV.
    pub output: Option<PathBuf>,
    /// Number of rows per table.
    pub top: usize,
    /// The only rank to report; `None` for all.
    pub rank: Option<u32>,
    /// Whether to compute figures as Holistic Trace Analysis does.
    pub hta: bool,
    /// Source of training steps.
    pub steps_from: Option<StepSource>,
    /// Whether to leave out warm-up and steps in which functions were compiled.
    pub steady: bool,
    /// The only cycle to report; `None` for all.
    pub cycle: Option<u32>,
    /// The only part of the run's time to report. If its times are on the host's clock, the run is
    /// live and writes its data first.
    pub window: Option<Window>,
    /// Text that the names of operators must contain.
    pub operator: Option<String>,
    /// The range to report within.
    pub within: Option<String>,
    /// Whether to report time by source line.
    pub lines: bool,
    /// Key by which functions and lines are sorted.
    pub sort: Option<SortBy>,
    /// Whether to report only the user's own code.
    pub mine: bool,
    /// Whether to report why warps of kernels waited.
    pub stalls: bool,
    /// Name, tid or `main` of the threads to report.
    pub thread: Option<String>,
    /// Peak rates of the device; `None` for those of tprof's table.
    pub peaks: Option<Peaks>,
}

impl ReportWords {
    /// Finds out which word is the kind and which is the run. Fails for an unknown kind.
    pub fn resolve(self) -> Result<ReportArgs, Failure> {
        self.check_csv()?;
        let summary = || vec!["summary".to_owned()];
        let (kinds, path) = match self.words.as_slice() {
            [] => (summary(), None),
            [word] => match kinds_in(word) {
                _ if PathBuf::from(word).exists() => (summary(), Some(word)),
                Some(kinds) => (kinds, None),
                None if is_near_a_kind(word) => return Err(neither_kind_nor_run(word)),
                None => (summary(), Some(word)),
            },
            [one, other] => match (kinds_in(one), kinds_in(other)) {
                (Some(kinds), _) => (kinds, Some(other)),
                (None, Some(kinds)) => (kinds, Some(one)),
                // Neither word is a kind. The one that is not a path was probably meant as the
                // kind.
                (None, None) if PathBuf::from(one).exists() && PathBuf::from(other).exists() => {
                    return Err(two_runs(&other.to_string_lossy()));
                }
                (None, None) if PathBuf::from(one).exists() => return Err(unknown_kind(other)),
                (None, None) => return Err(unknown_kind(one)),
            },
            // clap limits the number of words only if there are no options between them.
            [.., last] => {
                return Err(Failure::new(format!("unexpected `{}`", last.display()))
                    .cause("a report has kinds and one run; --lines, --mine and --stalls take no value")
                    .hint("tprof report KIND RUN"));
            }
        };
        let path = match path {
            Some(path) => PathBuf::from(path),
            None => newest::run_here("tprof report", "report")?,
        };
        let sort = self.sort.as_deref().map(sort_key).transpose()?;
        let Self {
            json,
            markdown,
            csv,
            table,
            output,
            top,
            rank,
            hta,
            steady,
            cycle,
            operator,
            within,
            ..
        } = self;
        let (lines, mine, thread) = (self.lines, self.mine, self.thread);
        let stalls = self.stalls;
        let steps_from = steps_from(self.steps_from.as_deref())?;
        let peaks = self.peaks.as_deref().map(peaks).transpose()?;
        let window = match self.of_clock.as_deref() {
            Some(text) => Some(of_clock(text)?),
            None => of_run(self.from_time.as_deref(), self.to_time.as_deref())?,
        };
        if kinds.len() > 1 && csv && output.is_none() {
            return Err(Failure::new("several reports do not fit into one CSV table")
                .cause("each report has its own tables")
                .hint("-o DIR, to write each table into a file"));
        }
        Ok(ReportArgs {
            kinds,
            path,
            json,
            markdown,
            csv,
            table,
            output,
            top,
            rank,
            hta,
            steady,
            steps_from,
            cycle,
            window,
            operator,
            within,
            lines,
            sort,
            mine,
            stalls,
            thread,
            peaks,
        })
    }

    /// Refuses options that need `--csv`. clap could do so, but without the reason.
    fn check_csv(&self) -> Result<(), Failure> {
        match (&self.output, &self.table) {
            _ if self.csv => Ok(()),
            (Some(_), _) => Err(Failure::new("`-o` needs --csv")
                .cause("it names a directory for tables as CSV files; every other form is printed")
                .hint("tprof report RUN --csv -o DIR, or tprof report RUN > FILE")),
            (None, Some(_)) => Err(table_without_csv("tprof report KIND RUN")),
            (None, None) => Ok(()),
        }
    }
}

/// Returns the error for `--table` in a form that prints all tables.
pub fn table_without_csv(command: &str) -> Failure {
    Failure::new("`--table` needs --csv")
        .cause("it selects the table that --csv prints; every other form has all tables")
        .hint(format!("{command} --csv --table NAME"))
}

/// Returns the kinds that a word names: one, several separated by commas, or `all`; `None` if it
/// isn't such a word.
fn kinds_in(word: &OsStr) -> Option<Vec<String>> {
    if word == "all" {
        return Some(report_kinds().map(|(kind, _)| kind.to_owned()).collect());
    }
    let mut kinds: Vec<String> = Vec::new();
    for name in word.to_str()?.split(',') {
        report_kinds().find(|(kind, _)| *kind == name)?;
        if !kinds.iter().any(|kind| kind == name) {
            kinds.push(name.to_owned());
        }
    }
    Some(kinds)
}

/// Parses the value of `--sort`.
fn sort_key(word: &str) -> Result<SortBy, Failure> {
    if let Some((_, key)) = SortBy::NAMES.iter().find(|(name, _)| *name == word) {
        return Ok(*key);
    }
    let names = SortBy::NAMES.map(|(name, _)| name);
    let right = nearest(word, names).unwrap_or(names[0]);
    Err(Failure::new(format!("unknown sort key `{word}`"))
        .cause(format!("the keys are {}", names.join(", ")))
        .hint(format!("--sort {right}")))
}

/// Parses the values of `--from-time` and `--to-time`.
fn of_run(from: Option<&str>, to: Option<&str>) -> Result<Option<Window>, Failure> {
    let time = |option: &str, text: &str| match parse_duration(text) {
        Some(time) => Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        None => Err(Failure::new(format!("bad value `{text}` for --{option}"))
            .cause("the value is not a time")
            .hint(format!("--{option}=1.5s"))),
    };
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let from_ns = from.map_or(Ok(0), |text| time("from-time", text))?;
    let to_ns = to.map_or(Ok(u64::MAX), |text| time("to-time", text))?;
    match from_ns < to_ns {
        true => Ok(Some(Window::OfRun(from_ns, to_ns))),
        false => Err(reversed_times(from_ns, to_ns)),
    }
}

/// Parses the value of `--of-clock`.
fn of_clock(text: &str) -> Result<Window, Failure> {
    let times: Option<Vec<u64>> = text.split(':').map(|time| time.parse().ok()).collect();
    let window = times.and_then(|times| match times[..] {
        [from_ns, to_ns] => Some(Window::OfProgram { from_ns, to_ns, device_until_ns: None }),
        [from_ns, to_ns, until] => {
            Some(Window::OfProgram { from_ns, to_ns, device_until_ns: Some(until) })
        }
        _ => None,
    });
    window.ok_or_else(|| {
        Failure::new(format!("bad value `{text}` for --of-clock"))
            .cause("the value is not FROM:TO[:DEVICES] in nanoseconds")
            .hint("--from-time 1s --to-time 2s")
    })
}

/// Parses the value of `--peaks`.
fn peaks(text: &str) -> Result<Peaks, Failure> {
    Peaks::parse(text).map_err(|why| {
        Failure::new(format!("cannot read the peaks `{text}`"))
            .cause(why)
            .hint("--peaks bf16=989T,fp32=67T,memory=3.35T")
    })
}

/// Whether a word that is not a path is probably a kind of report rather than a run.
fn is_near_a_kind(word: &OsStr) -> bool {
    let names = report_kind_names();
    word.to_str().is_some_and(|word| {
        word.split(',')
            .all(|name| names.contains(&name) || nearest(name, names.iter().copied()).is_some())
    })
}

/// Returns the error for a single word that is similar to a kind.
fn neither_kind_nor_run(word: &OsStr) -> Failure {
    let mut failure = unknown_kind(word);
    failure.cause = failure.cause.map(|kinds| format!("there is no such run either; {kinds}"));
    failure
}

fn unknown_kind(word: &OsStr) -> Failure {
    let word = word.to_string_lossy();
    let names = report_kind_names();
    let unknown = word.split(',').find(|name| !names.contains(name)).unwrap_or(&word);
    Failure::new(format!("unknown report kind `{unknown}`"))
        .cause(format!("the kinds are {}, or all", names.join(", ")))
        .hint(match nearest(unknown, names.iter().copied()) {
            Some(kind) => format!("tprof report {} RUN", word.replace(unknown, kind)),
            None => "tprof report --help".to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, parse_from};

    fn resolve(words: &[&str]) -> Result<ReportArgs, Failure> {
        let words = [&["tprof", "report"], words].concat();
        match parse_from(words).unwrap() {
            Cli { command: Command::Report(words) } => words.resolve(),
            _ => panic!("not `report`"),
        }
    }

    #[test]
    fn each_kind_has_a_line_of_its_own_in_the_help() {
        for line in kinds_help().lines() {
            assert!(line.chars().count() <= 80, "wrapped: {line}");
        }
    }

    #[test]
    fn one_word_is_the_run_and_two_are_kind_and_run_in_either_order() {
        let args = resolve(&["r1"]).unwrap();
        assert_eq!((args.kinds, args.path), (vec!["summary".to_owned()], PathBuf::from("r1")));
        for words in [["memory", "r1"], ["r1", "memory"]] {
            let args = resolve(&words).unwrap();
            assert_eq!((args.kinds, args.path), (vec!["memory".to_owned()], PathBuf::from("r1")));
        }
    }

    #[test]
    fn several_kinds_are_listed_once_each() {
        let kinds = |word| resolve(&[word, "r1"]).unwrap().kinds;
        assert_eq!(kinds("steps,kernels,steps"), ["steps", "kernels"]);
        assert_eq!(kinds("all").len(), report_kinds().count());
        let failure = resolve(&["steps,kernel", "r1"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `kernel`");
        assert_eq!(failure.hint.as_deref(), Some("tprof report steps,kernels RUN"));
    }

    #[test]
    fn an_unknown_kind_suggests_the_most_similar_one() {
        let failure = resolve(&["memroy", "r1"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `memroy`");
        assert_eq!(failure.hint.as_deref(), Some("tprof report memory RUN"));
        let failure = resolve(&[".", "memroy"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `memroy`");
    }

    #[test]
    fn a_misspelt_kind_is_recognized_if_no_run_has_that_name() {
        let failure = resolve(&["memroy"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `memroy`");
        let cause = failure.cause.unwrap();
        assert!(
            cause.starts_with("there is no such run either; the kinds are summary, "),
            "{cause}"
        );
        assert_eq!(failure.hint.as_deref(), Some("tprof report memory RUN"));
        assert_eq!(resolve(&["steps,kernel"]).unwrap_err().what, "unknown report kind `kernel`");
        for run in ["r7", "runs/memroy", "tprof-train-20260101"] {
            assert_eq!(resolve(&[run]).unwrap().path, PathBuf::from(run));
        }
    }

    #[test]
    fn options_that_need_csv_are_refused_with_the_reason() {
        let failure = resolve(&["memory", "r1", "-o", "r.txt"]).unwrap_err();
        assert_eq!(failure.what, "`-o` needs --csv");
        assert!(failure.cause.unwrap().starts_with("it names a directory for tables as CSV"));
        assert!(failure.hint.unwrap().ends_with("tprof report RUN > FILE"));
        let failure = resolve(&["memory", "r1", "--table", "sites"]).unwrap_err();
        assert_eq!(failure.what, "`--table` needs --csv");
        assert!(resolve(&["memory", "r1", "--csv", "-o", "tables"]).is_ok());
    }

    #[test]
    fn a_third_word_behind_an_option_is_refused() {
        let failure = resolve(&["cpu", "r1", "--lines", "train"]).unwrap_err();
        assert_eq!(failure.what, "unexpected `train`");
    }

    #[test]
    fn invalid_peaks_are_quoted_in_the_error() {
        let peaks = |text| resolve(&["roofline", "r1", "--peaks", text]);
        assert_eq!(peaks("bf16=2T").unwrap().peaks.unwrap().bf16, Some(2e12));
        let failure = peaks("bf16=fast").unwrap_err();
        assert_eq!(failure.what, "cannot read the peaks `bf16=fast`");
        assert_eq!(
            failure.cause.as_deref(),
            Some("`fast` is not a number above 0 followed by G, T or P")
        );
    }

    #[test]
    fn an_unknown_sort_key_suggests_the_most_similar_one() {
        assert_eq!(resolve(&["cpu", "r1", "--sort", "total"]).unwrap().sort, Some(SortBy::Total));
        let failure = resolve(&["cpu", "r1", "--sort", "wait"]).unwrap_err();
        assert_eq!(failure.what, "unknown sort key `wait`");
        assert_eq!(failure.cause.as_deref(), Some("the keys are self, total, waited"));
        assert_eq!(failure.hint.as_deref(), Some("--sort waited"));
    }
}

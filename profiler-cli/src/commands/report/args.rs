//! `tprof report [KIND] RUN`: which word is the kind, and which the run.

use super::kinds::{kinds_help, report_kind_names, report_kinds};
use crate::terminal::errors::{Failure, nearest};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// `tprof report` as typed: one word is the run, two are the kind and the run.
#[derive(Args, Debug)]
#[command(
    override_usage = "tprof report [OPTIONS] [KIND[,KIND...]] RUN",
    after_help = kinds_help()
)]
pub struct ReportWords {
    /// Run directory or rank file; put KIND before it
    #[arg(required = true, num_args = 1..=2, value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub words: Vec<OsString>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print one table as CSV: the first, or that of --table
    #[arg(long)]
    pub csv: bool,
    /// Table for --csv; an unknown name lists all names
    #[arg(long, value_name = "NAME", requires = "csv")]
    pub table: Option<String>,
    /// Directory for all tables as CSV files, KIND.TABLE.csv
    #[arg(short, long, value_name = "DIR", requires = "csv", conflicts_with = "table", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Only this rank
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Compute as Holistic Trace Analysis 0.5.0: whole microseconds, without the
    /// last step (docs/metrics.md)
    #[arg(long)]
    pub hta: bool,
    /// Only operators with this text in their names (sequences)
    #[arg(long, value_name = "TEXT")]
    pub operator: Option<String>,
    /// Only inside the Nth range (from 0) with this text in its name (critical-path,
    /// cpu); omit :N to include every match (cpu only)
    #[arg(long, value_name = "TEXT[:N]")]
    pub within: Option<String>,
}

/// `tprof report`, with kinds and run separated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportArgs {
    /// Of [`report_kinds`], without repetition: at least one.
    pub kinds: Vec<String>,
    /// Run directory, or one of its files.
    pub path: PathBuf,
    /// Print JSON.
    pub json: bool,
    /// Print CSV.
    pub csv: bool,
    /// Table that CSV prints.
    pub table: Option<String>,
    /// Directory for all tables as CSV.
    pub output: Option<PathBuf>,
    /// Rows in each table.
    pub top: usize,
    /// Only this rank.
    pub rank: Option<u32>,
    /// As Holistic Trace Analysis reads the trace.
    pub hta: bool,
    /// Only operators with this text in their names.
    pub operator: Option<String>,
    /// Only within this range.
    pub within: Option<String>,
}

impl ReportWords {
    /// Separates kind and run, and refuses a kind that does not exist.
    pub fn resolve(self) -> Result<ReportArgs, Failure> {
        let (kinds, path) = match self.words.as_slice() {
            [word] if kinds_in(word).is_some() && !PathBuf::from(word).exists() => {
                let kind = word.to_string_lossy();
                return Err(Failure::new(format!("no run given to `tprof report {kind}`"))
                    .cause("a report needs a run directory or one of its files")
                    .hint(format!("tprof report {kind} RUN")));
            }
            [path] => (vec!["summary".to_owned()], path),
            [kind, path] => match (kinds_in(kind), kinds_in(path)) {
                (Some(kinds), _) => (kinds, path),
                (None, Some(_)) => {
                    let (kind, path) = (path.to_string_lossy(), kind.to_string_lossy());
                    return Err(Failure::new(format!("unknown report kind `{path}`"))
                        .cause("the kind comes before the run")
                        .hint(format!("tprof report {kind} {path}")));
                }
                (None, None) => return Err(unknown_kind(kind)),
            },
            _ => unreachable!("clap requires one word or two"),
        };
        let path = PathBuf::from(path);
        let Self { json, csv, table, output, top, rank, hta, operator, within, .. } = self;
        if kinds.len() > 1 && csv && output.is_none() {
            return Err(Failure::new("several reports do not fit into one CSV table")
                .cause("each report has its own tables")
                .hint("-o DIR, to write each table into a file"));
        }
        Ok(ReportArgs { kinds, path, json, csv, table, output, top, rank, hta, operator, within })
    }
}

/// The kinds that a word names: one, several with commas between, or `all`.
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

    fn resolve(words: &[&str]) -> Result<ReportArgs, Failure> {
        let words = words.iter().map(OsString::from).collect();
        let words = ReportWords {
            words,
            json: false,
            csv: false,
            table: None,
            output: None,
            top: 10,
            rank: None,
            hta: false,
            operator: None,
            within: None,
        };
        words.resolve()
    }

    #[test]
    fn each_kind_has_a_line_of_its_own_in_the_help() {
        for line in kinds_help().lines() {
            assert!(line.chars().count() <= 80, "wrapped: {line}");
        }
    }

    #[test]
    fn one_word_is_the_run_and_two_are_kind_and_run() {
        let args = resolve(&["r1"]).unwrap();
        assert_eq!((args.kinds, args.path), (vec!["summary".to_owned()], PathBuf::from("r1")));
        let args = resolve(&["memory", "r1"]).unwrap();
        assert_eq!((args.kinds, args.path), (vec!["memory".to_owned()], PathBuf::from("r1")));
    }

    #[test]
    fn several_kinds_are_reported_once_each() {
        let kinds = |word| resolve(&[word, "r1"]).unwrap().kinds;
        assert_eq!(kinds("steps,kernels,steps"), ["steps", "kernels"]);
        assert_eq!(kinds("all").len(), report_kinds().count());
        let failure = resolve(&["steps,kernel", "r1"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `kernel`");
        assert_eq!(failure.hint.as_deref(), Some("tprof report steps,kernels RUN"));
        assert_eq!(resolve(&["all"]).unwrap_err().what, "no run given to `tprof report all`");
    }

    #[test]
    fn a_kind_that_does_not_exist_is_named_with_the_nearest() {
        let failure = resolve(&["memroy", "r1"]).unwrap_err();
        assert_eq!(failure.what, "unknown report kind `memroy`");
        assert_eq!(failure.hint.as_deref(), Some("tprof report memory RUN"));
    }

    #[test]
    fn a_kind_without_a_run_and_words_in_the_wrong_order_are_reported() {
        assert_eq!(resolve(&["memory"]).unwrap_err().what, "no run given to `tprof report memory`");
        let failure = resolve(&["r1", "memory"]).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("tprof report memory r1"));
    }
}

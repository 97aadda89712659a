//! Decides which words of the command line are runs, and which is the query.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tprof_tables::name_of;
use tprof_trace::RunDir;
use tprof_ui::errors::Failure;
use tprof_ui::newest;

use crate::archive::location::Location;
use crate::functions::report::ReportRun;
use crate::status::MISUSE;
use crate::tables::dataset::ABOUT_FILE;

/// The classified words of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Runs and data sets.
    pub paths: Vec<PathBuf>,
    /// Text of the query.
    pub query: Option<String>,
}

/// Words that statements begin with.
const BEGINNINGS: [&str; 23] = [
    "alter", "analyze", "copy", "create", "delete", "desc", "describe", "drop", "execute",
    "explain", "from", "insert", "merge", "prepare", "reset", "select", "set", "show", "table",
    "truncate", "update", "values", "with",
];

/// Whether a word is a statement, even if a file has the same name. A user can still name the file
/// `with` by its path `./with`.
fn is_statement(word: &str) -> bool {
    if word.starts_with(['/', '.']) {
        return false;
    }
    let word = word.trim_start();
    let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
    let first = word[..end.unwrap_or(word.len())].to_lowercase();
    word.contains(char::is_whitespace)
        || BEGINNINGS.contains(&first.as_str())
        || word.starts_with("--")
        || word.starts_with('(')
}

/// Classifies the words of a command line.
pub fn classify(words: &[OsString], has_file: bool) -> Result<CommandLine, Failure> {
    let mut divided = CommandLine::default();
    for word in words {
        let statement = word.to_str().filter(|word| is_statement(word));
        match (statement, &divided.query) {
            (Some(_), Some(_)) => {
                return Err(Failure::new("two queries")
                    .cause("the command line has one query; a query may have several statements")
                    .hint("tprof sql RUN \"SELECT …; SELECT …\"")
                    .code(MISUSE));
            }
            (Some(statement), None) => divided.query = Some(statement.to_owned()),
            (None, _) => divided.paths.push(word.into()),
        }
    }
    if has_file && divided.query.is_some() {
        return Err(Failure::new("a query and --file")
            .cause("statements come from one place")
            .hint("put the query into the file")
            .code(MISUSE));
    }
    Ok(divided)
}

/// The sources of data.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Run directories and trace files.
    pub runs: Vec<ReportRun>,
    /// Data sets, with the names of their runs.
    pub sets: Vec<(String, PathBuf)>,
    /// Archives as they were typed.
    pub archives: Vec<PathBuf>,
    /// Paths that were repeated, and count only once.
    pub again: Vec<PathBuf>,
    /// IDs of the runs to read from archives; empty for all.
    pub only: Vec<String>,
}

impl Sources {
    /// Finds the runs, data sets and archives at these paths.
    pub fn of(paths: &[PathBuf]) -> Result<Sources, Failure> {
        let mut sources = Sources::default();
        let mut there = BTreeSet::new();
        for path in paths {
            match there.insert(identity(path)) {
                true => sources.add(path)?,
                false => sources.again.push(path.clone()),
            }
        }
        Ok(sources)
    }

    /// Restricts archives to the runs with these IDs. An empty list means all runs.
    pub fn only(mut self, ids: &[String]) -> Result<Sources, Failure> {
        if !ids.is_empty() && self.archives.is_empty() {
            return Err(Failure::new("--run needs an archive")
                .cause("it is the ID of a run in one; no archive is named")
                .hint("tprof sql DIR|URL --run ID \"SELECT …\"")
                .code(MISUSE));
        }
        self.only = ids.to_vec();
        Ok(self)
    }

    /// Returns the run of this directory, or the newest run in it; `None` if there is none.
    pub fn here() -> Result<Sources, Failure> {
        let found = newest::runs_in(Path::new(".")).is_ok_and(|runs| !runs.is_empty());
        if !found && newest::FoundRun::at(Path::new(".")).is_none() {
            return Ok(Sources::default());
        }
        Sources::of(&[newest::run_here("tprof sql", "tables")?])
    }

    /// Whether there is nothing to query.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.sets.is_empty() && self.archives.is_empty()
    }

    /// Returns the name, with a number added if another run has it.
    fn free_name(&self, name: String) -> String {
        let is_taken = |name: &str| self.runs.iter().any(|run| run.name == name);
        let mut names = (2..).map(|number| format!("{name}#{number}"));
        match is_taken(&name) {
            true => names.find(|name| !is_taken(name)).unwrap_or_default(),
            false => name,
        }
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let misuse = |what: String, why: String, hint: &str| {
            Err(Failure::new(what).cause(why).hint(hint).code(MISUSE))
        };
        let shown = path.display();
        if Location::is_address(path.as_os_str()) || Location::is_archive(path) {
            self.archives.push(path.to_owned());
            return Ok(());
        }
        if !path.exists() {
            return misuse(
                format!("there is no run `{shown}`"),
                "a word without white space is the path of a run, unless it begins like a statement"
                    .to_owned(),
                "tprof ls; tprof sql RUN \"SELECT …\"",
            );
        }
        if path.join(ABOUT_FILE).is_file() {
            let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            self.sets.push((name_of(path), absolute));
            return Ok(());
        }
        match RunDir::open(path) {
            Ok(_) => {
                let name = self.free_name(name_of(path));
                self.runs.push(ReportRun { name, path: path.to_owned() });
                Ok(())
            }
            Err(error) => misuse(
                format!("`{shown}` is not a run"),
                error.to_string(),
                "tprof ls; tprof import FILE -o RUN makes a run of another tool's trace",
            ),
        }
    }
}

/// Returns the canonical path, by which a run that is named twice is detected.
fn identity(path: &Path) -> PathBuf {
    match path.to_str().filter(|_| Location::is_address(path.as_os_str())) {
        Some(address) => address.trim_end_matches('/').into(),
        None => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(words: &[&str]) -> CommandLine {
        classify(&words.iter().map(OsString::from).collect::<Vec<_>>(), false).unwrap()
    }

    #[test]
    fn statements_and_paths_are_distinguished() {
        let query = |words| divided(words).query;
        assert_eq!(query(&["r1", "SELECT 1"]), Some("SELECT 1".to_owned()));
        assert_eq!(query(&["SELECT 1", "r1"]), Some("SELECT 1".to_owned()));
        assert_eq!(query(&["r1", "select(1)"]), Some("select(1)".to_owned()));
        assert_eq!(query(&["r1", "select"]), Some("select".to_owned()));
        assert_eq!(query(&["show\ttables"]), Some("show\ttables".to_owned()));
        assert_eq!(query(&["./with"]), None);
        assert_eq!(query(&["/runs/my run"]), None);
        assert_eq!(query(&["selected", "r1"]), None);
        assert_eq!(divided(&["r1", "r2"]).paths.len(), 2);
        assert_eq!(query(&["-- why\nSELECT 1"]), Some("-- why\nSELECT 1".to_owned()));
    }

    #[test]
    fn two_queries_are_refused() {
        let words = ["SELECT 1", "SELECT 2"].map(OsString::from);
        assert_eq!(classify(&words, false).unwrap_err().code, MISUSE);
    }
}

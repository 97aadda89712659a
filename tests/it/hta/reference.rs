//! Reads the results of Holistic Trace Analysis 0.5.0 on public traces, if they are on this
//! machine.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tprof_tests::{Refused, Scratch, tprof};

/// A table's rows by heading; the two lines of a two-line heading are joined by a dot.
pub type Rows = Vec<BTreeMap<String, String>>;

/// Returns the folder with traces (`kineto/SET`) and results (`hta-reference/SET`): the one that
/// `TPROF_SHARED_DATA` names, or one beside the repository.
fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("TPROF_SHARED_DATA").map_or(beside, PathBuf::from);
    folder.join("hta-reference").is_dir().then_some(folder)
}

/// One imported set of traces.
pub struct Set {
    pub name: String,
    pub run: PathBuf,
    results: PathBuf,
}

/// Returns every set, imported once, or a refusal if the data is not on this machine.
pub fn sets() -> Result<&'static [Set], Refused> {
    static SETS: OnceLock<Option<(Scratch, Vec<Set>)>> = OnceLock::new();
    let sets = SETS.get_or_init(|| {
        let folder = folder()?;
        let scratch = Scratch::new();
        let mut names: Vec<String> = std::fs::read_dir(folder.join("kineto"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let import = |name: String| {
            let run = scratch.join(&name);
            let traces = folder.join("kineto").join(&name);
            let job = tprof(["import", "-o"]).arg(&run).arg(traces);
            job.run_in(scratch.path()).expect_code(0);
            Set { results: folder.join("hta-reference").join(&name), name, run }
        };
        let sets: Vec<Set> = names.into_iter().map(import).collect();
        Some((scratch, sets))
    });
    match sets {
        Some((_, sets)) => Ok(sets),
        None => Err(Refused::RealTraces),
    }
}

impl Set {
    /// Returns the tables of a report, with the trace read as HTA reads it.
    pub fn report(&self, kind: &str, rank: Option<&str>) -> Value {
        match rank {
            Some(rank) => self.report_with(kind, &["--rank", rank]),
            None => self.report_with(kind, &[]),
        }
    }

    /// Does the same as [`report`](Self::report), with more arguments.
    pub fn report_with(&self, kind: &str, arguments: &[&str]) -> Value {
        let mut job = tprof(["report", kind, "--hta", "--json"]);
        for argument in arguments {
            job = job.arg(argument);
        }
        let outcome = job.arg(&self.run).run_in(self.run.parent().unwrap()).expect_code(0);
        serde_json::from_str::<Value>(&outcome.stdout).unwrap()["tables"].take()
    }

    /// Returns a JSON result of HTA, or `None` if HTA failed on this set.
    pub fn json(&self, name: &str) -> Option<Value> {
        let text = std::fs::read_to_string(self.results.join(name)).ok()?;
        serde_json::from_str(&text).ok().filter(|value: &Value| !value.is_null())
    }

    /// Returns a result of HTA, or `None` if HTA failed on this set.
    pub fn result(&self, name: &str) -> Option<Rows> {
        let plain = self.results.join(name);
        let packed = self.results.join(format!("{name}.gz"));
        let text = if plain.exists() {
            std::fs::read_to_string(plain).unwrap()
        } else if packed.exists() {
            let output = Command::new("gzip").arg("-dc").arg(packed).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        } else {
            return None;
        };
        let mut records = records(&text).into_iter();
        let mut headings = records.next()?;
        let mut rest: Vec<Vec<String>> = records.collect();
        // The file has two lines of headings, and then a line with the names of the index.
        if name.ends_with("_summary.csv") && rest.len() >= 2 {
            headings = rest.remove(0);
            for (heading, index) in headings.iter_mut().zip(rest.remove(0)) {
                *heading += &index;
            }
        }
        let row = |cells: Vec<String>| headings.iter().cloned().zip(cells).collect();
        Some(rest.into_iter().map(row).collect())
    }

    /// Returns the results of HTA for each rank, from `NAME.rankN.csv`.
    pub fn by_rank(&self, name: &str) -> Vec<(String, Rows)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.results).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let rank = file.strip_prefix(name).and_then(|rest| rest.strip_prefix(".rank"));
            if let Some((rank, _)) = rank.and_then(|rest| rest.split_once(".csv")) {
                let file = file.strip_suffix(".gz").unwrap_or(&file);
                found.push((rank.to_owned(), self.result(file).unwrap()));
            }
        }
        found
    }
}

/// Returns the records of a CSV file (RFC 4180).
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut cell)),
            '\r' if !quoted => (),
            '\n' if !quoted => {
                record.push(std::mem::take(&mut cell));
                records.push(std::mem::take(&mut record));
            }
            letter => cell.push(letter),
        }
    }
    records
}

/// Returns a cell as a number; 0 if HTA wrote none.
pub fn number(row: &BTreeMap<String, String>, key: &str) -> f64 {
    let text = row.get(key).unwrap_or_else(|| panic!("no {key} in {row:?}"));
    if text.is_empty() { 0.0 } else { text.parse().unwrap_or_else(|_| panic!("{key}: {text}")) }
}

/// Asserts that two numbers agree within a thousandth, or within the rounding of HTA's output.
pub fn near(found: f64, expected: f64, rounded: f64, what: &str) {
    let allowed = (expected.abs() / 1000.0).max(rounded);
    assert!((found - expected).abs() <= allowed, "{what}: {found}, HTA has {expected}");
}

/// Returns a cell in nanoseconds, converted to microseconds; 0 if the cell is empty.
pub fn us(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(0.0) / 1000.0
}

/// Returns the rows of a report's table, each with its rank.
pub fn rows<'a>(tables: &'a Value, table: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let rows = tables[table].as_array().into_iter().flatten();
    rows.map(|row| (row["rank"].as_str().unwrap_or("").trim_start_matches("rank "), row))
}

//! Queries that `tprof-sql` executes on an archive, and their results.

use std::ffi::OsString;
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::address::Address;
use super::list::List;
use crate::failure::Failure;
use crate::work::{Job, JobQueue, Output, Priority};

/// Longest output of `tprof-sql` to read, bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Threads of a query over a directory: few, but enough for a page to appear quickly.
const THREADS: u32 = 4;
/// Threads of a query over a store. There are more, because they mostly wait for the network.
const THREADS_OF_STORE: u32 = 16;
/// A query may use this fraction (1/N) of a child's memory for sorts and sums. The rest is for code
/// and buffers.
const MEMORY_SHARE: u64 = 2;
/// Beginnings of error messages that concern only some objects or rows. The same query over fewer
/// runs may succeed.
const OF_RUNS: [&str; 4] = [
    "cannot read an object of an archive",
    "there is no run `",
    "the query failed",
    "the query needs more memory",
];

/// Sends queries about an archive.
#[derive(Debug)]
pub struct ArchiveQueries {
    jobs: Arc<JobQueue>,
    address: Address,
    memory_bytes: u64,
}

/// Results of statements: for each statement an array of rows, as JSON.
#[derive(Debug)]
pub struct Rows(Vec<Bytes>);

impl Rows {
    /// Returns the printed rows of a statement by its index.
    pub fn text(&self, at: usize) -> &[u8] {
        self.0.get(at).map_or(b"[]", |rows| rows)
    }

    /// Returns the parsed rows of a statement by its index.
    pub fn read<T: DeserializeOwned>(&self, at: usize) -> Result<Vec<T>, Failure> {
        serde_json::from_slice(self.text(at)).map_err(unread)
    }
}

/// Whether the same query over fewer runs may succeed.
pub fn may_succeed_with_fewer_runs(failure: &Failure) -> bool {
    OF_RUNS.iter().any(|what| failure.what.starts_with(what))
}

impl ArchiveQueries {
    /// Creates the sender for the archive at an address. Each child process may use `memory_bytes`
    /// of memory.
    pub fn new(jobs: Arc<JobQueue>, address: Address, memory_bytes: u64) -> ArchiveQueries {
        ArchiveQueries { jobs, address, memory_bytes }
    }

    /// Returns the location of the archive.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Lists all runs, which reads a file per run.
    pub async fn list(&self) -> Result<List, Failure> {
        let output = self.listed("--json").await?;
        serde_json::from_reader(output.reader()).map_err(unread)
    }

    /// Returns the sorted IDs of all runs, from file names alone.
    pub async fn ids(&self) -> Result<Vec<String>, Failure> {
        let text = self.listed("--ids").await?.read_all(MAX_BYTES).map_err(unread)?;
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    async fn listed(&self, how: &str) -> Result<Output, Failure> {
        let mut list = OsString::from("--list=");
        list.push(&self.address.word);
        self.jobs
            .run_uncached(&["archive".into(), list, how.into()])
            .await
            .map_err(explain_child_failure)
    }

    /// Executes statements over the runs with these IDs. The objects of other runs are not read.
    /// Results are cached, because an archived run never changes.
    pub async fn ask(
        &self,
        runs: &[&str],
        statements: &[String],
        priority: Priority,
    ) -> Result<Rows, Failure> {
        let threads = if self.address.is_store { THREADS_OF_STORE } else { THREADS };
        let memory = self.memory_bytes / MEMORY_SHARE;
        let mut words: Vec<OsString> = vec!["sql".into(), "--format=json".into()];
        words.push(format!("--threads={threads}").into());
        words.push(format!("--memory-limit={memory}").into());
        words.extend(runs.iter().map(|run| format!("--run={run}").into()));
        words.extend(["--".into(), self.address.word.clone(), statements.join(";\n").into()]);
        let output =
            self.jobs.get(Job::immutable(words, priority)).await.map_err(explain_child_failure)?;
        let text = output.read_all(MAX_BYTES).map_err(unread)?;
        // Each line is the result of one statement, because JSON escapes line ends within texts.
        let lines: Vec<Bytes> = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| text.slice_ref(line))
            .collect();
        match lines.len() == statements.len() {
            true => Ok(Rows(lines)),
            false => Err(unread("it has not a result for each statement")),
        }
    }
}

fn unread(why: impl std::fmt::Display) -> Failure {
    Failure::new("cannot read what tprof-sql printed", why)
        .status(StatusCode::BAD_GATEWAY)
        .hint("install tprof, tprof-serve and tprof-sql of one version, side by side")
}

/// Converts the failure of a child process to the failure to send: its HTTP status says that
/// something behind this server failed, not the server.
fn explain_child_failure(mut failure: Failure) -> Failure {
    if failure.status == StatusCode::UNPROCESSABLE_ENTITY {
        failure.status = StatusCode::BAD_GATEWAY;
    }
    if failure.what.starts_with("cannot make the ") {
        failure.what = "cannot read the archive".to_owned();
    }
    if failure.what.starts_with("unexpected argument") {
        return unread(failure.what);
    }
    failure
}

/// A row of a result that has one row per run.
#[derive(Debug, Deserialize)]
pub struct RunRow<T> {
    /// ID of the run.
    pub run: String,
    /// Figures of the run.
    #[serde(flatten)]
    pub figures: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_child_is_not_one_of_the_server() {
        let child = Failure::new("there is no bucket `jobs`", "the store does not know it")
            .status(StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(explain_child_failure(child).status, StatusCode::BAD_GATEWAY);
        let other = explain_child_failure(Failure::new("unexpected argument '--json' found", ""));
        assert!(other.hint.contains("of one version"), "{other:?}");
        assert!(may_succeed_with_fewer_runs(&Failure::new(OF_RUNS[0], "x")));
        assert!(!may_succeed_with_fewer_runs(&Failure::new(
            "cannot reach the store of s3://jobs",
            "x"
        )));
    }
}

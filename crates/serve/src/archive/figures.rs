//! Computes the figures of archived runs for the list. One child process computes those of many
//! runs.
//!
//! A damaged object makes a query over many runs fail. The query is then repeated for each half of
//! the runs, until only the damaged run is left. That run gets the reason instead of the figures
//! that need the object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Notify;

use super::list::ArchivedRun;
use super::queries::{ArchiveQueries, may_succeed_with_fewer_runs};
use super::run_totals::{KEYS, STATEMENTS, fill, read};
use crate::failure::Failure;
use crate::work::Priority;

/// Number of runs per child process for a directory. The number is limited so that the first
/// figures appear while others are computed.
const AT_ONCE: usize = 64;
/// Number of runs per child process for a store: one screen of runs, each of which takes some
/// twenty requests.
const AT_ONCE_OF_STORE: usize = 16;
/// A failed computation is retried after this time, if someone asks.
const AGAIN: Duration = Duration::from_secs(60);
/// A query is repeated for halves of the runs only if it failed within this time. A later failure
/// means that a store does not answer, so queries for the halves would take as long and fail too.
const SOON: Duration = Duration::from_secs(10);

/// Figures of a run, or why there are none.
#[derive(Debug)]
struct Summed {
    made: Result<Arc<Value>, Failure>,
    at: Instant,
}

impl Summed {
    /// Whether the result needs no new computation. A failure is retried after a while, because a
    /// store may answer again, or a lost object may be restored.
    fn is_settled(&self) -> bool {
        self.made.is_ok() || self.at.elapsed() < AGAIN
    }
}

/// Figures of runs, by ID.
#[derive(Debug, Default)]
pub struct RunFigures {
    known: Mutex<HashMap<String, Summed>>,
    wanted: Mutex<Vec<Arc<ArchivedRun>>>,
    asked: Notify,
}

impl RunFigures {
    /// Returns the figures of a run: `None` if they are not computed yet, and an error if they
    /// cannot be computed.
    pub fn of(&self, run: &ArchivedRun) -> Option<Result<Arc<Value>, Failure>> {
        lock(&self.known).get(&run.run).map(|known| known.made.clone())
    }

    /// Requests the figures that are missing, in the order of `runs`, and returns how many are
    /// missing.
    pub fn request_missing(&self, runs: &[Arc<ArchivedRun>]) -> usize {
        let known = lock(&self.known);
        let is_missing =
            |run: &&Arc<ArchivedRun>| known.get(&run.run).is_none_or(|known| !known.is_settled());
        let missing: Vec<_> = runs.iter().filter(is_missing).cloned().collect();
        let count = missing.len();
        *lock(&self.wanted) = missing;
        self.asked.notify_one();
        count
    }

    /// Computes requested figures, forever.
    pub async fn work(&self, queries: &ArchiveQueries) {
        let at_once = if queries.address().is_store { AT_ONCE_OF_STORE } else { AT_ONCE };
        loop {
            let some: Vec<Arc<ArchivedRun>> = {
                let mut wanted = lock(&self.wanted);
                let count = wanted.len().min(at_once);
                wanted.drain(..count).collect()
            };
            match some.is_empty() {
                true => self.asked.notified().await,
                false => self.make(queries, some).await,
            }
        }
    }

    async fn make(&self, queries: &ArchiveQueries, runs: Vec<Arc<ArchivedRun>>) {
        let mut parts = vec![runs];
        while let Some(part) = parts.pop() {
            let begun = Instant::now();
            let ids: Vec<&str> = part.iter().map(|run| &*run.run).collect();
            let statements = STATEMENTS.map(str::to_owned);
            let asked = queries.ask(&ids, &statements, Priority::Background).await;
            match asked.and_then(|rows| read(&rows)) {
                Ok(mut made) => self.keep(&part, |run| {
                    let made = made.remove(&run.run).unwrap_or_default();
                    Ok(Arc::new(made.figures(run)))
                }),
                Err(failure)
                    if part.len() > 1
                        && may_succeed_with_fewer_runs(&failure)
                        && begun.elapsed() < SOON =>
                {
                    let (first, rest) = part.split_at(part.len() / 2);
                    parts.extend([rest.to_vec(), first.to_vec()]);
                }
                Err(failure)
                    if part.len() == 1
                        && may_succeed_with_fewer_runs(&failure)
                        && begun.elapsed() < SOON =>
                {
                    let made = damaged(queries, &part[0], failure).await;
                    self.keep(&part, |_| made.clone());
                }
                Err(failure) => self.keep(&part, |_| Err(failure.clone())),
            }
        }
    }

    fn keep(
        &self,
        runs: &[Arc<ArchivedRun>],
        mut of: impl FnMut(&ArchivedRun) -> Result<Arc<Value>, Failure>,
    ) {
        let (mut known, at) = (lock(&self.known), Instant::now());
        for run in runs {
            known.insert(run.run.clone(), Summed { made: of(run), at });
        }
    }
}

/// Returns those figures of a run with a damaged object that can be computed from its other
/// objects.
async fn damaged(
    queries: &ArchiveQueries,
    run: &ArchivedRun,
    failure: Failure,
) -> Result<Arc<Value>, Failure> {
    let (mut all, mut lost) = (HashMap::new(), Vec::new());
    for (at, statement) in STATEMENTS.iter().enumerate() {
        let asked =
            queries.ask(&[&run.run], &[(*statement).to_owned()], Priority::Background).await;
        match asked.and_then(|rows| fill(&mut all, at, &rows, 0)) {
            Ok(()) => {}
            Err(failure) if may_succeed_with_fewer_runs(&failure) => lost.push(at),
            Err(failure) => return Err(failure),
        }
    }
    if lost.len() == STATEMENTS.len() {
        return Err(failure);
    }
    let mut figures = all.remove(&run.run).unwrap_or_default().figures(run);
    let why = failure.to_string();
    for key in lost.iter().flat_map(|at| KEYS[*at]) {
        figures[*key] = Value::Null;
        figures[format!("{key}_why")] = (*why).into();
    }
    figures["state"] = "damaged".into();
    figures["why"] = why.into();
    figures["complete"] = false.into();
    Ok(Arc::new(figures))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A queue of jobs, which are `tprof` commands. Several requests for the same command share one
//! execution.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use super::child::Tprof;
use super::output::Output;
use super::result_cache::{CachedResult, ResultCache};
use crate::failure::Failure;
use crate::runs::{RegisteredRun, Stamp};

/// An answer about a run in progress is reused for this many times as long as it took to compute.
const SHARE: u32 = 20;
/// Shortest time for which an answer about a run in progress is reused.
const LEAST: Duration = Duration::from_secs(2);
/// Number of jobs that may wait or run; requests for further ones are refused.
const MAX_WAITING: usize = 200;

/// Priority of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A person waits for the result.
    Interactive,
    /// Nobody waits for the result, which is a summary for the list. One such job runs at a time,
    /// next to interactive jobs and with a low priority.
    Background,
}

/// A command to execute.
#[derive(Clone, Debug)]
pub struct Job {
    /// Arguments for `tprof`.
    pub words: Vec<OsString>,
    /// State of its runs' files.
    pub stamps: Vec<Stamp>,
    /// Whether one of its runs is in progress. Its files change all the time, so an answer is
    /// reused although the stamps differ.
    pub is_live: bool,
    /// Priority of the job.
    pub priority: Priority,
}

impl Job {
    /// Creates a job about `runs`, whose paths are in `words`.
    pub fn of(words: Vec<OsString>, runs: &[&RegisteredRun], priority: Priority) -> Job {
        Job {
            words,
            stamps: runs.iter().map(|run| run.stamp).collect(),
            is_live: runs.iter().any(|run| run.entry.state == "running"),
            priority,
        }
    }

    /// Creates a job whose result never changes.
    pub fn immutable(words: Vec<OsString>, priority: Priority) -> Job {
        Job { words, stamps: Vec::new(), is_live: false, priority }
    }
}

type Answer = Result<Arc<Output>, Failure>;

/// Executes jobs and caches their results.
#[derive(Debug)]
pub struct JobQueue {
    tprof: Tprof,
    cache: Mutex<ResultCache>,
    /// Jobs that are running or waiting to run.
    making: Mutex<HashMap<Vec<OsString>, watch::Sender<Option<Answer>>>>,
    asked: Semaphore,
    quiet: Semaphore,
}

impl JobQueue {
    /// Creates a queue that executes up to `at_once` interactive jobs at the same time.
    pub fn new(tprof: Tprof, at_once: usize) -> Arc<JobQueue> {
        Arc::new(JobQueue {
            tprof,
            cache: Mutex::default(),
            making: Mutex::default(),
            asked: Semaphore::new(at_once),
            quiet: Semaphore::new(1),
        })
    }

    /// Returns what `tprof` prints for these arguments, from the cache or by running it.
    pub async fn get(self: &Arc<JobQueue>, job: Job) -> Answer {
        if let Some(answer) = self.cached(&job) {
            return answer;
        }
        loop {
            let mut answer = self.make(&job)?;
            if let Ok(made) = answer.wait_for(Option::is_some).await
                && let Some(answer) = made.clone()
            {
                return answer;
            }
            // The job was abandoned just when this request joined it, because nobody else waited.
            // Start again.
        }
    }

    /// Runs a command immediately: it waits for no other job, and its result is not cached.
    pub async fn run_uncached(&self, words: &[OsString]) -> Result<Output, Failure> {
        self.tprof.run(words, false).await
    }

    /// Returns a cached result, if it is still valid.
    pub fn cached(&self, job: &Job) -> Option<Answer> {
        let made = lock(&self.cache).get(&job.words)?;
        let is_right = match made.answer.is_ok() {
            true => made.stamps == job.stamps || job.is_live && Instant::now() < made.good_until,
            // A failure may be temporary, so it is reused only for a while, even if no file
            // changed.
            false => Instant::now() < made.good_until,
        };
        is_right.then_some(made.answer)
    }

    /// Starts the job, or joins it if it is already waiting or running.
    fn make(self: &Arc<JobQueue>, job: &Job) -> Result<watch::Receiver<Option<Answer>>, Failure> {
        let mut making = lock(&self.making);
        if let Some(to) = making.get(&job.words) {
            return Ok(to.subscribe());
        }
        if making.len() >= MAX_WAITING {
            return Err(Failure::new("the server is busy", format!("{MAX_WAITING} requests wait"))
                .status(axum::http::StatusCode::SERVICE_UNAVAILABLE)
                .hint("try again in a minute"));
        }
        let (to, answer) = watch::channel(None);
        making.insert(job.words.clone(), to.clone());
        drop(making);
        let (jobs, job) = (Arc::clone(self), job.clone());
        tokio::spawn(async move {
            let made = jobs.take_turn(&job, &to).await;
            lock(&jobs.making).remove(&job.words);
            to.send_replace(made);
        });
        Ok(answer)
    }

    /// Waits for the job's turn and executes it. Stops and returns `None` if nobody waits for the
    /// result any more.
    async fn take_turn(&self, job: &Job, to: &watch::Sender<Option<Answer>>) -> Option<Answer> {
        let is_background = job.priority == Priority::Background;
        let queue = if is_background { &self.quiet } else { &self.asked };
        let _turn = queue.acquire().await.ok()?;
        let begun = Instant::now();
        let answer = tokio::select! {
            biased;
            () = to.closed() => return None,
            answer = self.tprof.run(&job.words, is_background) => answer.map(Arc::new),
        };
        let made = CachedResult {
            stamps: job.stamps.clone(),
            good_until: Instant::now() + LEAST.max(begun.elapsed() * SHARE),
            answer: answer.clone(),
        };
        lock(&self.cache).put(job.words.clone(), made);
        Some(answer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

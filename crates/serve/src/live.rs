//! Follows runs in progress while a browser or scraper watches them. One thread reads each run,
//! however many watch it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tprof_live::{FileEntry, Follower, RunFiles, RunState, Snapshot};

use crate::failure::Failure;
use crate::runs::{RegisteredRun, beneath};

/// Interval at which a run is polled.
const EACH: Duration = Duration::from_secs(1);
/// How long a run is followed after the last request for it.
const UNUSED: Duration = Duration::from_secs(60);
/// Largest number of runs to follow at once.
const MOST: usize = 32;
/// How long an answer waits for the first poll of a run. After that, it shows as much of a large
/// run as was read.
const FIRST: Duration = Duration::from_secs(10);
/// Number of ticks that a slow reader may lag behind. If it lags more, it starts over from a new
/// snapshot.
const BEHIND: usize = 8;

/// The message that is sent every second: what changed in a run.
#[derive(Clone, Debug)]
pub struct Tick {
    /// The snapshot as JSON.
    pub text: Arc<str>,
    /// Whether the run is still in progress.
    pub is_running: bool,
}

/// Files of a run, opened only beneath its directory.
#[derive(Debug)]
struct Beneath {
    path: PathBuf,
    /// The directory of the run. It is opened again at each poll, because another run may have
    /// taken its place.
    directory: RefCell<OwnedFd>,
}

impl RunFiles for Beneath {
    fn directory(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<FileEntry>> {
        self.directory.replace(beneath::directory(&self.path)?);
        let entries = fs::read_dir(&self.path)?;
        let names = entries.flatten().filter_map(|entry| {
            Some(FileEntry { name: entry.file_name().into_string().ok()?, inode: entry.ino() })
        });
        Ok(names.collect())
    }

    fn open(&self, name: &str) -> io::Result<File> {
        beneath::open(&*self.directory.borrow(), Path::new(name))
    }
}

/// A run that is followed.
#[derive(Debug)]
struct Followed {
    follower: Mutex<Follower<Beneath>>,
    /// Whether the data that existed at the first poll has been read.
    is_read: watch::Sender<bool>,
    ticks: broadcast::Sender<Tick>,
    last: Mutex<Arc<Snapshot>>,
    used: Mutex<Instant>,
}

/// All followed runs, by number.
#[derive(Debug, Default)]
pub struct FollowedRuns {
    followed: Arc<Mutex<HashMap<u32, Arc<Followed>>>>,
}

impl FollowedRuns {
    /// Returns the run's current snapshot, with its history, as JSON.
    pub async fn now(&self, run: &RegisteredRun) -> Result<String, Failure> {
        let followed = self.follow(run).await?;
        blocking(move || Ok(text(&lock(&followed.follower).with_history()))).await
    }

    /// Returns the current snapshot with its history, and all ticks from there on.
    pub async fn ticks(
        &self,
        run: &RegisteredRun,
    ) -> Result<(String, broadcast::Receiver<Tick>), Failure> {
        let followed = self.follow(run).await?;
        blocking(move || {
            // The lock is held until the subscription, so that no tick is lost between it and the
            // snapshot.
            let follower = lock(&followed.follower);
            let ticks = followed.ticks.subscribe();
            Ok((text(&follower.with_history()), ticks))
        })
        .await
    }

    /// Returns a heat map of a metric by rank and time.
    pub async fn heat(&self, run: &RegisteredRun, metric: &str) -> Result<Value, Failure> {
        let followed = self.follow(run).await?;
        let metric = metric.to_owned();
        blocking(move || {
            let heat = lock(&followed.follower).heat(&metric);
            serde_json::to_value(heat)
                .map_err(|error| Failure::new("cannot make the heat map", error))
        })
        .await
    }

    /// Returns the run's last snapshot, without history.
    pub async fn snapshot(&self, run: &RegisteredRun) -> Result<Arc<Snapshot>, Failure> {
        let followed = self.follow(run).await?;
        Ok(lock(&followed.last).clone())
    }

    /// Follows a run, and waits until the data that it has now is read.
    async fn follow(&self, run: &RegisteredRun) -> Result<Arc<Followed>, Failure> {
        let followed = self.begin(run)?;
        let mut is_read = followed.is_read.subscribe();
        // If this times out, a large run is shown as far as it was read.
        let _ = tokio::time::timeout(FIRST, is_read.wait_for(|is_read| *is_read)).await;
        Ok(followed)
    }

    fn begin(&self, run: &RegisteredRun) -> Result<Arc<Followed>, Failure> {
        let mut all = lock(&self.followed);
        if let Some(followed) = all.get(&run.id) {
            *lock(&followed.used) = Instant::now();
            return Ok(Arc::clone(followed));
        }
        if all.len() >= MOST {
            return Err(Failure::new(
                "the run is not followed",
                format!("{MOST} runs are already"),
            )
            .status(axum::http::StatusCode::SERVICE_UNAVAILABLE)
            .hint("close other live pages, and try again in a minute"));
        }
        let path = run.readable()?.to_owned();
        let failed = |error: io::Error| match error.kind() {
            // The run disappeared after it was listed.
            io::ErrorKind::NotFound => Failure::absent("the run is gone", error),
            _ => Failure::new("cannot follow the run", error),
        };
        let directory = RefCell::new(beneath::directory(&path).map_err(failed)?);
        let followed = Arc::new(Followed {
            follower: Mutex::new(Follower::new(Beneath { path, directory })),
            is_read: watch::Sender::new(false),
            ticks: broadcast::Sender::new(BEHIND),
            last: Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        all.insert(run.id, Arc::clone(&followed));
        let (own, id, map) = (Arc::clone(&followed), run.id, Arc::clone(&self.followed));
        let run_on = move || {
            loop {
                own.go_on();
                // The map stays locked, so that no request can use the run between the check and
                // the removal.
                let mut all = lock(&map);
                if own.is_unused() {
                    all.remove(&id);
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name(format!("follow-{id}")).spawn(run_on);
        if let Err(error) = started {
            all.remove(&id);
            return Err(failed(error));
        }
        Ok(followed)
    }
}

impl Followed {
    fn is_unused(&self) -> bool {
        self.ticks.receiver_count() == 0 && lock(&self.used).elapsed() > UNUSED
    }

    /// Polls the run every second until nobody asks for it any more.
    fn go_on(&self) {
        loop {
            let begun = Instant::now();
            let (snapshot, has_more) = {
                let mut follower = lock(&self.follower);
                let snapshot = follower.poll();
                let has_more = follower.has_more();
                let is_running = snapshot.state == RunState::Running;
                if self.ticks.receiver_count() > 0 {
                    // An error means that the last reader has gone, which does not matter.
                    let _ = self.ticks.send(Tick { text: text(&snapshot).into(), is_running });
                }
                (snapshot, has_more)
            };
            *lock(&self.last) = Arc::new(snapshot);
            if !has_more {
                self.is_read.send_replace(true);
            }
            if self.is_unused() {
                return;
            }
            if !has_more {
                std::thread::sleep(EACH.saturating_sub(begun.elapsed()));
            }
        }
    }
}

fn text(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(|error| Failure::new("cannot follow the run", error))?
}

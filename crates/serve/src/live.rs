//! Runs in progress that someone looks at: each is followed by one thread, for all who look.

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

/// How often a run is looked at.
const EACH: Duration = Duration::from_secs(1);
/// After so long without anyone who asks, it is not followed any more.
const UNUSED: Duration = Duration::from_secs(60);
/// Runs that are followed at once.
const MOST: usize = 32;
/// How long an answer waits for the first look at a run: one with much is read in parts.
const FIRST: Duration = Duration::from_secs(10);
/// Ticks that a slow reader may be behind; then it begins anew.
const BEHIND: usize = 8;

/// The changes of one second.
#[derive(Clone, Debug)]
pub struct Tick {
    /// A snapshot, as JSON.
    pub text: Arc<str>,
    /// Whether the run goes on.
    pub is_running: bool,
}

/// Files of a run, opened beneath its directory only.
#[derive(Debug)]
struct Beneath {
    path: PathBuf,
    /// Opened anew at each look: another run may have come in its place.
    directory: RefCell<OwnedFd>,
}

impl RunFiles for Beneath {
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
    /// Whether all that was there at first has been read.
    is_read: watch::Sender<bool>,
    ticks: broadcast::Sender<Tick>,
    last: Mutex<Arc<Snapshot>>,
    used: Mutex<Instant>,
}

/// All that are followed, by number.
#[derive(Debug, Default)]
pub struct FollowedRuns {
    followed: Arc<Mutex<HashMap<u32, Arc<Followed>>>>,
}

impl FollowedRuns {
    /// The run now, with its history, as JSON.
    pub async fn now(&self, run: &RegisteredRun) -> Result<String, Failure> {
        let followed = self.follow(run).await?;
        blocking(move || Ok(text(&lock(&followed.follower).with_history()))).await
    }

    /// The run now with its history, and all ticks from there on.
    pub async fn ticks(
        &self,
        run: &RegisteredRun,
    ) -> Result<(String, broadcast::Receiver<Tick>), Failure> {
        let followed = self.follow(run).await?;
        blocking(move || {
            // While the lock is held, no tick comes in between.
            let follower = lock(&followed.follower);
            let ticks = followed.ticks.subscribe();
            Ok((text(&follower.with_history()), ticks))
        })
        .await
    }

    /// A metric by rank and time.
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

    /// The last snapshot.
    pub async fn snapshot(&self, run: &RegisteredRun) -> Result<Arc<Snapshot>, Failure> {
        let followed = self.follow(run).await?;
        Ok(lock(&followed.last).clone())
    }

    /// Follows a run, and waits until what is there has been read.
    async fn follow(&self, run: &RegisteredRun) -> Result<Arc<Followed>, Failure> {
        let followed = self.begin(run)?;
        let mut is_read = followed.is_read.subscribe();
        // One that has much is shown as far as it was read.
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
            // It went after it was listed.
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
                // While the lock is held, nobody can begin to use it between the check and the
                // removal.
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

    /// Looks at the run each second, until nobody asks any more.
    fn go_on(&self) {
        loop {
            let begun = Instant::now();
            let (snapshot, has_more) = {
                let mut follower = lock(&self.follower);
                let snapshot = follower.poll();
                let has_more = follower.has_more();
                let is_running = snapshot.state == RunState::Running;
                if self.ticks.receiver_count() > 0 {
                    // The last one may have gone meanwhile.
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

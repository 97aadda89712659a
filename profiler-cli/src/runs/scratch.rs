//! Creates temporary directories for commands. They are private to the user, and removed when the
//! command ends, even by a signal. If a command is killed by SIGKILL, the next tprof removes its
//! directories.

use crate::launch::ctrl_c;
use crate::launch::signals::{self, Signals};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tprof_collect::Owned;

/// The temporary directories that exist; the thread that handles signals removes them.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether a signal is ending the command and the directories are being removed.
static ENDS: AtomicBool = AtomicBool::new(false);

/// A temporary directory.
pub struct Scratch {
    directory: TempDir,
    /// Marks the directory as in use. It is `None` if the kernel lacks a feature that the mark
    /// needs. Then the next tprof doesn't know whether the directory is in use, and never removes
    /// it.
    _owned: Option<Owned>,
}

impl Scratch {
    /// Creates a directory whose name contains its purpose.
    pub fn new(purpose: &str) -> io::Result<Scratch> {
        static WATCH: Once = Once::new();
        WATCH.call_once(watch);
        let directory = tempfile::Builder::new()
            .prefix(&format!("{}{purpose}-", tprof_collect::PREFIX))
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()?;
        live(|live| live.push(directory.path().to_owned()));
        let owned = tprof_collect::claim(directory.path()).ok();
        Ok(Scratch { directory, _owned: owned })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directories were removed while the command was using them, so its results may be
        // wrong and it must not report success. It waits here until the signal ends it.
        while ENDS.load(Acquire) {
            std::thread::park();
        }
        live(|live| live.retain(|path| path != self.directory.path()));
    }
}

fn live<T>(change: impl FnOnce(&mut Vec<PathBuf>) -> T) -> T {
    change(&mut LIVE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes all temporary directories. Files that the command still writes afterwards are removed by
/// the next tprof.
pub fn remove_all() {
    live(std::mem::take).iter().for_each(|path| _ = std::fs::remove_dir_all(path));
}

/// Starts a thread that removes the directories of killed commands once, and then waits for a
/// signal that ends this command, to remove its directories. A command that uses [`ctrl_c::on_end`]
/// removes them itself.
fn watch() {
    let signals = (!ctrl_c::is_taken()).then(Signals::block_ending);
    let watch = move || {
        tprof_collect::sweep(&tprof_collect::places());
        let Some(signals) = signals else { return };
        let taken = loop {
            if let Some(taken) = signals.next(Duration::from_secs(3600)) {
                break taken;
            }
        };
        ENDS.store(true, Release);
        remove_all();
        signals::die_like_job(taken.signal)
    };
    // The signals were blocked for the thread. Without it nothing would handle them, so they are
    // unblocked.
    if std::thread::Builder::new().name("tprof-scratch".to_owned()).spawn(watch).is_err() {
        Signals::unblock_ending();
    }
}

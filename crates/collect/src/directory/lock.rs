//! Locks the session directory. The collector that has locked a file in it is in charge of the
//! session.

use super::names::{LEAVING, LOCK};
use crate::error::CollectError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use tprof_os::sys;
use tprof_wire::env::SOCKET_NAME;

/// Longest time that a collector waits for another one that is starting or leaving.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks a session directory as long as the returned file is open. Creates the directory if needed.
/// Returns `None` if another collector is in charge of it.
pub fn lock_session(session: &Path) -> Result<Option<File>, CollectError> {
    let by = Instant::now() + PATIENCE;
    loop {
        make(session)?;
        let unwritable = |source| CollectError::Unwritable { path: session.to_owned(), source };
        if let Some(lock) = lock(session, LOCK).map_err(unwritable)? {
            // If a collector was killed, these files are still there.
            for name in [SOCKET_NAME, LEAVING] {
                let _ = fs::remove_file(session.join(name));
            }
            return Ok(Some(lock));
        }
        if sys::connect(&session.join(SOCKET_NAME)).is_ok() || Instant::now() > by {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Locks the file of this name in a directory. Returns `None` if another process has locked it, or
/// if the directory or the file has just been removed.
pub fn lock(directory: &Path, name: &str) -> io::Result<Option<File>> {
    let path = directory.join(name);
    // Another user may have created a link or a pipe of this name in a run directory, so neither is
    // followed or waited for.
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path);
    let file = match opened {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(e)) => return Err(e),
        Ok(()) => {}
    }
    // The previous holder may have removed the file after it was opened here. A lock on a removed
    // file excludes nobody.
    let named = fs::metadata(&path).is_ok_and(|named| {
        file.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (named.dev(), named.ino()))
    });
    Ok(named.then_some(file))
}

/// Creates the directory. If it exists, checks that only this user can use it.
fn make(session: &Path) -> Result<(), CollectError> {
    let unwritable = |source| CollectError::Unwritable { path: session.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(session) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(unwritable(e)),
    }
    let meta = match fs::symlink_metadata(session) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()), // it was given up
        other => other.map_err(unwritable)?,
    };
    if meta.is_dir() && meta.uid() == sys::user() && meta.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(CollectError::NoSession {
        tried: format!("`{}`", session.display()),
        source: io::Error::other("it is not a directory that only this user can use"),
    })
}

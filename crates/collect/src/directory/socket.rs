//! Opens and closes the socket through which processes enter a session. A process either finds the
//! socket listening or doesn't find it at all. So a collector on demand can leave without losing a
//! process.
//!
//! Leaving takes three steps. First the socket is renamed, so that new processes don't find it and
//! start a collector of their own. Then the collector serves the processes that had found the
//! socket. If none of them attaches, the directory is released to the next collector, which begins
//! while this one still writes its files. If one attaches, the socket gets its name back.

use super::names::{LEAVING, LOCK, OWNER, UNREADY};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use tprof_os::sys;
use tprof_wire::env::SOCKET_NAME;

/// The socket of a session.
pub struct SessionSocket {
    directory: PathBuf,
    /// Number of times that the socket was closed or opened again. It is odd while the socket is
    /// closed.
    turns: AtomicU32,
    gone: AtomicBool,
}

impl SessionSocket {
    /// Creates the socket in a session directory, and listens on it.
    pub fn open(directory: &Path) -> io::Result<(SessionSocket, OwnedFd)> {
        // Between `bind` and `listen` a socket refuses every process, so it gets its name only
        // after `listen`.
        let unready = directory.join(UNREADY);
        let _ = fs::remove_file(&unready); // left by a collector that was killed
        let listener = sys::listen(&unready)?;
        fs::rename(&unready, directory.join(SOCKET_NAME))?;
        let (turns, gone) = (AtomicU32::new(0), AtomicBool::new(false));
        Ok((SessionSocket { directory: directory.to_owned(), turns, gone }, listener))
    }

    /// Hides the socket from new processes. The server must still serve those that had found it.
    pub fn hide(&self) {
        let _ = fs::rename(self.path(SOCKET_NAME), self.path(LEAVING));
        self.turns.fetch_add(1, AcqRel);
    }

    /// Returns the number of the current closing; `None` if the socket is open. A closed socket may
    /// be opened again.
    pub fn closing(&self) -> Option<u32> {
        Some(self.turns.load(Acquire)).filter(|turns| turns % 2 == 1)
    }

    /// Makes the socket visible again.
    pub fn show(&self) {
        self.turns.fetch_add(1, AcqRel);
        let _ = fs::rename(self.path(LEAVING), self.path(SOCKET_NAME));
    }

    /// Tells processes that got no answer in time that the collector is back. They see only that
    /// the time of the socket's last change is new.
    pub fn touch(&self) {
        let _ = sys::touch(&self.path(SOCKET_NAME));
    }

    /// Releases the directory. From now on another collector may be in charge of it.
    pub fn leave(&self) {
        if self.gone.swap(true, AcqRel) {
            return;
        }
        for name in [SOCKET_NAME, LEAVING, UNREADY, OWNER] {
            let _ = fs::remove_file(self.path(name));
        }
        // This file comes last, because whoever locks it is in charge.
        let _ = fs::remove_file(self.path(LOCK));
        let _ = fs::remove_dir(&self.directory);
    }

    /// Wakes the thread that accepts connections.
    pub fn wake_listener(&self) {
        if !self.gone.load(Acquire) {
            drop(sys::connect(&self.path(SOCKET_NAME)));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::lock_session;
    use super::*;
    use std::io::ErrorKind;
    use std::time::Duration;

    fn directory() -> PathBuf {
        sys::make_private_directory(&std::env::temp_dir(), "tprof-socket-").unwrap()
    }

    #[test]
    fn a_collector_is_in_charge_until_it_leaves() {
        let session = directory();
        let charge = lock_session(&session).unwrap().unwrap();
        let (socket, listener) = SessionSocket::open(&session).unwrap();
        assert!(lock_session(&session).unwrap().is_none());
        socket.leave();
        // The first collector still has its lock, but the locked file has no name any more.
        let next = lock_session(&session).unwrap().unwrap();
        drop((charge, listener));
        let (second, _listener) = SessionSocket::open(&session).unwrap();
        assert!(lock_session(&session).unwrap().is_none());
        // A second call must not touch the files of the next collector.
        socket.leave();
        assert!(sys::connect(&session.join(SOCKET_NAME)).is_ok());
        second.leave();
        drop(next);
        assert!(!session.exists());
    }

    #[test]
    fn a_hidden_socket_serves_only_processes_that_had_found_it() {
        let session = directory();
        let (socket, listener) = SessionSocket::open(&session).unwrap();
        let early = sys::connect(&session.join(SOCKET_NAME)).unwrap();
        socket.hide();
        let late = sys::connect(&session.join(SOCKET_NAME)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::NotFound);
        assert_eq!(socket.closing(), Some(1));
        assert!(sys::accept(&listener).unwrap().is_some());
        assert!(sys::accept(&listener).unwrap().is_none());
        socket.show();
        assert_eq!(socket.closing(), None);
        assert!(sys::connect(&session.join(SOCKET_NAME)).is_ok());
        socket.hide();
        assert_eq!(socket.closing(), Some(3));
        socket.leave();
        drop(early);
        assert!(!session.exists());
    }

    #[test]
    fn a_collector_waits_for_one_that_leaves() {
        let session = directory();
        let charge = lock_session(&session).unwrap().unwrap();
        let (socket, _listener) = SessionSocket::open(&session).unwrap();
        socket.hide();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| lock_session(&session).unwrap().is_some());
            std::thread::sleep(Duration::from_millis(20));
            socket.leave();
            assert!(next.join().unwrap());
        });
        drop(charge);
        fs::remove_dir_all(&session).unwrap();
    }
}

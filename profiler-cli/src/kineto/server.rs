//! The thread that answers requests during a run, and imports traces that arrive.
//!
//! The thread never waits for a process: if an answer cannot be sent at once, it is dropped,
//! because the process will ask again. A process waits for an answer only briefly, in a thread of
//! Kineto.

use super::clients::Clients;
use super::import_window::{ArrivedTrace, ImportedWindow, import_window};
use super::message::{self, Message};
use super::outcome::WindowsOutcome;
use super::paths::{DaemonPaths, cannot};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tprof_collect::{KinetoWindow, Session, Stepping};
use tprof_ui::errors::{Failure, reason, remedy};

/// How long the thread waits for a request before it checks for traces and for the end of the job.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest datagram to accept, in bytes; Kineto's datagrams have some dozens.
const MOST_BYTES: usize = 4096;

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    environment: Vec<(OsString, OsString)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<WindowsOutcome>>,
}

impl Daemon {
    /// Starts a daemon for a run.
    pub fn start(window: KinetoWindow, session: &Session) -> Result<Daemon, Failure> {
        let paths = DaemonPaths::new(session.run_dir())?;
        let failed = |error: std::io::Error| {
            let cause = format!("its socket cannot be created: {}", reason(&error));
            cannot().cause(cause).hint(remedy(&error, "set TMPDIR to a writable directory"))
        };
        let socket = UnixDatagram::bind(paths.socket()).map_err(failed)?;
        socket.set_read_timeout(Some(PAUSE)).map_err(failed)?;
        let environment = paths.environment();
        let stop = Arc::new(AtomicBool::new(false));
        let server = KinetoServer {
            window,
            paths,
            socket,
            stepping: session.stepping(),
            clients: Clients::default(),
            imports: BTreeMap::new(),
        };
        let ends = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("tprof-kineto".to_owned());
        let thread = thread.spawn(move || server.run(&ends)).map_err(failed)?;
        Ok(Daemon { environment, stop, thread: Some(thread) })
    }

    /// Returns the variables to set for the job.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    /// Ends the daemon after the job, and returns the results of the windows.
    pub fn finish(mut self) -> WindowsOutcome {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<WindowsOutcome> {
        self.stop.store(true, Release);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

struct KinetoServer {
    window: KinetoWindow,
    paths: DaemonPaths,
    socket: UnixDatagram,
    stepping: Arc<Stepping>,
    clients: Clients,
    imports: BTreeMap<u32, JoinHandle<Result<ImportedWindow, String>>>,
}

impl KinetoServer {
    fn run(mut self, stop: &AtomicBool) -> WindowsOutcome {
        loop {
            // The flag is read first, so that traces which arrived before the job ended are
            // imported.
            let is_last = stop.load(Acquire);
            self.answer_next();
            self.take_arrived();
            if is_last {
                break;
            }
        }
        let failed = |_| Err("the import failed".to_owned());
        let taken = std::mem::take(&mut self.imports).into_iter();
        let taken = taken.map(|(pid, import)| (pid, import.join().unwrap_or_else(failed)));
        WindowsOutcome::of(&self.clients, &taken.collect(), &self.stepping)
    }

    /// Waits briefly for a request, and answers it.
    fn answer_next(&mut self) {
        let mut buffer = [0; MOST_BYTES];
        let Ok((length, from)) = self.socket.recv_from(&mut buffer) else { return };
        let (Some(message), Some(from)) = (Message::of(&buffer[..length]), from.as_pathname())
        else {
            return;
        };
        match message {
            Message::Context => _ = self.send(&message::answer("ctxt", &1i32.to_ne_bytes()), from),
            Message::Request { is_free, pids } => {
                let home = &self.paths.home;
                let file = self.clients.on_request(&pids, is_free, &self.stepping, home);
                let window = file.as_ref().map(|file| (self.window, file.as_os_str()));
                if !self.send(&message::configuration(window), from) && window.is_some() {
                    self.clients.answer_lost(pids[0]);
                }
            }
        }
    }

    /// Sends an answer, unless the process's socket has no room for it. Returns whether the answer
    /// was sent.
    fn send(&self, answer: &[u8], to: &Path) -> bool {
        let sent = self.socket.set_nonblocking(true).and_then(|()| self.socket.send_to(answer, to));
        // If this fails, the socket stays non-blocking. Then the thread polls for requests instead
        // of waiting, which only uses more CPU time.
        let _ = self.socket.set_nonblocking(false);
        sent.is_ok()
    }

    /// Starts to import the traces that have arrived. A file has its final name only when Kineto
    /// has written all of it.
    fn take_arrived(&mut self) {
        for (pid, json) in self.clients.expected_files(&self.paths.home) {
            if !json.exists() {
                continue;
            }
            self.clients.trace_arrived(pid);
            let home: PathBuf = self.paths.home.clone();
            let host = tprof_os::sys::host_name();
            let arrived = ArrivedTrace { json, pid, offset_ns: since_1970_of_zero(), host };
            let thread = std::thread::Builder::new().name("tprof-import".to_owned());
            if let Ok(import) = thread.spawn(move || import_window(&arrived, &home)) {
                self.imports.insert(pid, import);
            }
        }
    }
}

/// Returns the time at which CLOCK_MONOTONIC was 0, in nanoseconds since 1970.
fn since_1970_of_zero() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let monotonic_ns = tprof_os::sys::monotonic_ns();
    i64::try_from(now.as_nanos()).unwrap_or(0).saturating_sub_unsigned(monotonic_ns)
}

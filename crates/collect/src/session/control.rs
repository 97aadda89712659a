//! Sends the requests of `tprof ctl` to the collectors of a live run, over their session sockets,
//! and receives such requests in the collector.

pub use crate::engine::inbox::{Reply, Request};
use crate::engine::scheduled::STEPS_AHEAD;
use crate::error::CollectError;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tprof_os::sys;
use tprof_trace::run::RunInfo;
use tprof_wire::env::SOCKET_NAME;
use tprof_wire::handshake::{Hello, Role};

/// Largest size of a message in either direction, bytes.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

/// Sends a request to each collector that records on this host into the run directory `run`.
/// Returns one of their replies; if any collector refused, a refusal.
pub fn request(run: &Path, request: &Request) -> Result<Reply, CollectError> {
    let replies = replies(run, request)?;
    // Prefers a refusal that a second request would not change, so the caller doesn't retry in
    // vain.
    let refused = replies.iter().find(|reply| !reply.ok && !reply.late && !reply.waits);
    let chosen = refused.or(replies.iter().find(|reply| !reply.ok)).or(replies.last());
    chosen.cloned().ok_or_else(|| CollectError::NotLive("no collector replied".to_owned()))
}

/// Number of times that steps are requested. Each request begins four times as far ahead as the one
/// before; the last begins 32,768 steps ahead.
const ATTEMPTS: u32 = 8;

/// Longest time in which the job must make some steps, if it begins to count them on request.
const COUNTED_WITHIN: Duration = Duration::from_secs(120);

/// Asks for the recording of `count` steps, with the same numbers in all processes of the run on
/// this host. Calls `waits` once if the job must make some steps first, which takes up to two
/// minutes.
pub fn start_steps(run: &Path, count: u32, waits: impl FnOnce()) -> Result<Reply, CollectError> {
    let (mut attempt, began, mut waits) = (0, Instant::now(), Some(waits));
    loop {
        let made = replies(run, &Request::Status)?;
        let made = made.iter().filter_map(|reply| reply.status.as_ref()?["steps"].as_u64()).max();
        let ahead = STEPS_AHEAD << (2 * attempt);
        let first = made.filter(|made| *made > 0).map(|made| made + ahead);
        let reply = request(run, &Request::Steps { count, first })?;
        if reply.waits && began.elapsed() < COUNTED_WITHIN {
            if let Some(waits) = waits.take() {
                waits();
            }
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        attempt += 1;
        if !reply.late || attempt == ATTEMPTS {
            return Ok(reply);
        }
    }
}

/// Returns the replies of the run's collectors. Fails if no collector replies.
fn replies(run: &Path, request: &Request) -> Result<Vec<Reply>, CollectError> {
    let not_live = |why: String| CollectError::NotLive(why);
    let mut sessions = Vec::new();
    let entries = std::fs::read_dir(run)
        .map_err(|source| CollectError::Unwritable { path: run.to_owned(), source })?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == "run.json" || name.starts_with("run-") && name.ends_with(".json") {
            let text = tprof_trace::read_plain(&entry.path()).unwrap_or_default();
            if let Ok(info) = serde_json::from_slice::<RunInfo>(&text) {
                sessions.push(info);
            }
        }
    }
    if sessions.is_empty() {
        return Err(not_live(format!("`{}` holds no run", run.display())));
    }
    let mut replies = Vec::new();
    let mut why = format!("the run in `{}` has ended", run.display());
    for info in sessions.iter().filter(|i| !i.finished) {
        if info.host != sys::host_name() {
            why = format!("that run is on host {}, this is {}", info.host, sys::host_name());
            continue;
        }
        match ask(&Path::new(&info.session).join(SOCKET_NAME), request) {
            Ok(reply) => replies.push(reply),
            Err(e) => {
                let e = match e.kind() {
                    ErrorKind::WouldBlock => {
                        "no answer in five seconds, as if it were stopped".into()
                    }
                    // A collector of another version closes the connection, because it would
                    // misread the request.
                    ErrorKind::ConnectionReset => of_another(&info.tprof),
                    _ => e.to_string(),
                };
                why = format!("the collector of `{}` does not answer: {e}", run.display());
            }
        }
    }
    if replies.is_empty() { Err(not_live(why)) } else { Ok(replies) }
}

/// Formats the reason for a refusal: the collector has version `version`, and this program has
/// another.
fn of_another(version: &str) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let build = if version == own { ", another build" } else { "" };
    format!("it is tprof {version}{build}, and this is tprof {own}")
}

fn ask(socket: &Path, request: &Request) -> std::io::Result<Reply> {
    let fd = sys::connect(socket)?;
    let hello = Hello::new(Role::Control, std::process::id());
    sys::send(&fd, &hello.to_bytes(), &[])?;
    sys::send(&fd, &serde_json::to_vec(request)?, &[])?;
    let mut buffer = vec![0; MAX_MESSAGE];
    let len = sys::receive(&fd, &mut buffer)?;
    if len == 0 {
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "refused"));
    }
    Ok(serde_json::from_slice(&buffer[..len])?)
}

/// Receives one request from a control connection; `None` if the request is malformed.
pub(crate) fn receive(fd: &OwnedFd) -> Option<Request> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let len = sys::receive(fd, &mut buffer).ok()?;
    serde_json::from_slice(buffer.get(..len)?).ok()
}

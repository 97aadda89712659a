//! Sends the requests of `tprof ctl` to the collectors of a live run, over their session sockets or
//! through the run's directory, and receives such requests in the collector.

use super::shared_requests::{self, WITHIN};
pub use super::shared_requests::{ASKED, is_of_request};
pub use crate::engine::inbox::{Reply, Request};
use crate::engine::scheduled::STEPS_AHEAD;
use crate::error::CollectError;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tprof_hang::{Answer, HostState, NotAnswered, RankEnd, RankState};
use tprof_os::sys;
use tprof_trace::run::{RankInfo, RunInfo};
use tprof_wire::env::SOCKET_NAME;
use tprof_wire::handshake::{Hello, Role};

/// Largest size of a message in either direction, bytes.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

/// Sends a request to each collector that records into the run directory `run`. Returns one of their
/// replies; if any collector refused, a refusal. The message names those that did not reply.
pub fn request(run: &Path, request: &Request) -> Result<Reply, CollectError> {
    let Replies { replies, missing } = replies(run, request)?;
    // Prefers a refusal that a second request would not change, so the caller doesn't retry in
    // vain.
    let refused = replies.iter().find(|reply| !reply.ok && !reply.late && !reply.waits);
    let chosen = refused.or(replies.iter().find(|reply| !reply.ok)).or(replies.last());
    let chosen = chosen.cloned();
    let mut reply =
        chosen.ok_or_else(|| CollectError::NotLive("no collector replied".to_owned()))?;
    for NotAnswered { host, why, .. } in missing {
        let end = if reply.message.is_empty() { "" } else { "; " };
        reply.message += &format!("{end}host {host} is not reached: {why}");
    }
    Ok(reply)
}

/// Number of times that steps are requested. Each request begins four times as far ahead as the one
/// before; the last begins 32,768 steps ahead.
const ATTEMPTS: u32 = 8;

/// Longest time in which the job must make some steps, if it begins to count them on request.
const COUNTED_WITHIN: Duration = Duration::from_secs(120);

/// Asks for the recording of `count` steps, with the same numbers in all processes of the run. Calls
/// `waits` once if the job must make some steps first, which takes up to two minutes.
pub fn start_steps(run: &Path, count: u32, waits: impl FnOnce()) -> Result<Reply, CollectError> {
    let (mut attempt, began, mut waits) = (0, Instant::now(), Some(waits));
    loop {
        let made = replies(run, &Request::Status)?.replies;
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

/// Returns the info files of the run's collectors. Fails if there is none.
fn sessions(run: &Path) -> Result<Vec<RunInfo>, CollectError> {
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
    match sessions.is_empty() {
        true => Err(CollectError::NotLive(format!("`{}` holds no run", run.display()))),
        false => Ok(sessions),
    }
}

/// Replies of a run's collectors, and which of them did not reply.
struct Replies {
    replies: Vec<Reply>,
    missing: Vec<NotAnswered>,
}

/// Sends a request to all of the run's collectors. Fails if none replies.
fn replies(run: &Path, request: &Request) -> Result<Replies, CollectError> {
    let mut live = sessions(run)?;
    live.retain(|info| !info.finished);
    let mut all = Replies { replies: Vec::new(), missing: Vec::new() };
    for (info, reply) in live.iter().zip(ask_all(run, &live, request)) {
        match reply {
            Ok(reply) => all.replies.push(reply),
            Err(why) => all.missing.push(not_answered(info, why)),
        }
    }
    match (all.replies.is_empty(), all.missing.first()) {
        (false, _) => Ok(all),
        (true, None) => {
            Err(CollectError::NotLive(format!("the run in `{}` has ended", run.display())))
        }
        (true, Some(missing)) => Err(CollectError::NotLive(format!(
            "the collector of `{}` on host {} does not answer: {}",
            run.display(),
            missing.host,
            missing.why
        ))),
    }
}

fn not_answered(info: &RunInfo, why: String) -> NotAnswered {
    let ranks = info.ranks.iter().map(|rank| rank.rank).collect();
    NotAnswered { host: info.host.clone(), ranks, why }
}

/// Sends a request to these collectors at the same time: to those on this host through their
/// sockets, to others through the run's directory. Returns for each the reply, or why there is none.
fn ask_all(run: &Path, infos: &[RunInfo], request: &Request) -> Vec<Result<Reply, String>> {
    let own = sys::host_name();
    let far: Vec<&RunInfo> = infos.iter().filter(|info| info.host != own).collect();
    std::thread::scope(|scope| {
        let far = scope.spawn(|| shared_requests::ask(run, &far, request, WITHIN));
        let near: Vec<_> = infos
            .iter()
            .map(|info| (info.host == own).then(|| scope.spawn(|| ask_collector(info, request))))
            .collect();
        let failed = || Err("its thread failed".to_owned());
        let near: Vec<_> = near
            .into_iter()
            .map(|asked| asked.map(|asked| asked.join().unwrap_or_else(|_| failed())))
            .collect();
        let mut far = far.join().unwrap_or_default();
        let silent = || {
            let seconds = WITHIN.as_secs();
            format!("no answer in {seconds} seconds through the run's directory, from host {own}")
        };
        let reply = |(info, near): (&RunInfo, Option<_>)| {
            near.unwrap_or_else(|| far.remove(&info.session).ok_or_else(silent))
        };
        infos.iter().zip(near).map(reply).collect()
    })
}

/// Sends a request to one collector on this host. Returns its reply, or why there is none.
fn ask_collector(info: &RunInfo, request: &Request) -> Result<Reply, String> {
    ask(&Path::new(&info.session).join(SOCKET_NAME), request).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => "no answer in five seconds, as if it were stopped".into(),
        // A collector of another version closes the connection, because it would misread the
        // request.
        ErrorKind::ConnectionReset => of_another(&info.tprof),
        _ => error.to_string(),
    })
}

/// Asks all collectors of a run what their ranks do now, and judges that. Fails if the run has ended
/// or no collector answers.
pub fn standstill(run: &Path) -> Result<Answer, CollectError> {
    let (ended, live): (Vec<RunInfo>, _) = sessions(run)?.into_iter().partition(|i| i.finished);
    if live.is_empty() {
        return Err(CollectError::NotLive(format!("the run in `{}` has ended", run.display())));
    }
    let (mut hosts, mut missing) = (Vec::new(), Vec::new());
    for (info, reply) in live.iter().zip(ask_all(run, &live, &Request::Where)) {
        let state = reply.and_then(|reply| {
            let state =
                reply.status.filter(|_| reply.ok).and_then(|s| serde_json::from_value(s).ok());
            state.ok_or(reply.message)
        });
        match state {
            Ok(state) => hosts.push(state),
            Err(why) => missing.push(not_answered(info, why)),
        }
    }
    if hosts.is_empty() {
        let why = missing.first().map_or("it has ended", |missing| &missing.why);
        return Err(CollectError::NotLive(format!(
            "the collector of `{}` does not answer: {why}",
            run.display()
        )));
    }
    hosts.extend(ended.iter().map(ended_state));
    Ok(Answer::new(hosts, missing))
}

/// Makes each of the run's collectors end its part of the job, the own one last: it would end with
/// its part, and another would speak for the run.
pub(crate) fn end_job(run: &Path, session: &Path) {
    let live = sessions(run).unwrap_or_default().into_iter().filter(|info| !info.finished);
    let (own, others): (Vec<RunInfo>, _) =
        live.partition(|info| Path::new(&info.session) == session);
    ask_all(run, &others, &Request::EndJob);
    ask_all(run, &own, &Request::EndJob);
}

/// Whether this collector is the one that speaks for the run: of those that have not finished, that
/// with the lowest rank.
pub(crate) fn speaks_for_run(run: &Path, session: &Path) -> bool {
    let lowest = |info: &RunInfo| {
        let rank = info.ranks.iter().map(|rank| rank.rank).min();
        (rank.unwrap_or(u32::MAX), info.session.clone())
    };
    let live = sessions(run).unwrap_or_default().into_iter().filter(|info| !info.finished);
    live.min_by_key(lowest).is_none_or(|info| Path::new(&info.session) == session)
}

/// Returns the state of the ranks of a collector that has finished: all have ended.
fn ended_state(info: &RunInfo) -> HostState {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let lasted_ns = info.end_ns.unwrap_or(info.start_ns).saturating_sub(info.start_ns);
    let end_unix_ns = info.start_unix_ns.saturating_add(lasted_ns);
    let age_ns = (since.as_nanos() as u64).saturating_sub(end_unix_ns);
    let state = |rank: &RankInfo| {
        let rows = info.processes.iter().filter(|row| row.rank == Some(rank.rank));
        let last = rows.filter(|row| row.ended_by != "exec").max_by_key(|row| row.end_ns);
        let (status, signal) = last.map_or((None, None), |row| (row.exit_status, row.signal));
        let end = Some(RankEnd { status, signal, age_ns });
        RankState { rank: rank.rank, host: info.host.clone(), end, ..RankState::default() }
    };
    let ranks = info.ranks.iter().map(state).collect();
    HostState { host: info.host.clone(), ranks, ..HostState::default() }
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
    // A long reply consists of several messages. The collector closes the connection after the
    // last one.
    let (mut reply, mut buffer) = (Vec::new(), vec![0; MAX_MESSAGE]);
    loop {
        match sys::receive(&fd, &mut buffer)? {
            0 if reply.is_empty() => {
                return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "refused"));
            }
            0 => return Ok(serde_json::from_slice(&reply)?),
            len => reply.extend_from_slice(&buffer[..len]),
        }
    }
}

/// Sends a reply, in as many messages as it needs. A client that has gone gets none.
pub(crate) fn reply(client: &OwnedFd, reply: &Reply) {
    let Ok(bytes) = serde_json::to_vec(reply) else { return };
    for part in bytes.chunks(MAX_MESSAGE) {
        if sys::send(client, part, &[]).is_err() {
            return;
        }
    }
}

/// Receives one request from a control connection; `None` if the request is malformed.
pub(crate) fn receive(fd: &OwnedFd) -> Option<Request> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let len = sys::receive(fd, &mut buffer).ok()?;
    serde_json::from_slice(buffer.get(..len)?).ok()
}

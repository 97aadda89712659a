//! Sends the requests of `tprof ctl` to the collectors of a live run, over their session sockets or
//! through the run's directory, and receives such requests in the collector.

use super::shared_requests::{self, WITHIN};
pub use super::shared_requests::{ASKED, is_of_request};
pub use crate::engine::inbox::{Reply, Request};
use crate::engine::scheduled::STEPS_AHEAD;
use crate::error::CollectError;
use crate::targets::boundaries::Boundaries;
use serde_json::Value;
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
    let live = live_sessions(run)?;
    Ok(chosen(Replies::of(run, &live, ask_all(run, &live, request))?))
}

/// Returns one of these replies; if any collector refused, a refusal. The message names those that
/// did not reply.
fn chosen(Replies { replies, missing }: Replies) -> Reply {
    // Prefers a refusal that a second request would not change, so the caller doesn't retry in
    // vain.
    let refused = replies.iter().find(|reply| !reply.ok && !reply.late && !reply.waits);
    let chosen = refused.or(replies.iter().find(|reply| !reply.ok)).or(replies.last());
    let mut reply = chosen.cloned().unwrap_or_else(|| {
        // `Replies::of` fails without any reply.
        Reply::new(false, "no collector replied".to_owned())
    });
    for NotAnswered { host, why, .. } in missing {
        let end = if reply.message.is_empty() { "" } else { "; " };
        reply.message += &format!("{end}host {host} is not reached: {why}");
    }
    reply
}

/// Number of times that steps are requested. Each request begins four times as far ahead as the one
/// before; the last begins 32,768 steps ahead.
const ATTEMPTS: u32 = 8;

/// Longest time in which the job must make some steps, if it begins to count them on request.
const COUNTED_WITHIN: Duration = Duration::from_secs(120);

/// Asks for the recording of `count` steps, the same ones in all processes of the run. Calls `waits`
/// once if the job must make some steps first, which takes up to two minutes.
pub fn start_steps(run: &Path, count: u32, waits: impl FnOnce()) -> Result<Reply, CollectError> {
    let (mut attempt, began, mut waits) = (0, Instant::now(), Some(waits));
    let own = (sys::host_name(), std::process::id(), sys::monotonic_ns());
    let asker = format!("{} {} {}", own.0, own.1, own.2);
    loop {
        let ahead = STEPS_AHEAD << (2 * attempt);
        let reply = request_each(run, |states| {
            let firsts = first_steps(states, ahead);
            let asked = |first| Request::Steps { count, first, asker: asker.clone() };
            firsts.into_iter().map(asked).collect()
        })?;
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

/// The number of the first step that each collector shall record, so that it is the same step for all
/// and at least `ahead` steps away; `None` where the collector must decide. `states` has what
/// [`Request::Status`] returns.
///
/// Collectors that count the steps of PyTorch since the request begin with different numbers. Steps
/// that begin at about the same time of day are the same, so the clocks of hosts must agree to within
/// half a step.
fn first_steps(states: &[Option<&Value>], ahead: u64) -> Vec<Option<u64>> {
    let counted: Vec<Boundaries> = states.iter().map(|state| counted_by(*state)).collect();
    let lead = counted.iter().max_by_key(|of| of.len());
    let shifts = counted.iter().map(|of| lead.and_then(|lead| of.shift_to(lead)).unwrap_or(0));
    let shifts: Vec<u64> = shifts.collect();
    let made = states.iter().zip(&shifts).filter_map(|(state, shift)| {
        let made = (*state)?["steps"].as_u64().filter(|made| *made > 0)?;
        Some(made.wrapping_add(*shift))
    });
    let first = made.max().map(|made| made + ahead);
    shifts.iter().map(|shift| Some(first?.wrapping_sub(*shift))).collect()
}

/// Returns the steps that a collector has counted, with times in nanoseconds since 1970.
fn counted_by(state: Option<&Value>) -> Boundaries {
    let mut counted = Boundaries::default();
    let rows = state.and_then(|state| state["counted_steps"].as_array()).into_iter().flatten();
    for row in rows {
        if let (Some(number), Some(time_ns)) = (row[0].as_u64(), row[1].as_u64()) {
            counted.add(number, time_ns);
        }
    }
    counted
}

/// Asks each of the run's collectors for its status, and then sends each the request that `requests`
/// makes for it of all statuses. Returns a reply as [`request`] does.
fn request_each(
    run: &Path,
    requests: impl FnOnce(&[Option<&Value>]) -> Vec<Request>,
) -> Result<Reply, CollectError> {
    let live = live_sessions(run)?;
    let states: Vec<Option<Value>> = ask_all(run, &live, &Request::Status)
        .into_iter()
        .map(|reply| reply.ok().and_then(|reply| reply.status))
        .collect();
    let states: Vec<Option<&Value>> = states.iter().map(Option::as_ref).collect();
    let requests = requests(&states);
    let replies: Vec<Result<Reply, String>> = std::thread::scope(|scope| {
        let ask = |(info, request): (&RunInfo, Request)| {
            let info = info.clone();
            scope.spawn(move || ask_all(run, &[info], &request).remove(0))
        };
        let asked: Vec<_> = live.iter().zip(requests).map(ask).collect();
        let failed = |_| Err("its thread failed".to_owned());
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(failed)).collect()
    });
    Ok(chosen(Replies::of(run, &live, replies)?))
}

/// Replies of a run's collectors, and which of them did not reply.
struct Replies {
    replies: Vec<Reply>,
    missing: Vec<NotAnswered>,
}

impl Replies {
    /// Gathers the replies of live collectors. Fails if none replied.
    fn of(
        run: &Path,
        live: &[RunInfo],
        replies: Vec<Result<Reply, String>>,
    ) -> Result<Replies, CollectError> {
        let mut all = Replies { replies: Vec::new(), missing: Vec::new() };
        for (info, reply) in live.iter().zip(replies) {
            match reply {
                Ok(reply) => all.replies.push(reply),
                Err(why) => all.missing.push(not_answered(info, why)),
            }
        }
        match (all.replies.is_empty(), all.missing.first()) {
            (true, Some(missing)) => Err(CollectError::NotLive(format!(
                "the collector of `{}` on host {} does not answer: {}",
                run.display(),
                missing.host,
                missing.why
            ))),
            _ => Ok(all),
        }
    }
}

/// Returns the info files of the run's collectors that have not finished. Fails if all have.
fn live_sessions(run: &Path) -> Result<Vec<RunInfo>, CollectError> {
    let mut live = sessions(run)?;
    live.retain(|info| !info.finished);
    match live.is_empty() {
        true => Err(CollectError::NotLive(format!("the run in `{}` has ended", run.display()))),
        false => Ok(live),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_step_is_the_first_on_all_hosts() {
        // Each host has counted since the request reached it.
        let times =
            |from: u64| -> Vec<u64> { (from..20).map(|step| 1_000_000 * step + 7).collect() };
        let counted = |from: u64, first: u64| {
            let rows: Vec<[u64; 2]> =
                times(from).into_iter().zip(first..).map(|(time, number)| [number, time]).collect();
            json!({"steps": first + 20 - from - 1, "counted_steps": rows})
        };
        let (one, other) = (counted(5, 0), counted(9, 100));
        // The 15th step of one host, number 14, is number 110 of the other.
        assert_eq!(first_steps(&[Some(&one), Some(&other)], 2), [Some(16), Some(112)]);
        // Steps that the program numbers have the same numbers everywhere.
        let numbered = |steps: u64| json!({"steps": steps});
        let (one, other) = (numbered(41), numbered(40));
        assert_eq!(first_steps(&[Some(&one), Some(&other)], 8), [Some(49), Some(49)]);
        // A host that does not answer, and one without steps, don't decide.
        let none = numbered(0);
        assert_eq!(first_steps(&[None, Some(&one), Some(&none)], 2), [Some(43); 3]);
        assert_eq!(first_steps(&[Some(&none)], 2), [None]);
    }
}

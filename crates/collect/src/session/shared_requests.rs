//! Requests to collectors on other hosts, which see the same run directory but can't be reached
//! through a socket. A request is a file in the directory `asked` of the run, and so is each reply:
//!
//! - `ID.ask.json`: [`Asked`];
//! - `ID.SESSION.reply.json`: a [`Reply`] of one collector.
//!
//! Each collector looks there once a second. Files are written under another name and renamed, so
//! they are whole. Who asked removes them.

use super::answerer::Answerer;
use crate::engine::inbox::{Reply, Request};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant, SystemTime};
use tprof_os::sys;
use tprof_trace::run::RunInfo;
use tprof_wire::WIRE_VERSION;

/// Directory of the requests within the run's directory.
pub const ASKED: &str = "asked";
const ASK: &str = ".ask.json";
const REPLY: &str = ".reply.json";
const PART: &str = ".part";
/// Time between two looks of a collector.
const BETWEEN: Duration = Duration::from_secs(1);
/// Longest time to wait for replies of other hosts.
pub const WITHIN: Duration = Duration::from_secs(5);
/// Time between two looks for replies.
const LOOK: Duration = Duration::from_millis(50);

/// A request to some collectors.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    /// Version of the interface, as in [`WIRE_VERSION`].
    version: u32,
    /// Version of the tprof that asks.
    tprof: String,
    /// Session directories and hosts of the collectors that shall answer.
    to: Vec<(String, String)>,
    request: serde_json::Value,
}

/// Returns the name of the reply of a collector, by which it is found.
fn reply_name(id: &str, (session, host): (&str, &str)) -> String {
    let session = Path::new(session).file_name().unwrap_or_default().to_string_lossy();
    format!("{id}.{host}.{session}{REPLY}")
}

/// Whether a file in [`ASKED`] is a request or a reply, by its name.
pub fn is_of_request(name: &str) -> bool {
    let whole = name.strip_suffix(PART).unwrap_or(name);
    whole.ends_with(ASK) || whole.ends_with(REPLY)
}

fn write(directory: &Path, name: &str, content: &impl Serialize) -> std::io::Result<()> {
    let part = directory.join(format!("{name}{PART}"));
    fs::write(&part, serde_json::to_vec(content)?)?;
    fs::rename(part, directory.join(name))
}

/// Sends a request to the collectors of other hosts, and returns the replies of those that answered
/// in time, by their session directories.
pub fn ask(
    run: &Path,
    infos: &[&RunInfo],
    request: &Request,
    within: Duration,
) -> HashMap<String, Reply> {
    let mut replies = HashMap::new();
    if infos.is_empty() {
        return replies;
    }
    let directory = run.join(ASKED);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let id = format!("{}-{}-{}", sys::host_name(), std::process::id(), since.as_nanos());
    let asked = Asked {
        version: WIRE_VERSION,
        tprof: env!("CARGO_PKG_VERSION").to_owned(),
        to: infos.iter().map(|info| (info.session.clone(), info.host.clone())).collect(),
        request: serde_json::to_value(request).unwrap_or_default(),
    };
    let _ = fs::create_dir(&directory);
    let name = format!("{id}{ASK}");
    if write(&directory, &name, &asked).is_err() {
        return replies;
    }
    let until = Instant::now() + within;
    while replies.len() < infos.len() && Instant::now() < until {
        std::thread::sleep(LOOK);
        refresh(&directory);
        for info in infos {
            let path = directory.join(reply_name(&id, (&info.session, &info.host)));
            let reply = tprof_trace::read_plain(&path).ok();
            if let Some(reply) = reply.and_then(|text| serde_json::from_slice(&text).ok()) {
                let _ = fs::remove_file(path);
                replies.insert(info.session.clone(), reply);
            }
        }
    }
    let _ = fs::remove_file(directory.join(name));
    // This fails, as intended, while others ask too.
    let _ = fs::remove_dir(directory);
    replies
}

/// Makes NFS look at the directory again: opening one does.
fn refresh(directory: &Path) {
    drop(File::open(directory));
}

/// Answers the requests that lie in the run's directory.
pub struct SharedRequests {
    /// Directory of the run.
    pub run: PathBuf,
    /// Directory of this session.
    pub session: PathBuf,
    /// The way to answer a request.
    pub answerer: Arc<Answerer>,
    /// Set when the run is over.
    pub stop: Arc<AtomicBool>,
}

impl SharedRequests {
    /// Answers until the run is over.
    pub fn run(self) {
        let mut seen = HashSet::new();
        while !self.stop.load(Acquire) {
            std::thread::sleep(BETWEEN);
            refresh(&self.run);
            let entries = fs::read_dir(self.run.join(ASKED)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let new: Vec<String> = names.filter(|name| name.ends_with(ASK)).collect();
            for name in new {
                if seen.insert(name.clone()) {
                    self.answer(&name);
                }
            }
        }
    }

    /// Answers a request, if it is for this collector and comes from this user or from root.
    fn answer(&self, name: &str) {
        let directory = self.run.join(ASKED);
        let path = directory.join(name);
        let owner = fs::symlink_metadata(&path).map(|of| of.uid());
        if !owner.is_ok_and(|uid| uid == sys::user() || uid == 0) {
            return;
        }
        let text = tprof_trace::read_plain(&path).unwrap_or_default();
        let Ok(asked) = serde_json::from_slice::<Asked>(&text) else { return };
        let (session, host) = (self.session.to_string_lossy(), sys::host_name());
        if !asked.to.iter().any(|(to, on)| *to == session && *on == host) {
            return;
        }
        let own = env!("CARGO_PKG_VERSION");
        let request = serde_json::from_value(asked.request);
        let reply = match request {
            Ok(request) if asked.version == WIRE_VERSION => self.answerer.answer(&request),
            _ => {
                let why = format!("it is tprof {own}, and the request is of tprof {}", asked.tprof);
                Some(Reply::new(false, why))
            }
        };
        let id = name.strip_suffix(ASK).unwrap_or(name);
        if let Some(reply) = reply {
            // Who asked may have given up, and removed the directory.
            let _ = write(&directory, &reply_name(id, (&session, &host)), &reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_in_time_has_no_reply_and_nothing_is_left() {
        let run = tempfile::tempdir().unwrap();
        let info = RunInfo { session: "/tmp/s".into(), host: "c2".into(), ..RunInfo::default() };
        assert!(ask(run.path(), &[&info], &Request::Status, LOOK).is_empty());
        assert!(ask(run.path(), &[], &Request::Status, LOOK).is_empty());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }
}

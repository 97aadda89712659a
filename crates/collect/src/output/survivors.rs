//! Finds the processes of the job that still run after its command has ended.
//!
//! Most of them are known, because they attached or because hooks or perf events reported them. An
//! unknown process (such as the child of a static program) can still be recognized by the session's
//! directory in its environment, unless it has another environment or has overwritten it.
//!
//! If perf events are refused, a static program with an empty environment whose parent has ended
//! isn't found.

use std::collections::BTreeMap;
use std::path::Path;
use tprof_os::proc;
use tprof_trace::run::{BlindSpot, LATER_EVENTS};
use tprof_wire::env;

/// A process of the job that still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its process id.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
}

impl Survivor {
    /// Returns the note that this process isn't recorded after the end of recording.
    pub fn blind(&self) -> BlindSpot {
        BlindSpot::new(
            format!("{} {}", self.pid, self.name),
            LATER_EVENTS,
            "still running when recording ended; events after that are not recorded",
        )
    }
}

/// Finds live processes: those with a known pid, those with the session's directory in their
/// environment, and the descendants of both. A known pid comes with the latest time at which its
/// process may have started, ns. If the process with this pid started later, the pid was reused.
pub fn find(known: impl Iterator<Item = (u32, u64)>, session: &Path) -> Vec<Survivor> {
    let own = std::process::id();
    let started = |pid, by_ns| proc::started_ns(pid).is_some_and(|started_ns| started_ns <= by_ns);
    let known = known.filter(|(pid, by_ns)| started(*pid, *by_ns)).map(|(pid, _)| pid);
    let mut open: Vec<u32> = known.chain(in_session(session)).collect();
    let mut found = BTreeMap::new();
    while let Some(pid) = open.pop() {
        if pid == own || found.contains_key(&pid) || is_collector(pid) || !proc::lives(pid) {
            continue;
        }
        found.insert(pid, name_of(pid));
        open.extend(proc::children_of(pid));
    }
    found.into_iter().map(|(pid, name)| Survivor { pid, name }).collect()
}

/// Returns the processes with this session's directory in their environment.
fn in_session(session: &Path) -> Vec<u32> {
    let entry = format!("{}={}", env::SESSION, session.display()).into_bytes();
    let has_it = |pid: &u32| {
        let environ = proc::environment_of(*pid);
        environ.split(|byte| *byte == 0).any(|found| found == entry)
    };
    proc::all().filter(has_it).collect()
}

/// Whether a process is a collector on demand, which isn't part of the job. The environment of such
/// a collector names the session too, and one of another host name may share this pid namespace.
fn is_collector(pid: u32) -> bool {
    proc::words_of(pid).get(1).is_some_and(|word| word == env::COLLECT)
}

fn name_of(pid: u32) -> String {
    let program = proc::words_of(pid).first().map(|command| proc::program_of(command));
    // Daemons may change their command line to something like `nginx: master process`.
    let program = program.map(|name| name.trim_end_matches(':').to_owned());
    program.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        // The process has overwritten its command line, so the name of its main thread is used.
        proc::name_of(pid, pid).trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use tprof_os::sys;

    fn names(known: &[(u32, u64)], session: &Path) -> Vec<(u32, String)> {
        let found = find(known.iter().copied(), session).into_iter();
        found.map(|survivor| (survivor.pid, survivor.name)).collect()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_found_by_its_environment_or_its_pid() {
        let session = Path::new("/tmp/tprof-survivors-test");
        let named = Command::new("sleep").arg("60").env(env::SESSION, session).spawn().unwrap();
        let other = Command::new("sleep").arg("60").spawn().unwrap();
        let now = sys::monotonic_ns();
        // Until the exec, the child's environment is that of this process.
        while names(&[], session) != [(named.id(), "sleep".to_owned())] {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut both = [named.id(), other.id()].map(|pid| (pid, "sleep".to_owned()));
        both.sort();
        assert_eq!(names(&[(other.id(), now)], session), both);
        // A process that began later than the given time is another one, whose pid was reused.
        assert_eq!(names(&[(other.id(), now - 60_000_000_000)], session).len(), 1);
        end(named);
        end(other);
        assert_eq!(names(&[], session), []);
    }
}

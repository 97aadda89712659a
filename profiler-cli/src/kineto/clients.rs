//! Stores which processes asked the daemon for a configuration, and decides when each of them
//! should record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tprof_collect::ranks::Rank;
use tprof_collect::{Progress, Stepping};

/// A process that has run operators for this long and made no step counts as a process without
/// steps, which is told to record at once.
const STEPLESS: Duration = Duration::from_secs(10);

/// State of the window of a process.
#[derive(Debug, PartialEq, Eq)]
pub enum WindowState {
    /// The process has asked, but should not record yet.
    Waits,
    /// The process was told to record.
    Records,
    /// The process's trace has arrived, and its import has begun or is done.
    Came,
}

/// A process in which PyTorch runs.
#[derive(Debug)]
pub struct Client {
    /// The rank in the process's environment, if there is one.
    pub rank: Option<u32>,
    /// Whether an ancestor with the same rank has asked too. Then this process does a part of the
    /// ancestor's work, as a worker of a data loader or a compiler does.
    pub is_worker: bool,
    /// State of the process's window.
    pub state: WindowState,
}

/// Processes that asked, by pid.
#[derive(Debug, Default)]
pub struct Clients {
    pub all: BTreeMap<u32, Client>,
}

impl Clients {
    /// Handles a request. If the process should record from now on, returns the path of the file to
    /// write, in the directory `home`.
    pub fn on_request(
        &mut self,
        pids: &[u32],
        is_free: bool,
        stepping: &Stepping,
        home: &Path,
    ) -> Option<PathBuf> {
        let (pid, ancestors) = pids.split_first()?;
        if !self.all.contains_key(pid) {
            let client = self.new_client(*pid, ancestors);
            self.all.insert(*pid, client);
        }
        let client = self.all.get_mut(pid)?;
        let is_due = stepping.of(*pid).is_some_and(|far| is_due(far, client.is_worker));
        if !is_free || !is_due || client.state != WindowState::Waits {
            return None;
        }
        client.state = WindowState::Records;
        Some(home.join(asked_name(client.rank)))
    }

    fn new_client(&self, pid: u32, ancestors: &[u32]) -> Client {
        let rank = Rank::of_process(pid).map(|rank| rank.number);
        let of_ancestor = |ancestor: &u32| self.all.get(ancestor);
        let is_worker = ancestors.iter().filter_map(of_ancestor).any(|of| of.rank == rank);
        Client { rank, is_worker, state: WindowState::Waits }
    }

    /// Returns the processes that were told to record, and the files that they may have written by
    /// now.
    pub fn expected_files(&self, home: &Path) -> Vec<(u32, PathBuf)> {
        let records = self.all.iter().filter(|(_, client)| client.state == WindowState::Records);
        records.map(|(pid, client)| (*pid, written(*pid, client.rank, home))).collect()
    }

    /// Notes that an answer did not reach a process. The process will ask again.
    pub fn answer_lost(&mut self, pid: u32) {
        if let Some(client) = self.all.get_mut(&pid) {
            client.state = WindowState::Waits;
        }
    }

    /// Notes that the file of a process has arrived.
    pub fn trace_arrived(&mut self, pid: u32) {
        if let Some(client) = self.all.get_mut(&pid) {
            client.state = WindowState::Came;
        }
    }
}

/// Whether a process should record its window now. A process with steps records whole steps. A
/// process without steps records for some time, unless it is a worker of another process.
fn is_due(far: Progress, is_worker: bool) -> bool {
    far.has_stepped || !is_worker && far.began.elapsed() >= STEPLESS
}

/// Returns the file name to request for a trace. The import reads the rank from it.
fn asked_name(rank: Option<u32>) -> String {
    rank.map_or_else(|| "window.json".to_owned(), |rank| format!("rank-{rank}.json"))
}

/// Returns the path that Kineto writes for this request.
fn written(pid: u32, rank: Option<u32>, home: &Path) -> PathBuf {
    let name = asked_name(rank);
    home.join(name.replace(".json", &format!("_{pid}.json")))
}

/// Whether a name is one that Kineto makes of a requested name: `rank-3_4711.json`,
/// `window_4711.json`.
pub fn is_window(name: &str) -> bool {
    let parts = name.strip_suffix(".json").and_then(|stem| stem.rsplit_once('_'));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    parts.is_some_and(|(stem, pid)| {
        let rank = stem.strip_prefix("rank-");
        is_number(pid) && (stem == "window" || rank.is_some_and(is_number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const HOME: &str = "/r/kineto";

    fn on_request(clients: &mut Clients, pids: &[u32], stepping: &Stepping) -> bool {
        clients.on_request(pids, true, stepping, Path::new(HOME)).is_some()
    }

    #[test]
    fn a_process_records_once_and_only_after_a_step() {
        let (mut clients, stepping) = (Clients::default(), Stepping::default());
        let pid = std::process::id();
        assert!(!on_request(&mut clients, &[pid], &stepping));
        stepping.note(pid, false);
        assert!(!on_request(&mut clients, &[pid], &stepping));
        stepping.note(pid, true);
        let busy = clients.on_request(&[pid], false, &stepping, Path::new(HOME));
        assert_eq!(busy, None);
        let file = clients.on_request(&[pid], true, &stepping, Path::new(HOME));
        assert_eq!(file, Some(PathBuf::from("/r/kineto/window.json")));
        let written = format!("/r/kineto/window_{pid}.json");
        assert_eq!(clients.expected_files(Path::new(HOME)), [(pid, PathBuf::from(written))]);
        assert!(!on_request(&mut clients, &[pid], &stepping));
        clients.trace_arrived(pid);
        assert!(!on_request(&mut clients, &[pid], &stepping));
        assert!(clients.expected_files(Path::new(HOME)).is_empty());
    }

    #[test]
    fn a_worker_of_a_process_has_no_window_by_time() {
        let mut clients = Clients::default();
        let stepping = Stepping::default();
        assert!(!on_request(&mut clients, &[10, 1], &stepping));
        assert!(!on_request(&mut clients, &[20, 10, 1], &stepping));
        assert!(!clients.all[&10].is_worker && clients.all[&20].is_worker);
        let long_ago = Instant::now().checked_sub(STEPLESS).unwrap();
        let far = Progress { began: long_ago, has_stepped: false };
        assert!(is_due(far, false) && !is_due(far, true));
        assert!(is_due(Progress { has_stepped: true, ..far }, true));
        assert!(!is_due(Progress { began: Instant::now(), ..far }, false));
    }

    #[test]
    fn a_rank_is_in_the_name_of_its_file() {
        assert_eq!(written(7, Some(3), Path::new("/r")), Path::new("/r/rank-3_7.json"));
        assert!(is_window("rank-3_7.json") && is_window("window_7.json"));
        for other in ["rank-3.json", "rank-a_7.json", "window_.json", "results_7.json", "7.json"] {
            assert!(!is_window(other), "{other}");
        }
    }
}

//! Finds out whether the collector of a run is still running.

use crate::plain_file::read_plain;
use crate::run::RunInfo;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time after which a silent collector on another host counts as gone. A collector writes its
/// `run.json` every half second, or less often if writing takes long, and a network file system may
/// show a file's time up to a minute late.
const SILENT: Duration = Duration::from_secs(120);

/// Key of [`RunInfo::machine`] for the machine's boot id. A collector's pid has a meaning only with
/// the same boot and the same [`PID_NAMESPACE`].
pub const BOOT: &str = "boot_id";
/// Key of [`RunInfo::machine`] for the pid namespace; see [`BOOT`].
pub const PID_NAMESPACE: &str = "pid_namespace";

/// Returns the boot id and the pid namespace of this machine.
pub fn this_machine() -> [(&'static str, String); 2] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    [(BOOT, boot.trim().to_owned()), (PID_NAMESPACE, namespace.to_string_lossy().into_owned())]
}

/// Whether the collector that records into `directory` is still running. If the collector's pid has
/// a meaning on this machine, its process decides. Otherwise the age of its info file decides.
pub fn is_collector_alive(info: &RunInfo, directory: &Path) -> bool {
    lives(info, || is_fresh(&own_file(info, directory)))
}

/// Like [`is_collector_alive`], for a reader that has the collector's file open. `written` is the
/// time when that file was written.
pub fn is_collector_writing(info: &RunInfo, written: SystemTime) -> bool {
    lives(info, || is_recent(written))
}

fn lives(info: &RunInfo, is_fresh: impl FnOnce() -> bool) -> bool {
    if info.finished {
        return false;
    }
    if is_this_machine(info) {
        let stat = std::fs::read(format!("/proc/{}/stat", info.collector_pid));
        let start = info.collector_start_tick;
        return stat.is_ok_and(|stat| is_at_work(&String::from_utf8_lossy(&stat), start));
    }
    is_fresh()
}

/// Returns the path of a collector's info file.
fn own_file(info: &RunInfo, directory: &Path) -> PathBuf {
    let first = directory.join("run.json");
    let names = further_infos(&info.host, info.collector_pid).map(|name| directory.join(name));
    let further: Vec<PathBuf> = names.take_while(|path| path.exists()).collect();
    let Some(usual) = further.first().cloned() else { return first };
    // Processes on hosts of the same name can have the same pid in different pid namespaces.
    let is_own = |path: &PathBuf| {
        let read = read_plain(path).unwrap_or_default();
        serde_json::from_slice::<RunInfo>(&read).is_ok_and(|other| is_same(info, &other))
    };
    std::iter::once(first).chain(further).find(is_own).unwrap_or(usual)
}

/// Whether the same collector wrote both info files.
fn is_same(one: &RunInfo, other: &RunInfo) -> bool {
    let identity = |info: &RunInfo| {
        let place = [BOOT, PID_NAMESPACE].map(|key| info.machine[key].as_str().map(str::to_owned));
        (info.host.clone(), info.collector_pid, info.collector_start_tick, place)
    };
    identity(one) == identity(other) && one.own_rank == other.own_rank
}

/// Whether a line of `/proc/PID/stat` belongs to the process that started at a tick, and that
/// process hasn't ended. If the run has no start tick, the process's name decides. That is less
/// certain, because a later process with the same pid may have the same name.
fn is_at_work(stat: &str, start_tick: Option<u64>) -> bool {
    let name = stat.split_once(" (").map_or("", |(_, rest)| rest);
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // In the fields after the name, the state is the first and the start time is the 20th.
    let started = state.split_whitespace().nth(19).and_then(|tick| tick.parse::<u64>().ok());
    let same = match start_tick {
        Some(tick) => started == Some(tick),
        None => name.starts_with("tprof"),
    };
    same && !state.starts_with(['Z', 'X'])
}

/// Returns the possible names for the `run.json` of a collector that joins a run. The collector
/// uses the first free one. Numbers are needed because containers may share a host name and have
/// the same pid.
pub fn further_infos(host: &str, collector_pid: u32) -> impl Iterator<Item = String> {
    let stem = format!("run-{host}-{collector_pid}");
    let numbered = format!("{stem}.");
    std::iter::once(format!("{stem}.json"))
        .chain((1..u32::MAX).map(move |number| format!("{numbered}{number}.json")))
}

/// Whether a file was written a short time ago.
pub fn is_fresh(file: &Path) -> bool {
    let modified = std::fs::metadata(file).and_then(|about| about.modified());
    modified.is_ok_and(is_recent)
}

fn is_recent(written: SystemTime) -> bool {
    match SystemTime::now().duration_since(written) {
        Ok(age) => age < SILENT,
        // The clock of another host is ahead.
        Err(ahead) => ahead.duration() < SILENT,
    }
}

/// Whether a collector runs on this host, boot and pid namespace, so that its times and pids have
/// the same meaning here.
pub fn is_this_machine(info: &RunInfo) -> bool {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let same = |(key, value): (&str, String)| info.machine[key].as_str().is_none_or(|v| v == value);
    host.trim() == info.host && this_machine().into_iter().all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_local_collector_is_judged_by_its_process_a_remote_one_by_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, file) = (directory.path(), directory.path().join("run.json"));
        std::fs::write(&file, "").unwrap();
        let age = |time| File::options().write(true).open(&file).unwrap().set_modified(time);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let gone = RunInfo {
            host: host.trim().to_owned(),
            collector_pid: u32::MAX >> 1,
            machine: this_machine()
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            ..RunInfo::default()
        };
        assert!(!is_collector_alive(&gone, directory));
        assert!(is_at_work("7 (tprof) S 1", None));
        assert!(!is_at_work("7 (tprof) Z 1", None) && !is_at_work("7 (python) S 1", None));
        let of_this = |start| RunInfo {
            collector_pid: std::process::id(),
            collector_start_tick: start,
            ..gone.clone()
        };
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1;
        let started: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
        assert!(is_collector_alive(&of_this(Some(started)), directory));
        assert!(!is_collector_alive(&of_this(Some(started - 1)), directory), "a reused pid");
        let elsewhere = RunInfo { host: "elsewhere".to_owned(), ..gone.clone() };
        assert!(is_collector_alive(&elsewhere, directory));
        let mut other_namespace = gone.clone();
        other_namespace.machine[PID_NAMESPACE] = "pid:[1]".into();
        assert!(is_collector_alive(&other_namespace, directory));
        age(SystemTime::now() - 2 * SILENT).unwrap();
        assert!(!is_collector_alive(&elsewhere, directory));
        // Two collectors in containers have the same host name and pid. Each is judged by its own
        // file.
        let further: Vec<_> = further_infos("elsewhere", gone.collector_pid).take(2).collect();
        let text = |rank: &str| {
            let info = RunInfo { own_rank: Some(rank.to_owned()), ..elsewhere.clone() };
            serde_json::to_vec(&info).unwrap()
        };
        std::fs::write(directory.join(&further[0]), text("RANK=1")).unwrap();
        std::fs::write(&file, text("RANK=0")).unwrap();
        age(SystemTime::now() - 2 * SILENT).unwrap();
        let of = |rank: &str| RunInfo { own_rank: Some(rank.to_owned()), ..elsewhere.clone() };
        assert!(!is_collector_alive(&of("RANK=0"), directory), "judged by another's file");
        assert!(is_collector_alive(&of("RANK=1"), directory));
        age(SystemTime::now()).unwrap();
        let finished = RunInfo { finished: true, ..elsewhere };
        assert!(!is_collector_alive(&finished, directory));
    }
}

//! Finds the rank that wrote each of a run's `torch.compile` logs.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use tprof_trace::compile_log;
use tprof_trace::{CompileLogFile, CompileLogOwner, RankFile, RunDir, TraceFile};

use super::logs::{RankCompile, base_name};

/// A run's logs, each with the file of the rank that wrote it.
#[derive(Debug, Default)]
pub struct RunLogs {
    logs: Vec<OwnedLog>,
}

#[derive(Debug)]
struct OwnedLog {
    path: PathBuf,
    /// Path of the rank's file.
    of: PathBuf,
    is_guess: bool,
}

impl RunLogs {
    /// Finds the logs of a run, and reads the beginning of each.
    pub fn of(dir: &RunDir) -> RunLogs {
        let logs = dir.compile_logs();
        if logs.is_empty() {
            return RunLogs::default();
        }
        let owners = Owners::of(dir);
        let owned = |log: CompileLogFile| {
            let (file, is_guess) = owners.of_log(&log)?;
            Some(OwnedLog { path: log.path, of: file.path.clone(), is_guess })
        };
        RunLogs { logs: logs.into_iter().filter_map(owned).collect() }
    }

    /// Reads the logs of one of the run's files.
    pub fn of_rank(&self, file: &RankFile, trace: &TraceFile) -> RankCompile {
        let header = trace.header();
        let ahead = || i128::from(header.start_ns) - i128::from(header.start_unix_ns);
        let ahead_ns = (header.start_unix_ns > 0).then(ahead);
        let mut found = RankCompile::default();
        for log in self.logs.iter().filter(|log| log.of == file.path) {
            if log.is_guess {
                found.problems.push(format!(
                    "`{}` is of a process that was not recorded: listed under {}",
                    base_name(&log.path),
                    file.label
                ));
            }
            found.add(&log.path, ahead_ns);
        }
        found
    }
}

/// The data that relates logs to files.
struct Owners<'a> {
    dir: &'a RunDir,
    /// Files that collectors described, by host and process id.
    described: HashMap<(&'a str, u32), &'a RankFile>,
    hosts: HashSet<&'a str>,
    of_rank: HashMap<u32, &'a RankFile>,
    /// Files that no collector described, by process id; `None` if several files have the id.
    others: OnceCell<HashMap<u32, Option<&'a RankFile>>>,
}

impl<'a> Owners<'a> {
    fn of(dir: &'a RunDir) -> Owners<'a> {
        let files = || dir.files().iter();
        let named: HashMap<String, &RankFile> =
            files().map(|file| (base_name(&file.path), file)).collect();
        let mut described = HashMap::new();
        for info in dir.infos() {
            for process in &info.processes {
                if let Some(file) = process.file.as_ref().and_then(|name| named.get(name)) {
                    described.entry((info.host.as_str(), process.pid)).or_insert(*file);
                }
            }
        }
        let mut of_rank = HashMap::new();
        for file in files() {
            if let Some(rank) = file.rank {
                of_rank.entry(rank).or_insert(file);
            }
        }
        let hosts = dir.infos().iter().map(|info| info.host.as_str()).collect();
        Owners { dir, described, hosts, of_rank, others: OnceCell::new() }
    }

    /// Returns the file of the rank that wrote a log, and whether that is a guess.
    fn of_log(&self, log: &CompileLogFile) -> Option<(&'a RankFile, bool)> {
        let rank_file = |rank: u32| Some((*self.of_rank.get(&rank)?, false));
        let host = match &log.owner {
            CompileLogOwner::Rank(rank) => return rank_file(*rank),
            CompileLogOwner::Host(host) => host.as_str(),
        };
        let pid = compile_log::process_of(&log.path);
        if let Some(file) = pid.and_then(|pid| self.described.get(&(host, pid))) {
            return Some((file, false));
        }
        // In a container with its own process ids, the log's pid matches no recorded process, but
        // the log's name may contain the rank.
        if let Some(found) = rank_of_name(&log.path).and_then(rank_file) {
            return Some(found);
        }
        // If the run was cut off before its description was written, only the files tell which
        // processes they recorded.
        let is_described = self.hosts.contains(host);
        if let Some(file) = pid.filter(|_| !is_described).and_then(|pid| self.recorded(pid)) {
            return Some((file, false));
        }
        let ranked = self.dir.files().iter().filter(|file| file.rank.is_some());
        let first = ranked.clone().next().or_else(|| self.dir.files().first())?;
        // In a run with a single rank, the log must belong to that rank. In a run with several, the
        // first rank is a guess.
        Some((first, ranked.count() > 1))
    }

    /// Returns the only file without a description that recorded this process.
    fn recorded(&self, pid: u32) -> Option<&'a RankFile> {
        let read = || {
            let described: HashSet<&str> = self
                .dir
                .infos()
                .iter()
                .flat_map(|info| info.files.iter().map(String::as_str))
                .collect();
            let mut found = HashMap::new();
            for file in self.dir.files() {
                if described.contains(base_name(&file.path).as_str()) {
                    continue;
                }
                let Ok(trace) = TraceFile::open(&file.path) else { continue };
                let pids: HashSet<u32> =
                    trace.processes().iter().map(|process| process.pid).collect();
                for pid in pids {
                    let is_new = !found.contains_key(&pid);
                    found.insert(pid, is_new.then_some(file));
                }
            }
            found
        };
        *self.others.get_or_init(read).get(&pid)?
    }
}

/// Returns the rank in a log's name: `dedicated_log_torch_trace_rank_3_x.log` as PyTorch names it,
/// or a name that a person or a tool gave it, such as `rank_3.log` or `trace-rank3.log.gz`.
pub fn rank_of_name(path: &Path) -> Option<u32> {
    let name = base_name(path).to_ascii_lowercase();
    let places = name.match_indices("rank").filter(|(at, _)| {
        // `rank` must not be the end of another word, such as `frank`.
        !name[..*at].ends_with(|before: char| before.is_alphanumeric())
    });
    let mut numbers = places.map(|(at, word)| {
        let rest = &name[at + word.len()..];
        let rest = rest.strip_prefix(['_', '-', '=', '.']).unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let is_whole = !rest[end..].starts_with(char::is_alphanumeric);
        rest[..end].parse().ok().filter(|_| is_whole)
    });
    numbers.find_map(|number| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_found_in_names_with_and_without_a_random_suffix() {
        let of = |name: &str| rank_of_name(Path::new(name));
        for (name, rank) in [
            ("dedicated_log_torch_trace_rank_3_x1y2z3ab.log", 3),
            ("dedicated_log_torch_trace_rank_1.log", 1),
            ("/a/rank_7/dedicated_log_torch_trace_rank_12.log.gz", 12),
            ("0-dedicated_log_torch_trace_rank_2.log.zst", 2),
            ("rank0.log", 0),
            ("Rank-5.log", 5),
            ("dedicated_log_torch_trace_rank_4_rank_9.log", 4),
        ] {
            assert_eq!(of(name), Some(rank), "{name}");
        }
        let none = [
            "dedicated_log_torch_trace_x1y2z3ab.log",
            "dedicated_log_torch_trace_frank_1.log",
            "rank_1a.log",
            "rank_.log",
            "rank_99999999999.log",
        ];
        for name in none {
            assert_eq!(of(name), None, "{name}");
        }
    }
}

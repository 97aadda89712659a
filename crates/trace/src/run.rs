//! `run.json`: what a run was, and how complete it is. Versioned; written anew
//! (to a temporary name, then renamed) while the job runs and at its end.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Version of `run.json` that this build writes. From 2 on it always has a checksum.
pub const RUN_VERSION: u32 = 2;

/// Contents of `run.json` (`run-HOST-PID.json` for further collectors on the same directory).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// [`RUN_VERSION`].
    pub version: u32,
    /// Version of tprof that recorded.
    pub tprof: String,
    /// Host name.
    pub host: String,
    /// Command line; only the base name under `--redact`; empty if attached by hand.
    pub command: Vec<String>,
    /// Commit of the working tree that it was started in, by git's files; `null` without one, and
    /// under `--redact`. Files may differ from it.
    pub commit: Option<String>,
    /// When the run began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When the last process ended; `null` while the run lasts or if it was cut off.
    pub end_ns: Option<u64>,
    /// True once the collector finished in good order.
    pub finished: bool,
    /// Session directory, for `tprof ctl`.
    pub session: String,
    /// Collector's process id.
    pub collector_pid: u32,
    /// When the collector started, in clock ticks since the machine's boot: with its pid, what
    /// separates it from later processes of that pid.
    pub collector_start_tick: Option<u64>,
    /// Resolved options.
    pub options: serde_json::Value,
    /// Machine: kernel, cpus, memory, clock.
    pub machine: serde_json::Value,
    /// What names the job in the collector's environment, by variable; values are hashes
    /// under `--redact`. Empty where no launcher or scheduler named it.
    pub job: BTreeMap<String, String>,
    /// What was recorded and what was not.
    pub completeness: Completeness,
    /// What the recording cost.
    pub overhead: Overhead,
    /// Every recorded program image; [`RunInfo::process_count`] counts the processes.
    pub processes: Vec<ProcessInfo>,
    /// Rank files in this directory written by this collector.
    pub files: Vec<String>,
    /// The rank that the collector's own environment names, as `VARIABLE=NUMBER`, if any.
    pub own_rank: Option<String>,
    /// The last signal that asked the launcher to end, and when (CLOCK_MONOTONIC
    /// nanoseconds): of a run that was cut off after it, what came before.
    pub asked_to_end: Option<(i32, u64)>,
    /// The ranks among `files`.
    pub ranks: Vec<RankInfo>,
    /// What else a reader should know of the recording, in sentences.
    pub notes: Vec<String>,
    /// Whether the file that this was read from does not match its checksum, or lacks it: it was damaged, or a
    /// person edited it.
    #[serde(skip)]
    pub is_changed: bool,
    /// Why its collector could not write its files from some moment on, by what it left beside this
    /// file; empty if that is not known, either.
    #[serde(skip)]
    pub unwritten: Option<String>,
}

/// A rank that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankInfo {
    /// Its number, from 0.
    pub rank: u32,
    /// How many ranks its launcher started, if it gave that.
    pub size: Option<u32>,
    /// Hash of what names the launch, in hexadecimal; `null` if nothing does.
    pub launch: Option<String>,
    /// How often an elastic launcher had started it before.
    pub restarts: u32,
    /// Its file.
    pub file: String,
}

impl RunInfo {
    /// Whether another tool recorded it, and tprof only took it over.
    pub fn is_imported(&self) -> bool {
        self.options.get("imported").is_some()
    }

    /// How many processes [`RunInfo::processes`] has images of.
    pub fn process_count(&self) -> usize {
        count_processes(self.processes.iter().map(|image| ImageLife {
            // An import has processes of several hosts, each in its own file.
            place: if self.is_imported() { image.file.as_deref().unwrap_or("") } else { "" },
            pid: image.pid,
            start_ns: image.start_ns,
            end_ns: image.end_ns,
            replaced: image.ended_by == "exec",
        }))
    }
}

/// A program image, as [`count_processes`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageLife<'a> {
    /// Where its pid has a meaning: a host, or a file of one.
    pub place: &'a str,
    /// Process id.
    pub pid: u32,
    /// When it began, ns.
    pub start_ns: u64,
    /// When it ended, ns; none if that is not known.
    pub end_ns: Option<u64>,
    /// An `exec` ended it.
    pub replaced: bool,
}

/// How many processes these program images are: an `exec` begins an image and no process, and a
/// pid that is used again is another process.
pub fn count_processes<'a>(images: impl IntoIterator<Item = ImageLife<'a>>) -> usize {
    let mut images: Vec<ImageLife<'a>> = images.into_iter().collect();
    images.sort_unstable_by_key(|image| (image.place, image.pid, image.start_ns));
    let goes_on = |pair: &&[ImageLife<'a>]| {
        let [before, after] = pair else { return false };
        let lasts = before.end_ns.is_none_or(|end_ns| after.start_ns <= end_ns);
        (before.place, before.pid) == (after.place, after.pid) && (before.replaced || lasts)
    };
    images.len() - images.windows(2).filter(goes_on).count()
}

/// What was recorded, what was lost, which processes were not recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Completeness {
    /// Events recorded, as [`crate::Recorded`] defines them.
    pub recorded: u64,
    /// CPU samples recorded.
    pub samples: u64,
    /// Events known to be lost.
    pub lost: u64,
    /// The losses, by kind.
    pub losses: Vec<LossInfo>,
    /// Processes that were not recorded, wholly or in part.
    pub blind: Vec<BlindSpot>,
}

/// One kind of loss.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LossInfo {
    /// What was lost.
    pub what: String,
    /// Why.
    pub why: String,
    /// How many.
    pub count: u64,
}

/// What is not recorded of a process that still runs when recording ends.
pub const LATER_EVENTS: &str = "later events";

/// A process of which something was not recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlindSpot {
    /// `pid NAME` or a path.
    pub process: String,
    /// What was not recorded, e.g. `everything`, `allocations`.
    pub what: String,
    /// Why.
    pub why: String,
}

impl BlindSpot {
    /// The process in words: `sh (pid 7)`, since `7 sh` reads as seven of them.
    pub fn process_words(&self) -> String {
        match self.process.split_once(' ') {
            Some((pid, name)) if pid.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => {
                format!("{name} (pid {pid})")
            }
            _ => self.process.clone(),
        }
    }
}

/// Whether allocations of some process were not recorded, so that sums over a heap are no
/// more than lower bounds.
pub fn misses_allocations(blind: &[BlindSpot]) -> bool {
    blind.iter().any(|blind| blind.what == "allocations")
}

/// What was not recorded of processes, those alike together: of whom in words, in order of
/// the first.
///
/// `(what, of whom, why)`, e.g. `("everything", "sh (pid 7) and 2 more", "statically linked")`.
pub fn group_blind_spots(blind: &[BlindSpot]) -> Vec<(&str, String, &str)> {
    let mut groups: Vec<(&BlindSpot, usize)> = Vec::new();
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    for one in blind {
        let at = *known.entry((&one.what, &one.why)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, others)) => *others += 1,
            None => groups.push((one, 0)),
        }
    }
    let processes = |(first, others): (&'_ BlindSpot, usize)| match others {
        0 => first.process_words(),
        n => format!("{} and {n} more", first.process_words()),
    };
    groups.into_iter().map(|g| (g.0.what.as_str(), processes(g), g.0.why.as_str())).collect()
}

/// Version of [`Overhead`]. Before 2 `host_ns` and `fraction` held waits, or did not, and had no
/// bounds.
pub const OVERHEAD_VERSION: u32 = 2;

/// What the recording cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// [`OVERHEAD_VERSION`].
    pub version: u32,
    /// CPU time of the job that recording took, without waits: the sum of `parts`. An estimate,
    /// the middle of its bounds.
    pub host_ns: Option<u64>,
    /// It took no less.
    pub host_ns_low: Option<u64>,
    /// It took no more.
    pub host_ns_high: Option<u64>,
    /// What `host_ns` consists of.
    pub parts: Vec<OverheadPart>,
    /// Time the job's threads waited for the collector; measured.
    pub wait_ns: u64,
    /// CPU time of the launched tree, or of the attached processes as last read.
    pub job_cpu_ns: Option<u64>,
    /// `host_ns / job_cpu_ns`, at most 1; `null` if that is not known or below 50 ms.
    pub fraction: Option<f64>,
    /// The same of `host_ns_low`.
    pub fraction_low: Option<f64>,
    /// The same of `host_ns_high`.
    pub fraction_high: Option<f64>,
    /// CPU time of the collector; measured.
    pub collector_cpu_ns: u64,
    /// Always true: what has bounds is an estimate.
    pub estimate: bool,
}

/// A part of what recording cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OverheadPart {
    /// `events`, `notes`, `stacks`, `operators`, `in_place`, `samples`, `switches` or `starts`.
    pub part: String,
    /// How many.
    pub count: u64,
    /// They took no less CPU time.
    pub ns_low: u64,
    /// They took no more; `null` where the cost of one is not known.
    pub ns_high: Option<u64>,
}

/// A program image: what a process runs from its beginning or an `exec` to the next, or to its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Rank, if any process of the run has one.
    pub rank: Option<u32>,
    /// Command line.
    pub command: String,
    /// Exit status, if it exited and that was recorded.
    pub exit_status: Option<i32>,
    /// Signal, if it was killed and that was recorded.
    pub signal: Option<i32>,
    /// `exit`, `signal`, `exec`, `running` or `unknown`.
    pub ended_by: String,
    /// When it attached, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: Option<u64>,
    /// Rank file that holds its data.
    pub file: Option<String>,
    /// Records that it made and that were lost, and events before it could attach; `null`
    /// for one that never attached.
    pub lost: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_alike_are_named_by_the_first() {
        let blind = |process: &str, why: &str| BlindSpot {
            process: process.to_owned(),
            what: "everything".to_owned(),
            why: why.to_owned(),
        };
        let all = [blind("7 sh", "static"), blind("rank 3", "absent"), blind("9 sh", "static")];
        assert_eq!(
            group_blind_spots(&all),
            [
                ("everything", "sh (pid 7) and 1 more".to_owned(), "static"),
                ("everything", "rank 3".to_owned(), "absent"),
            ]
        );
    }

    #[test]
    fn an_exec_begins_no_process_and_a_pid_used_again_does() {
        let image = |place, pid, start_ns, end_ns, replaced| ImageLife {
            place,
            pid,
            start_ns,
            end_ns,
            replaced,
        };
        let images = [
            image("a", 7, 0, Some(10), true),
            image("a", 7, 12, Some(20), false),
            // A new process of the pid, sampled while it was about to become another program.
            image("a", 7, 30, Some(50), false),
            image("a", 7, 40, Some(50), false),
            image("b", 7, 0, None, false),
            image("b", 8, 0, Some(5), true),
        ];
        assert_eq!(count_processes(images), 4);
        assert_eq!(count_processes(images.into_iter().rev()), 4);
        assert_eq!(count_processes([]), 0);
    }
}

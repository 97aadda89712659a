//! Defines `run.json`: facts about a run, and how complete the run is. The file has a version. The
//! collector rewrites the file while the job runs and at its end, under a temporary name that it
//! then renames.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Version of `run.json` that this build writes. From version 2 on, the file always has a checksum.
pub const RUN_VERSION: u32 = 2;

/// Contents of `run.json`. A further collector that writes to the same directory stores its own as
/// `run-HOST-PID.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// The file's [`RUN_VERSION`].
    pub version: u32,
    /// Version of tprof that made the recording.
    pub tprof: String,
    /// Name of the host.
    pub host: String,
    /// Command line; only the base name under `--redact`; empty if the processes were attached by
    /// hand.
    pub command: Vec<String>,
    /// Commit of the working tree in which the run was started, from git's files. Uncommitted
    /// changes don't show. `null` outside of a working tree, and under `--redact`.
    pub commit: Option<String>,
    /// Time when the run began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The same moment in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Time when the last process ended; `null` while the run lasts or if it was cut off.
    pub end_ns: Option<u64>,
    /// True once the collector has finished properly.
    pub finished: bool,
    /// Session directory, which `tprof ctl` uses.
    pub session: String,
    /// Pid of the collector.
    pub collector_pid: u32,
    /// Time when the collector started, in clock ticks since the machine's boot. Together, the pid
    /// and this time identify the collector even if the pid is reused.
    pub collector_start_tick: Option<u64>,
    /// The options of the run, after defaults were applied.
    pub options: serde_json::Value,
    /// Machine: kernel, cpus, memory, clock.
    pub machine: serde_json::Value,
    /// Variables in the collector's environment that name the job. Under `--redact`, the values are
    /// hashes. Empty if no launcher or scheduler named the job.
    pub job: BTreeMap<String, String>,
    /// Counts of recorded and lost events, and the processes that were not recorded.
    pub completeness: Completeness,
    /// The cost of the recording.
    pub overhead: Overhead,
    /// Every recorded program image. [`RunInfo::process_count`] counts the processes.
    pub processes: Vec<ProcessInfo>,
    /// The rank files in this directory that this collector wrote.
    pub files: Vec<String>,
    /// The rank that the collector's own environment names, as `VARIABLE=NUMBER`, if any.
    pub own_rank: Option<String>,
    /// The last signal that asked the launcher to end, and its time (CLOCK_MONOTONIC nanoseconds).
    /// If the run was cut off after it, the sender may have killed the run, as schedulers do after
    /// a grace period.
    pub asked_to_end: Option<(i32, u64)>,
    /// The ranks among `files`.
    pub ranks: Vec<RankInfo>,
    /// Further notes for people who read the recording, each a sentence.
    pub notes: Vec<String>,
    /// Whether the file that these facts were read from lacks its checksum or doesn't match it.
    /// Then the file was damaged, or a person edited it.
    #[serde(skip)]
    pub is_changed: bool,
    /// The reason why the collector could no longer write its files, from the marker next to this
    /// file; empty if the reason isn't known. `None` without a marker.
    #[serde(skip)]
    pub unwritten: Option<String>,
}

/// A rank that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankInfo {
    /// Number of the rank, from 0.
    pub rank: u32,
    /// Number of ranks that the rank's launcher started; `None` if it doesn't say.
    pub size: Option<u32>,
    /// Hash of the launch's name, in hexadecimal; `null` if the launch has no name.
    pub launch: Option<String>,
    /// Number of times that an elastic launcher had started the rank before this recording.
    pub restarts: u32,
    /// Name of the rank's file.
    pub file: String,
}

impl RunInfo {
    /// Whether another tool made the recording and tprof only imported it.
    pub fn is_imported(&self) -> bool {
        self.options.get("imported").is_some()
    }

    /// Returns the number of processes that the images in [`RunInfo::processes`] belong to.
    pub fn process_count(&self) -> usize {
        count_processes(self.processes.iter().map(|image| ImageLife {
            // An import has processes of several hosts, and each host has its own file.
            place: if self.is_imported() { image.file.as_deref().unwrap_or("") } else { "" },
            pid: image.pid,
            start_ns: image.start_ns,
            end_ns: image.end_ns,
            replaced: image.ended_by == "exec",
        }))
    }
}

/// The life of a program image, as [`count_processes`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageLife<'a> {
    /// The scope in which the pid is unique: a host, or one file of a host.
    pub place: &'a str,
    /// Pid of the process.
    pub pid: u32,
    /// Time when the image began, ns.
    pub start_ns: u64,
    /// Time when the image ended, ns; `None` if that isn't known.
    pub end_ns: Option<u64>,
    /// Whether an `exec` ended the image.
    pub replaced: bool,
}

/// Returns the number of processes that these program images belong to. An `exec` begins an image
/// but not a process. If a pid is reused after its process ended, it counts as another process.
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

/// Counts of recorded and lost events, and the processes that were not recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Completeness {
    /// Number of events recorded, as [`crate::Recorded`] defines them.
    pub recorded: u64,
    /// Number of CPU samples recorded.
    pub samples: u64,
    /// Number of events known to be lost.
    pub lost: u64,
    /// The losses by kind.
    pub losses: Vec<LossInfo>,
    /// Processes that were not recorded, wholly or in part.
    pub blind: Vec<BlindSpot>,
}

impl Completeness {
    /// Whether nothing is missing but what the user left out.
    pub fn is_as_asked(&self) -> bool {
        self.lost == 0 && self.losses.is_empty() && self.blind.iter().all(|gap| gap.as_asked)
    }
}

/// One kind of loss, with its count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LossInfo {
    /// Kind of record that was lost.
    pub what: String,
    /// Reason of the loss.
    pub why: String,
    /// Number of records.
    pub count: u64,
}

/// The value of [`BlindSpot::what`] for a process that still runs when recording ends.
pub const LATER_EVENTS: &str = "later events";

/// The value of [`BlindSpot::what`] if nothing was recorded.
pub const EVERYTHING: &str = "everything";

/// A process of which some or all data wasn't recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlindSpot {
    /// `pid NAME` or a path.
    pub process: String,
    /// The data that wasn't recorded, such as `everything` or `allocations`.
    pub what: String,
    /// The reason why it wasn't recorded.
    pub why: String,
    /// Whether an option or a command of the user asked for this.
    pub as_asked: bool,
}

impl BlindSpot {
    /// Returns a gap that the user has not asked for.
    pub fn new(
        process: impl Into<String>,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> BlindSpot {
        let (process, what, why) = (process.into(), what.into(), why.into());
        BlindSpot { process, what, why, as_asked: false }
    }

    /// Names the process as `sh (pid 7)`, because `7 sh` reads as seven processes.
    pub fn process_words(&self) -> String {
        match self.process.split_once(' ') {
            Some((pid, name)) if pid.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => {
                format!("{name} (pid {pid})")
            }
            _ => self.process.clone(),
        }
    }
}

/// Whether the allocations of any process weren't recorded, so that sums over the heap are only
/// lower bounds.
pub fn misses_allocations(blind: &[BlindSpot]) -> bool {
    blind.iter().any(|blind| blind.what == "allocations")
}

/// Groups equal blind spots in the order of their first appearance, and describes the processes of
/// each group.
///
/// Returns `(what, processes, why)`, for example
/// `("everything", "sh (pid 7) and 2 more", "statically linked")`.
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

/// Version of [`Overhead`]. Before version 2, `host_ns` and `fraction` had no bounds, and could
/// include waits.
pub const OVERHEAD_VERSION: u32 = 2;

/// The cost of the recording.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// The [`OVERHEAD_VERSION`] of this value.
    pub version: u32,
    /// CPU time that recording took in the job's threads, without waits; the sum of `parts`. This
    /// is an estimate, the middle of its bounds.
    pub host_ns: Option<u64>,
    /// Lower bound of `host_ns`.
    pub host_ns_low: Option<u64>,
    /// Upper bound of `host_ns`.
    pub host_ns_high: Option<u64>,
    /// The parts of `host_ns`.
    pub parts: Vec<OverheadPart>,
    /// Time for which the job's threads waited for the collector; measured.
    pub wait_ns: u64,
    /// CPU time of the launched processes, or of the attached processes as they were last read.
    pub job_cpu_ns: Option<u64>,
    /// `host_ns / job_cpu_ns`, at most 1; `null` if either isn't known, or if `job_cpu_ns` is below
    /// 50 ms, which is too short to measure.
    pub fraction: Option<f64>,
    /// Lower bound of `fraction`, from `host_ns_low`.
    pub fraction_low: Option<f64>,
    /// Upper bound of `fraction`, from `host_ns_high`.
    pub fraction_high: Option<f64>,
    /// CPU time of the collector; measured.
    pub collector_cpu_ns: u64,
    /// Always true, because a cost with bounds is an estimate.
    pub estimate: bool,
}

/// One part of the recording's cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OverheadPart {
    /// `events`, `notes`, `stacks`, `operators`, `in_place`, `samples`, `switches` or `starts`.
    pub part: String,
    /// Number of operations.
    pub count: u64,
    /// Lower bound of the operations' CPU time.
    pub ns_low: u64,
    /// Upper bound of the operations' CPU time; `null` if the cost of an operation isn't known.
    pub ns_high: Option<u64>,
}

/// A program image: the life of a process from its beginning or an `exec` to the next `exec`, or to
/// its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Pid of the process.
    pub pid: u32,
    /// Pid of the parent process.
    pub parent: u32,
    /// Rank, if any process of the run has one.
    pub rank: Option<u32>,
    /// The command line.
    pub command: String,
    /// Exit status, if the process exited and the status was recorded.
    pub exit_status: Option<i32>,
    /// Signal number, if a signal killed the process and that was recorded.
    pub signal: Option<i32>,
    /// `exit`, `signal`, `exec`, `running` or `unknown`.
    pub ended_by: String,
    /// Time when the image attached, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Time when the image ended.
    pub end_ns: Option<u64>,
    /// Rank file that contains the image's data.
    pub file: Option<String>,
    /// Number of the image's records that were lost, including events before the image attached;
    /// `null` for an image that never attached.
    pub lost: Option<u64>,
    /// Whether it is tprof itself, which the job ran: `tprof ctl`, or a call of its Python module.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_blind_spots_are_grouped_under_the_first_process() {
        let blind = |process: &str, why: &str| BlindSpot::new(process, "everything", why);
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
    fn an_exec_continues_its_process_and_a_reused_pid_is_a_new_process() {
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
            // This process reuses the pid. The row was recorded just before its `exec`.
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

//! Finds why a process was killed, as far as the data shows it.
//!
//! Only the cgroup's own count of OOM kills proves an OOM kill. A SIGKILL by itself proves nothing
//! about memory, and neither does memory use near the limit.

use std::sync::Arc;

use tprof_facts::units;
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::{Process, ProcessEnd};

use super::timeline::Cgroup;

/// Memory use is called near the limit from this share of the limit on.
pub const NEAR_LIMIT: f64 = 0.95;

/// A process that was killed by a signal.
#[derive(Clone, Debug)]
pub struct Death {
    /// Id of the process.
    pub pid: u32,
    /// Command line of the process.
    pub command: String,
    /// Number of the signal.
    pub signal: i32,
    /// The time of death, nanoseconds since the run began.
    pub at_ns: u64,
    /// `oom`, `perhaps-oom`, `killed`, `crashed` or `stopped`.
    pub cause: &'static str,
    /// The evidence, in sentences.
    pub why: String,
    /// The last RSS that was read, bytes.
    pub rss_bytes: Reading<u64>,
    /// Live heap bytes at the end.
    pub heap_bytes: Reading<u64>,
    /// Largest owners of live bytes at the end.
    pub owners: Vec<Owner>,
}
object! { Death {
    plain pid, plain command, plain signal, plain at_ns, plain cause, plain why,
    reading rss_bytes, reading heap_bytes, plain owners,
} }

/// A call stack that held memory when a process was killed.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Live bytes of the stack.
    pub live_bytes: u64,
    /// Frames of the stack, innermost first.
    pub stack: Vec<Arc<str>>,
}
object! { Owner { plain live_bytes, plain stack } }

/// Returns the processes that a signal ended, with the time and the signal.
pub(crate) fn killed(file: &TraceFile) -> impl Iterator<Item = (&Process, u64, i32)> {
    file.processes().iter().filter_map(|process| match file.process_end(process.process) {
        Some((time_ns, ProcessEnd::Signal(signal))) => Some((process, time_ns, signal)),
        _ => None,
    })
}

impl Death {
    /// Judges the cause; `sigkills` is the number of the run's processes that SIGKILL ended.
    pub fn judge(&mut self, cgroup: &Cgroup, sigkills: u64) {
        (self.cause, self.why) = match self.signal {
            9 => sigkill(cgroup, sigkills),
            4 | 5 | 6 | 7 | 8 | 11 | 31 => {
                ("crashed", format!("{} is the program's own failure.", units::signal(self.signal)))
            }
            signal => ("stopped", format!("{} ended it{}", units::signal(signal), sender(signal))),
        };
    }
}

/// Says who usually sends a signal.
fn sender(signal: i32) -> &'static str {
    match signal {
        1 => ": its terminal was closed, or `kill` sent it.",
        2 => ": Ctrl-C, or a program that passes it on.",
        15 => {
            ": a scheduler sends that (time limit, preemption), a launcher to the other ranks after \
             one failed, or `kill`."
        }
        _ => ".",
    }
}

fn sigkill(cgroup: &Cgroup, sigkills: u64) -> (&'static str, String) {
    let usage = usage(cgroup);
    match cgroup.oom_kills.get() {
        Some(kills) if kills >= sigkills.max(1) => {
            let kills = units::counted(kills, "OOM kill", "OOM kills");
            ("oom", format!("Out of memory: the cgroup counted {kills} during the run.{usage}"))
        }
        Some(kills) if kills > 0 => {
            let kills = units::counted(kills, "OOM kill", "OOM kills");
            let why = format!(
                "Perhaps out of memory: the cgroup counted {kills}, but {sigkills} processes were \
                 killed by SIGKILL.{usage}"
            );
            ("perhaps-oom", why)
        }
        Some(_) => {
            let why = format!(
                "Not by its cgroup's OOM killer, which counted no kill.{usage} The sender of \
                 SIGKILL is unknown: a person, a scheduler (time limit, preemption), or the kernel \
                 for the whole host (`journalctl -k` shows that)."
            );
            ("killed", why)
        }
        None => {
            let why = format!(
                "The sender of SIGKILL is unknown: no count of OOM kills was recorded. `journalctl \
                 -k` shows whether it was the kernel.{usage}"
            );
            ("killed", why)
        }
    }
}

fn usage(cgroup: &Cgroup) -> String {
    let Some(peak) = cgroup.peak_bytes.get() else { return String::new() };
    let Some(limit) = cgroup.limit_bytes.get().filter(|&limit| limit > 0) else {
        return format!(
            " The highest reading of its use was {}; the cgroup has no limit.",
            units::bytes(peak)
        );
    };
    let share = peak as f64 / limit as f64;
    let near = if share >= NEAR_LIMIT { ", near the limit" } else { "" };
    format!(
        " The highest reading of its use was {} of {} ({}{near}).",
        units::bytes(peak),
        units::bytes(limit),
        units::percent(share)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(oom_kills: Reading<u64>, peak: u64) -> Cgroup {
        Cgroup {
            limit_bytes: Reading::Is(1 << 30),
            peak_bytes: Reading::Is(peak),
            held_peak_bytes: Reading::Is(peak),
            last_bytes: Reading::Is(peak),
            oom_kills,
        }
    }

    #[test]
    fn only_an_oom_kill_that_the_cgroup_counted_is_reported() {
        let full = (1 << 30) - 4096;
        assert_eq!(sigkill(&cgroup(Reading::Is(1), full), 1).0, "oom");
        assert_eq!(sigkill(&cgroup(Reading::Is(1), full), 3).0, "perhaps-oom");
        let (cause, why) = sigkill(&cgroup(Reading::Is(0), full), 1);
        assert_eq!(cause, "killed");
        assert!(why.contains("counted no kill") && why.contains("near the limit"), "{why}");
        let (cause, why) = sigkill(&cgroup(Reading::missing("x"), 5), 1);
        assert_eq!(cause, "killed");
        assert!(why.contains("unknown"), "{why}");
    }
}

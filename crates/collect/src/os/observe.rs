//! Quantities read from outside the job: RSS, mapped bytes, the cgroup.

use crate::os::sys;
use std::fs;
use std::path::PathBuf;
use tprof_wire::region::{REGION_BYTES, SESSION_BYTES, TABLES_BYTES};

/// `USER_HZ` is 100 on every Linux ABI.
const TICK_NS: u64 = 10_000_000;
/// Address space that an attached process maps for tprof.
const OWN_MAPPINGS: u64 = (REGION_BYTES + SESSION_BYTES + TABLES_BYTES) as u64;

/// Resident and virtual bytes of an attached process, from `/proc/PID/statm`;
/// the virtual ones without what is mapped for tprof, and unknown where that is
/// not mapped (yet).
pub fn memory_of(pid: u32) -> Option<(u64, Option<u64>)> {
    let text = String::from_utf8(sys::read_small(&format!("/proc/{pid}/statm"))).ok()?;
    let mut fields = text.split_whitespace().map(|f| f.parse::<u64>().ok());
    let page = 4096; // x86-64; asked of the kernel elsewhere would be the same
    let mapped = fields.next()?? * page;
    let resident = fields.next()?? * page;
    Some((resident, mapped.checked_sub(OWN_MAPPINGS)))
}

/// What `/proc/PID/stat` says in one reading of a process that attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Parent's pid.
    pub parent: u32,
    /// CPU time so far.
    pub cpu_ns: u64,
    /// Resident bytes; 0 of a zombie.
    pub resident: u64,
}

/// Reads [`Usage`].
pub fn usage_of(pid: u32) -> Option<Usage> {
    let stat = sys::read_small(&format!("/proc/{pid}/stat"));
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    // Behind the name: the state is the first; parent, user and system time and resident
    // pages are the 2nd, 12th, 13th and 22nd.
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Usage {
        parent: number(1)? as u32,
        cpu_ns: (number(11)? + number(12)?) * TICK_NS,
        resident: number(21)? * 4096,
    })
}

/// Command line, joined by spaces, and executable of a process that lives.
pub fn command_of(pid: u32) -> Option<(String, String)> {
    let words = sys::read_small(&format!("/proc/{pid}/cmdline"));
    let words = words.strip_suffix(b"\0").filter(|w| !w.is_empty())?;
    let words: Vec<_> = words.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    let exe = exe.map_or_else(|_| String::new(), |path| path.to_string_lossy().into_owned());
    Some((words.join(" "), exe))
}

/// The program of a command line, without its path.
pub fn program_of(command: &str) -> String {
    let first = command.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_owned()
}

/// CPU time of a process so far, from `/proc/PID/stat` (a zombie's, too).
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    let stat = sys::read_small(&format!("/proc/{pid}/stat"));
    let stat = String::from_utf8_lossy(&stat);
    let mut fields =
        stat.rsplit_once(") ")?.1.split_whitespace().skip(11).map(|f| f.parse::<u64>().ok());
    let ticks = fields.next()?? + fields.next()??;
    Some(ticks * TICK_NS)
}

/// The memory cgroup of this process (and of the job it launches).
#[derive(Debug, Default)]
pub struct Cgroup {
    current: Option<PathBuf>,
    limit: Option<PathBuf>,
    events: Option<PathBuf>,
}

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupReading {
    /// Bytes charged.
    pub current: Option<u64>,
    /// Limit; `None` without one.
    pub limit: Option<u64>,
    /// OOM kills so far.
    pub oom_kills: Option<u64>,
}

impl Cgroup {
    /// Finds the cgroup, version 2 or 1; empty where there is none.
    pub fn find() -> Cgroup {
        let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let existing = |path: String| Some(PathBuf::from(path)).filter(|p| p.exists());
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let base = match controllers {
                "" => "/sys/fs/cgroup",
                c if c.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
                _ => continue,
            };
            let v2 = controllers.is_empty();
            // In a container the path may be the host's: its own root is mounted.
            for directory in [format!("{base}{}", path.trim_end_matches('/')), base.to_owned()] {
                let name = |two: &str, one: &str| {
                    existing(format!("{directory}/{}", if v2 { two } else { one }))
                };
                let found = Cgroup {
                    current: name("memory.current", "memory.usage_in_bytes"),
                    limit: name("memory.max", "memory.limit_in_bytes"),
                    events: name("memory.events", "memory.oom_control"),
                };
                if found.current.is_some() {
                    return found;
                }
            }
        }
        Cgroup::default()
    }

    /// Reads it.
    pub fn read(&self) -> CgroupReading {
        let number = |path: &Option<PathBuf>| -> Option<u64> {
            fs::read_to_string(path.as_ref()?).ok()?.trim().parse().ok()
        };
        // Version 1 says "no limit" by a number near 2^63.
        let limit = number(&self.limit).filter(|l| *l < 1 << 60);
        let oom_kills = self.events.as_ref().and_then(|path| {
            let text = fs::read_to_string(path).ok()?;
            text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok())
        });
        CgroupReading { current: number(&self.current), limit, oom_kills }
    }
}

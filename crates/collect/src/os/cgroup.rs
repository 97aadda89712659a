//! The memory cgroup of the job.

use std::fs;
use std::path::PathBuf;

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
        // Version 1 writes "no limit" as a number near 2^63.
        let limit = number(&self.limit).filter(|l| *l < 1 << 60);
        let oom_kills = self.events.as_ref().and_then(|path| {
            let text = fs::read_to_string(path).ok()?;
            text.lines().find_map(|l| l.strip_prefix("oom_kill ")?.trim().parse().ok())
        });
        CgroupReading { current: number(&self.current), limit, oom_kills }
    }
}

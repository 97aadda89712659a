//! What this machine and account let be sampled, tried on this process.

use super::counters::why_refused;
use crate::config::PerfEvent;
use crate::perf::attr::{SOFTWARE, flag, software};
use crate::perf::{Attr, Counter};
use crate::sys;
use std::io;

/// What was found; an error says why not.
#[derive(Clone, Debug)]
pub struct Permitted {
    /// Samples of user code.
    pub user: Result<(), String>,
    /// Kernel frames, and stacks of threads that leave their processor.
    pub kernel: Result<(), String>,
    /// Names of the kernel's functions.
    pub kernel_names: bool,
    /// Cycles, instructions, cache references and misses, each.
    pub hardware: [(PerfEvent, Result<(), String>); 4],
    /// Yama's level, where it is there: 0 lets any own process be read, 1
    /// descendants alone.
    pub ptrace_scope: Option<u8>,
}

/// Opens a clock of this process, which never runs.
fn open_clock(flags: u64) -> io::Result<Counter> {
    let attr = Attr {
        kind: SOFTWARE,
        config: software::CPU_CLOCK,
        period: 1_000_000_000,
        flags: flags | flag::DISABLED | flag::EXCLUDE_HV,
        ..Attr::default()
    };
    Counter::open(&attr, 0, -1)
}

/// A machine without such counters refuses otherwise than one that forbids them.
pub(super) fn why_no_hardware(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine shows none to its programs, as most virtual machines".to_owned()
        }
        _ => why_refused(error),
    }
}

/// Tries it.
pub fn permitted() -> Permitted {
    let user_only = flag::EXCLUDE_KERNEL;
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let known = |line: &str| !line.starts_with("0000000000000000");
    let scope = sys::read_small("/proc/sys/kernel/yama/ptrace_scope");
    let cpu_clock = |flags| open_clock(flags).map(drop).map_err(|e| why_refused(&e));
    Permitted {
        user: cpu_clock(user_only),
        kernel: cpu_clock(0),
        kernel_names: names.lines().next().is_some_and(known),
        hardware: PerfEvent::STANDARD.map(|event| (event, event.counts())),
        ptrace_scope: String::from_utf8_lossy(&scope).trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counters_and_no_permission_are_told_apart() {
        let why = |code| why_no_hardware(&io::Error::from_raw_os_error(code));
        for code in [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV] {
            assert!(why(code).contains("shows none to its programs"), "{}", why(code));
        }
        for code in [libc::EACCES, libc::EPERM] {
            assert!(why(code).contains("perf_event_open is"), "{}", why(code));
        }
    }
}

//! What this machine and account let be sampled, tried on this process.

use super::counters::why_refused;
use crate::perf::attr::{HARDWARE, SOFTWARE, flag, hardware, software};
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
    /// Cycles, instructions, cache references and misses.
    pub hardware: Result<(), String>,
    /// Yama's level, where it is there: 0 lets any own process be read, 1
    /// descendants alone.
    pub ptrace_scope: Option<u8>,
}

/// Cycles, instructions, and how well the cache serves them.
const HARDWARE_EVENTS: [u64; 4] =
    [hardware::CYCLES, hardware::INSTRUCTIONS, hardware::CACHE_REFERENCES, hardware::CACHE_MISSES];

/// Opens a counter of this process, which never runs.
fn open(kind: u32, config: u64, flags: u64) -> io::Result<Counter> {
    let attr = Attr {
        kind,
        config,
        period: if kind == SOFTWARE { 1_000_000_000 } else { 0 },
        flags: flags | flag::DISABLED | flag::EXCLUDE_HV,
        ..Attr::default()
    };
    Counter::open(&attr, 0, -1)
}

/// Whether the processor's counters could be opened; why not.
fn hardware_counters() -> Result<(), String> {
    for event in HARDWARE_EVENTS {
        open(HARDWARE, event, flag::EXCLUDE_KERNEL).map_err(|e| why_no_hardware(&e))?;
    }
    Ok(())
}

/// A machine without such counters refuses otherwise than one that forbids them.
fn why_no_hardware(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine shows none to its programs, as most virtual machines".to_owned()
        }
        _ => why_refused(error),
    }
}

/// Why a run that is sampled has no counts of cycles, instructions and cache misses.
pub fn why_no_counts() -> String {
    hardware_counters()
        .err()
        .unwrap_or_else(|| "this machine has them, but this tprof does not read them".to_owned())
}

/// Tries it.
pub fn permitted() -> Permitted {
    let user_only = flag::EXCLUDE_KERNEL;
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let known = |line: &str| !line.starts_with("0000000000000000");
    let scope = sys::read_small("/proc/sys/kernel/yama/ptrace_scope");
    let cpu_clock =
        |flags| open(SOFTWARE, software::CPU_CLOCK, flags).map(drop).map_err(|e| why_refused(&e));
    Permitted {
        user: cpu_clock(user_only),
        kernel: cpu_clock(0),
        kernel_names: names.lines().next().is_some_and(known),
        hardware: hardware_counters(),
        ptrace_scope: String::from_utf8_lossy(&scope).trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counters_no_permission_and_not_read_are_told_apart() {
        let why = |code| why_no_hardware(&io::Error::from_raw_os_error(code));
        for code in [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV] {
            assert!(why(code).contains("shows none to its programs"), "{}", why(code));
        }
        for code in [libc::EACCES, libc::EPERM] {
            assert!(why(code).contains("perf_event_open is"), "{}", why(code));
        }
        // Whatever this machine has, there is a reason.
        assert!(!why_no_counts().is_empty());
    }
}

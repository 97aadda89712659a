//! What this machine and account let be sampled, tried on this process.

use super::counters::why_refused;
use crate::perf::attr::{HARDWARE, SOFTWARE, flag, hardware, software};
use crate::perf::{Attr, Counter};
use crate::sys;

/// What was found; an error says why not.
#[derive(Clone, Debug)]
pub struct Permitted {
    /// Samples of user code.
    pub user: Result<(), String>,
    /// Kernel frames, and stacks of threads that leave their processor.
    pub kernel: Result<(), String>,
    /// Names of the kernel's functions.
    pub kernel_names: bool,
    /// Cycles, instructions, cache misses.
    pub hardware: Result<(), String>,
    /// Yama's level, where it is there: 0 lets any own process be read, 1
    /// descendants alone.
    pub ptrace_scope: Option<u8>,
}

/// Tries it.
pub fn permitted() -> Permitted {
    let open = |kind, config, flags| {
        let attr = Attr {
            kind,
            config,
            period: if kind == SOFTWARE { 1_000_000_000 } else { 0 },
            flags: flags | flag::DISABLED | flag::EXCLUDE_HV,
            ..Attr::default()
        };
        Counter::open(&attr, 0, -1)
    };
    let user_only = flag::EXCLUDE_KERNEL;
    let hardware = match open(HARDWARE, hardware::CYCLES, user_only) {
        Ok(_) => Ok(()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
            Err("this machine shows none to its programs; virtual machines mostly do not"
                .to_owned())
        }
        Err(e) => Err(why_refused(&e)),
    };
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let known = |line: &str| !line.starts_with("0000000000000000");
    let scope = sys::read_small("/proc/sys/kernel/yama/ptrace_scope");
    let cpu_clock =
        |flags| open(SOFTWARE, software::CPU_CLOCK, flags).map(drop).map_err(|e| why_refused(&e));
    Permitted {
        user: cpu_clock(user_only),
        kernel: cpu_clock(0),
        kernel_names: names.lines().next().is_some_and(known),
        hardware,
        ptrace_scope: String::from_utf8_lossy(&scope).trim().parse().ok(),
    }
}

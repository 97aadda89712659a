//! Finds out which data this machine and account permit tprof to sample, by trying each on this
//! process.

use super::refusal::why_refused;
use crate::config::PerfEvent;
use crate::perf::{Counter, attr_of};
use perf_event_open_sys::bindings::{PERF_COUNT_SW_CPU_CLOCK, PERF_TYPE_SOFTWARE};
use std::io::{self, Read};
use tprof_os::proc;

/// The kinds of data and whether the kernel permits them. An error says why it refuses one.
#[derive(Clone, Debug)]
pub struct Permitted {
    /// Samples of user code.
    pub user: Result<(), String>,
    /// Kernel frames, and stacks of threads that leave their processor.
    pub kernel: Result<(), String>,
    /// Names of the kernel's functions.
    pub kernel_names: Result<(), String>,
    /// Cycles, instructions, cache references and cache misses, one by one.
    pub hardware: [(PerfEvent, Result<(), String>); 4],
    /// Yama's level; `None` if Yama isn't active. At level 0 a process may read all processes of
    /// its user, at level 1 only its descendants.
    pub ptrace_scope: Option<u8>,
}

/// Opens a clock of this process, which is never enabled.
fn open_clock(kernel: bool) -> io::Result<Counter> {
    let mut attr = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
    attr.sample_period = 1_000_000_000;
    attr.set_disabled(1);
    attr.set_exclude_hv(1);
    attr.set_exclude_kernel((!kernel).into());
    Counter::open(&attr, 0, -1)
}

/// Returns why the kernel hides the addresses of its functions; `None` if it doesn't.
pub fn why_kernel_names_are_hidden() -> Option<String> {
    // One page is enough. The file has 200,000 lines, and if addresses are shown, only the first
    // few may have the address 0.
    let mut page = vec![0; 4096];
    let mut file = std::fs::File::open("/proc/kallsyms").ok();
    let got = file.as_mut().and_then(|file| file.read(&mut page).ok()).unwrap_or(0);
    if shows_addresses(&page[..got]) {
        return None;
    }
    let number = |path| proc::setting(path).unwrap_or_else(|| "not there".to_owned());
    let restrict = number("kernel/kptr_restrict");
    let paranoid = number("kernel/perf_event_paranoid");
    Some(format!(
        "kernel.kptr_restrict is {restrict} and kernel.perf_event_paranoid {paranoid}; `sysctl \
         kernel.kptr_restrict=0 kernel.perf_event_paranoid=1` or CAP_SYSLOG permits them"
    ))
}

fn shows_addresses(lines: &[u8]) -> bool {
    let address = |line: &[u8]| line.iter().take_while(|b| **b != b' ').any(|b| *b != b'0');
    lines.split(|b| *b == b'\n').filter(|line| line.len() > 16).any(address)
}

/// Tries each kind of data.
pub fn permitted() -> Permitted {
    let cpu_clock = |kernel| open_clock(kernel).map(drop).map_err(|e| why_refused(&e));
    Permitted {
        user: cpu_clock(false),
        kernel: cpu_clock(true),
        kernel_names: why_kernel_names_are_hidden().map_or(Ok(()), Err),
        hardware: PerfEvent::STANDARD.map(|event| (event, event.counts())),
        ptrace_scope: proc::setting("kernel/yama/ptrace_scope")
            .and_then(|scope| scope.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hidden_if_all_addresses_are_zero() {
        let hidden = b"0000000000000000 T _stext\n0000000000000000 t do_one\n00000";
        assert!(!shows_addresses(hidden) && !shows_addresses(b""));
        assert!(shows_addresses(b"0000000000000000 A first\n0000000000001000 A next\n"));
    }
}

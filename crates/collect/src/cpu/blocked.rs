//! Where a thread waits, read while it waits: its pc and stack pointer from
//! `/proc`, its stack from its memory. It is not stopped, and does not notice.
//!
//! This needs the permission that a debugger needs, which a user has over their
//! own processes unless Yama restricts it.

use crate::perf::record::Registers;
use crate::sys;

/// Bytes of stack that are read.
const STACK_BYTES: usize = 32 << 10;

/// A thread's registers and the top of its stack, if it waits in a system call.
/// The frame pointer is not told: 0 stands for unknown and leads nowhere.
pub fn stack_of(pid: u32, tid: u32) -> Option<(Registers, Vec<u8>)> {
    let (sp, pc) = place_of(pid, tid)?;
    let mut bytes = vec![0; STACK_BYTES];
    let got = sys::read_memory(pid, sp, &mut bytes);
    bytes.truncate(got);
    // It may have gone on meanwhile.
    (got >= 8 && place_of(pid, tid)? == (sp, pc)).then_some((Registers { fp: 0, sp, pc }, bytes))
}

/// Stack pointer and pc of a thread in a system call.
fn place_of(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = sys::read_small(&format!("/proc/{pid}/task/{tid}/syscall"));
    parse(std::str::from_utf8(&text).ok()?)
}

fn parse(text: &str) -> Option<(u64, u64)> {
    // "running", or number, six arguments, sp, pc; or "-1", sp, pc.
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., sp, pc] = words.as_slice() else { return None };
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    Some((hex(sp)?, hex(pc)?)).filter(|(sp, _)| *sp != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_has_no_place() {
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse("-1 0x7ffd10 0x55aa\n"), Some((0x7f_fd10, 0x55aa)));
        assert_eq!(
            parse("202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd10 0x55aa\n"),
            Some((0x7f_fd10, 0x55aa))
        );
        assert_eq!(parse("0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), None);
    }
}

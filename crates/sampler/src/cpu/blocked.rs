//! Reads where a thread waits and what it waits for, while it waits. The system call, the pc and
//! the stack pointer come from `/proc`, and the stack comes from the process's memory. The thread
//! isn't stopped and doesn't notice.
//!
//! A debugger needs the same permission as this. Users have it for their own processes unless Yama
//! restricts it. The name of the kernel's function (`wchan`) needs less.

use super::call::Call;
use crate::perf::record::Registers;
use std::fs::File;
use std::os::unix::fs::FileExt;
use tprof_os::proc;
use tprof_os::sys;
use tprof_trace::model::ThreadState;

/// Number of bytes that are read of a stack.
const STACK_BYTES: usize = 32 << 10;

/// What was read of a waiting thread.
#[derive(Debug, Default)]
pub struct BlockedThread {
    /// What the thread waits for, if its system call shows that.
    pub waits_for: Option<ThreadState>,
    /// The system call in which the thread waits, if it is known.
    pub call: Option<Call>,
    /// The descriptor that the thread waits for, if its system call has one.
    pub descriptor: Option<u32>,
    /// The kernel's function in which the thread waits. It is read only if the system call doesn't
    /// show what the thread waits for.
    pub function: Option<String>,
    /// The thread's registers; `None` if they can't be read. The frame pointer can't be read, so it
    /// is 0, which means unknown. The argument is the futex that the thread waits for.
    pub registers: Option<Registers>,
    /// The top of the thread's stack; empty if it can't be read.
    pub stack: Vec<u8>,
}

/// Inspects a waiting thread; `None` if it doesn't wait or if nothing can be read. `stack` says
/// whether to read the content of its stack as well.
pub fn inspect(pid: u32, tid: u32, stack: bool) -> Option<BlockedThread> {
    let file = file_of(pid, tid);
    let text = text_of(file.as_ref());
    let mut blocked = BlockedThread::default();
    if let Some(at) = parse(&text) {
        let call = at.call();
        blocked.call = call;
        blocked.waits_for = call.and_then(|call| call.waits_for(pid, tid));
        blocked.descriptor = call.and_then(|call| call.descriptor(|at| word(pid, at)));
        if stack {
            let mut bytes = vec![0; STACK_BYTES];
            let got = sys::read_memory(pid, at.sp, &mut bytes);
            bytes.truncate(got);
            blocked.stack = bytes;
            let argument = call.and_then(|call| call.futex()).unwrap_or(0);
            blocked.registers = Some(Registers { argument, fp: 0, sp: at.sp, pc: at.pc });
        }
    } else if text.starts_with("running") {
        return None;
    }
    if blocked.waits_for.is_none() {
        blocked.function = function_of(pid, tid);
    }
    let known =
        blocked.registers.is_some() || blocked.waits_for.is_some() || blocked.function.is_some();
    // If the thread has continued meanwhile, its registers have changed and what was read is
    // useless.
    (known && text_of(file.as_ref()) == text).then_some(blocked)
}

/// Returns the descriptor that a thread waits for; `None` if its registers are no longer `at`.
pub fn descriptor(pid: u32, tid: u32, at: Registers) -> Option<u32> {
    let now = parse(&text_of(file_of(pid, tid).as_ref()))
        .filter(|now| (now.pc, now.sp) == (at.pc, at.sp))?;
    now.call()?.descriptor(|address| word(pid, address))
}

fn word(pid: u32, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (sys::read_memory(pid, at, &mut bytes) == bytes.len()).then(|| u32::from_ne_bytes(bytes))
}

fn file_of(pid: u32, tid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/task/{tid}/syscall")).ok()
}

/// Returns the content of a thread's `syscall` file; empty if the file can't be read.
fn text_of(file: Option<&File>) -> String {
    // The file contains the system call's number and eight words of up to 16 digits.
    let mut text = [0; 256];
    let got = file.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    String::from_utf8_lossy(&text[..got]).into_owned()
}

/// Returns the name of the kernel's function in which a thread waits.
fn function_of(pid: u32, tid: u32) -> Option<String> {
    let name = proc::read(&format!("/proc/{pid}/task/{tid}/wchan"));
    // The content is "0" if the thread runs or if the name may not be read.
    String::from_utf8(name).ok().filter(|name| !name.is_empty() && name != "0")
}

/// The line that the kernel writes about a waiting thread.
#[derive(Debug, PartialEq, Eq)]
struct SyscallLine {
    /// Number and arguments of the system call; `None` if the thread waits outside a system call.
    words: Option<(i64, [u64; 6])>,
    sp: u64,
    pc: u64,
}

impl SyscallLine {
    /// Returns the system call; `None` for a 32-bit program, whose calls have other numbers. Such a
    /// program is recognized by its stack and code, which are below 4 GiB.
    fn call(&self) -> Option<Call> {
        let is_narrow = self.sp.max(self.pc) <= u64::from(u32::MAX);
        let (number, args) = self.words.filter(|_| !is_narrow)?;
        Some(Call { number, args })
    }
}

fn parse(text: &str) -> Option<SyscallLine> {
    // The line is "running", or number, six arguments, sp and pc, or "-1", sp and pc.
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., sp, pc] = words.as_slice() else { return None };
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (sp, pc) = (hex(sp)?, hex(pc)?);
    let call = || {
        let [number, args @ .., _, _] = words.as_slice() else { return None };
        let args: Option<Vec<u64>> = args.iter().map(|word| hex(word)).collect();
        Some((number.parse().ok()?, args?.try_into().ok()?))
    };
    (sp != 0).then(|| SyscallLine { words: call(), sp, pc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeWriter, Read, pipe};
    use std::sync::mpsc::channel;

    #[test]
    fn only_the_line_of_a_waiting_thread_is_parsed() {
        assert_eq!(parse("running\n"), None);
        let held_up = SyscallLine { words: None, sp: 0x7ffd_0000_0010, pc: 0x55aa };
        assert_eq!(parse("-1 0x7ffd00000010 0x55aa\n"), Some(held_up));
        let shown = parse("202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd00000010 0x55aa\n").unwrap();
        let call = Call { number: 202, args: [1, 0x80, 0, 0, 0, 0] };
        assert_eq!((shown.call(), shown.sp, shown.pc), (Some(call), 0x7ffd_0000_0010, 0x55aa));
        assert_eq!(parse("0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), None);
    }

    #[test]
    fn system_calls_of_32_bit_programs_are_not_decoded() {
        let shown = parse("240 0x1 0x80 0x0 0x0 0x0 0x0 0xffd10010 0x565aa\n").unwrap();
        assert_eq!((shown.call(), shown.sp), (None, 0xffd1_0010));
        assert_eq!(parse("202 0x1 x y z 0x0 0x0 0x7ffd00000010 0x5\n").unwrap().call(), None);
    }

    #[test]
    fn a_thread_in_a_read_waits_for_input() {
        let (mut reader, writer): (_, PipeWriter) = pipe().unwrap();
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            sender.send(sys::own_tid()).unwrap();
            reader.read(&mut [0]).unwrap()
        });
        let (pid, tid): (_, u32) = (std::process::id(), receiver.recv().unwrap());
        let blocked = loop {
            let found = inspect(pid, tid, true);
            match found.filter(|found| found.waits_for == Some(ThreadState::Io)) {
                Some(found) => break found,
                None => std::thread::yield_now(),
            }
        };
        drop(writer);
        assert_eq!(thread.join().unwrap(), 0);
        assert!(blocked.registers.is_some() && blocked.stack.len() > 8);
        assert_eq!(blocked.function, None);
    }
}

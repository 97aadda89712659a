//! Starts a collector from the first process that attaches, without side effects for the job. The
//! job has no additional child to wait for, and the collector inherits no descriptor and is in a
//! session of its own.

use crate::arch::{number as n, syscall};
use crate::environment;
use crate::sys::{self, flags};
use core::ffi::c_char;
use tprof_wire::env;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// Maximum number of environment entries that are passed to the collector. Further ones are
/// dropped.
const MOST_ENTRIES: usize = 4096;
const PAGE: usize = 4096;

/// Starts a collector and returns its pid. Whether it works is only seen when it opens its socket.
pub fn start() -> Option<u32> {
    let bin = environment::variable(env::BIN)?;
    let session = environment::variable(env::SESSION)?;
    let shared = flags::MAP_SHARED | flags::MAP_ANONYMOUS;
    let page = sys::map(PAGE, flags::PROT_READ | flags::PROT_WRITE, shared, -1)?;
    // SAFETY: the page was just mapped and zeroed, which is a valid value. The child below shares
    // it.
    let started = unsafe { &*page.cast::<AtomicU32>() };
    // This is a plain fork with exit signal 0. So the job gets no SIGCHLD, and its `wait` without
    // __WALL never sees the child. Signals are blocked, and the child makes only system calls.
    // SAFETY: `clone` without a new stack behaves like `fork`.
    let child = unsafe { syscall(n::CLONE, [0; 6]) };
    if child == 0 {
        // SAFETY: this is the child, which has a copy of everything, and the function never
        // returns.
        unsafe { become_collector(bin, session, started) };
    }
    if child > 0 {
        const WALL: usize = 0x4000_0000;
        // SAFETY: this waits for exactly that child, and the pointers that it passes are null.
        unsafe { syscall(n::WAIT4, [child as usize, 0, WALL, 0, 0, 0]) };
    }
    let pid = started.load(Acquire);
    // SAFETY: nothing uses `started` after this.
    unsafe { sys::unmap(page, PAGE) };
    (pid != 0).then_some(pid)
}

/// Forks the collector, which executes its program. Stores the collector's pid in `started`. Then
/// the process in between exits, so that the job isn't the collector's parent.
unsafe fn become_collector(bin: &'static [u8], session: &'static [u8], started: &AtomicU32) -> ! {
    // SAFETY: this child has a single thread, and passes valid pointers to all system calls.
    unsafe {
        syscall(n::SETSID, [0; 6]);
        let collector = syscall(n::CLONE, [0; 6]);
        if collector != 0 {
            if collector > 0 {
                started.store(collector as u32, Release);
            }
            exit();
        }
        if sys::is_error(syscall(n::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0])) {
            for fd in 0..65_536 {
                sys::close(fd);
            }
        }
        let null = sys::open_read_write(c"/dev/null".as_ptr().cast());
        if null >= 0 {
            syscall(n::DUP2, [null as usize, 1, 0, 0, 0, 0]);
            syscall(n::DUP2, [null as usize, 2, 0, 0, 0, 0]);
        }
        sys::restore_signals(0);
        let arguments =
            [bin.as_ptr(), c"__collect".as_ptr().cast(), session.as_ptr(), core::ptr::null()];
        let mut kept: [*const c_char; MOST_ENTRIES] = [core::ptr::null(); MOST_ENTRIES];
        let mut count = 0;
        let mut at = environment::array();
        while !(*at).is_null() && count + 1 < MOST_ENTRIES {
            let text = core::ffi::CStr::from_ptr(*at).to_bytes();
            let injected = [
                &b"LD_PRELOAD="[..],
                b"CUDA_INJECTION64_PATH=",
                b"NVTX_INJECTION64_PATH=",
                b"INTEL_LIBITTNOTIFY64=",
            ];
            if !injected.iter().any(|name| text.starts_with(name)) {
                if let Some(place) = kept.get_mut(count) {
                    *place = *at;
                }
                count += 1;
            }
            at = at.add(1);
        }
        syscall(
            n::EXECVE,
            [bin.as_ptr() as usize, arguments.as_ptr() as usize, kept.as_ptr() as usize, 0, 0, 0],
        );
        exit()
    }
}

fn exit() -> ! {
    loop {
        // SAFETY: `exit` takes no pointer, and ends only this child.
        unsafe { syscall(n::EXIT, [0; 6]) };
    }
}

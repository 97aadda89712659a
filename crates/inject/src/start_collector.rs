//! Starts a collector from the first attached process without side effects for the job:
//! no child to wait for, no inherited descriptor, a session of its own.

use crate::arch::{number as n, syscall};
use crate::environment;
use crate::sys::{self, flags};
use core::ffi::c_char;
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_wire::env;

/// Environment entries that are passed on; the rest is dropped.
const MOST_ENTRIES: usize = 4096;
const PAGE: usize = 4096;

/// Starts a collector and returns its pid; its socket shows whether it comes up.
pub fn start() -> Option<u32> {
    let bin = environment::variable(env::BIN)?;
    let session = environment::variable(env::SESSION)?;
    let shared = flags::MAP_SHARED | flags::MAP_ANONYMOUS;
    let page = sys::map(PAGE, flags::PROT_READ | flags::PROT_WRITE, shared, -1)?;
    // SAFETY: a zeroed page, shared with the child below.
    let started = unsafe { &*page.cast::<AtomicU32>() };
    // A plain fork with exit signal 0: no SIGCHLD, and `wait` without __WALL
    // never notices it. Called with signals blocked, only by system calls.
    // SAFETY: `clone` without a new stack behaves like `fork`.
    let child = unsafe { syscall(n::CLONE, [0; 6]) };
    if child == 0 {
        // SAFETY: in the child, which owns a copy of everything; never returns.
        unsafe { become_collector(bin, session, started) };
    }
    if child > 0 {
        const WALL: usize = 0x4000_0000;
        // SAFETY: waits for exactly that child.
        unsafe { syscall(n::WAIT4, [child as usize, 0, WALL, 0, 0, 0]) };
    }
    let pid = started.load(Acquire);
    // SAFETY: `started` is not used any more.
    unsafe { sys::unmap(page, PAGE) };
    (pid != 0).then_some(pid)
}

/// `started` gets the collector's pid before the child between ends.
unsafe fn become_collector(bin: &'static [u8], session: &'static [u8], started: &AtomicU32) -> ! {
    // SAFETY: system calls with valid arguments, in a single-threaded child.
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
        // SAFETY: ends this child.
        unsafe { syscall(n::EXIT, [0; 6]) };
    }
}

//! Hooks of the functions that begin and end processes: fork, wait, and all forms of exit.

use crate::real;
use core::ffi::{c_int, c_void};
use tprof_inject::{lifecycle, state};

/// Interposes libc's `fork`. The child attaches at its first event. On kernels that can't zero a
/// page in a forked child, this hook zeroes it, by which the child is recognised as one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    let clock = lifecycle::clock_before();
    let child = real!(FORK() as fn() -> c_int, else -1);
    if child == 0 {
        state::forked();
        lifecycle::born_under_filter();
    } else if child > 0 {
        lifecycle::forked(child as u32, clock);
    }
    child
}

fn reaped(child: c_int, status: *const c_int) -> c_int {
    if child > 0 && !status.is_null() {
        // SAFETY: libc returned a child's pid, so it has stored the child's status there.
        let status = unsafe { *status };
        let exited = status & 0x7f == 0;
        let signalled = (status & 0x7f) as i8 + 1 >= 2 && !exited && status & 0xff != 0x7f;
        if exited || signalled {
            lifecycle::reaped(child as u32, status);
        }
    }
    child
}

/// Interposes libc's `wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait(status: *mut c_int) -> c_int {
    let mut own = 0;
    let at = if status.is_null() { &raw mut own } else { status };
    reaped(real!(WAIT(at) as fn(*mut c_int) -> c_int, else -1), at)
}

/// Interposes libc's `waitpid`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int {
    let mut own = 0;
    let at = if status.is_null() { &raw mut own } else { status };
    reaped(real!(WAITPID(pid, at, options) as fn(c_int, *mut c_int, c_int) -> c_int, else -1), at)
}

/// Interposes libc's `wait3`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, usage: *mut c_void) -> c_int {
    let mut own = 0;
    let at = if status.is_null() { &raw mut own } else { status };
    reaped(
        real!(WAIT3(at, options, usage) as fn(*mut c_int, c_int, *mut c_void) -> c_int, else -1),
        at,
    )
}

/// Interposes libc's `wait4`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait4(
    pid: c_int,
    status: *mut c_int,
    options: c_int,
    usage: *mut c_void,
) -> c_int {
    let mut own = 0;
    let at = if status.is_null() { &raw mut own } else { status };
    reaped(
        real!(WAIT4(pid, at, options, usage) as fn(c_int, *mut c_int, c_int, *mut c_void) -> c_int, else -1),
        at,
    )
}

/// Interposes libc's `waitid`. `info` is a `siginfo_t`, which on Linux has the code at offset 8,
/// the pid at 16 and the status at 24.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitid(kind: c_int, id: u32, info: *mut c_int, options: c_int) -> c_int {
    const WNOWAIT: c_int = 0x0100_0000;
    let result = real!(WAITID(kind, id, info, options) as fn(c_int, u32, *mut c_int, c_int) -> c_int, else -1);
    if result == 0 && !info.is_null() && options & WNOWAIT == 0 {
        // SAFETY: libc has succeeded, so it has filled the caller's `siginfo_t`.
        let (code, pid, status) = unsafe { (*info.add(2), *info.add(4), *info.add(6)) };
        match code {
            1 if pid > 0 => lifecycle::reaped(pid as u32, (status & 0xff) << 8),
            2 | 3 if pid > 0 => lifecycle::reaped(pid as u32, status & 0x7f),
            _ => {}
        }
    }
    result
}

/// Waits forever. This would be needed if libc lacked a function that exits, which never happens.
fn stay() -> ! {
    loop {
        tprof_inject::sys::sleep_ns(1_000_000_000);
    }
}

/// Interposes libc's `exit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exit(status: c_int) -> ! {
    lifecycle::process_exit(status, lifecycle::how::EXIT);
    real!(EXIT(status) as fn(c_int) -> (), else ());
    stay()
}

/// Interposes libc's `quick_exit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    lifecycle::process_exit(status, lifecycle::how::QUICK_EXIT);
    real!(QUICK_EXIT(status) as fn(c_int) -> (), else ());
    stay()
}

/// Interposes libc's `_exit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    lifecycle::leaving_at_once(status);
    real!(UNDERSCORE_EXIT(status) as fn(c_int) -> (), else ());
    stay()
}

/// Interposes libc's `_Exit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    lifecycle::leaving_at_once(status);
    real!(CAPITAL_EXIT(status) as fn(c_int) -> (), else ());
    stay()
}

//! Ways into strict seccomp, where neither clock nor system call may be used,
//! and thread names set by `prctl`.

use crate::real;
use core::ffi::{c_int, c_long};
use tprof_inject::life;

const PR_SET_NAME: c_int = 15;
const PR_SET_SECCOMP: c_int = 22;
const PR_SET_TSC: c_int = 26;

/// Whether this call ends the use of the clock: strict seccomp, or the TSC off.
fn is_strict(option: c_int, value: usize) -> bool {
    option == PR_SET_SECCOMP && value == 1 || option == PR_SET_TSC && value == 2
}

/// Before and after a call that may install a filter: it is assumed to, since
/// afterwards nothing may be asked.
fn is_filter(option: c_int, value: usize) -> bool {
    option == PR_SET_SECCOMP && value == 2
}

/// Hook. Variadic in C; the kernel reads five.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let strict = is_strict(option, a);
    if strict {
        life::entering_strict_seccomp();
    }
    if is_filter(option, a) {
        life::entering_seccomp_filter();
    }
    let result =
        real!(PRCTL(option, a, b, c, d) as fn(c_int, usize, usize, usize, usize) -> c_int, else -1);
    if strict && result != 0 {
        life::strict_seccomp_refused();
    }
    if option == PR_SET_NAME && result == 0 {
        life::thread_renamed();
    }
    result
}

/// Hook. Variadic in C: the words that the caller did not pass are read from
/// registers and its own frame, and handed on unread by the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    const SYS_PRCTL: c_long = 157;
    const SYS_SECCOMP: c_long = 317;
    if number == SYS_SECCOMP && a == 1 || number == SYS_PRCTL && is_filter(a as c_int, b) {
        life::entering_seccomp_filter();
    }
    let strict = number == SYS_SECCOMP && a == 0 || number == SYS_PRCTL && is_strict(a as c_int, b);
    if strict {
        life::entering_strict_seccomp();
    }
    let result = real!(SYSCALL(number, a, b, c, d, e, f) as fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long, else -1);
    if strict && result != 0 {
        life::strict_seccomp_refused();
    }
    result
}

//! Hooks of `prctl` and `syscall`. A program may call these to install a seccomp filter, after
//! which clocks and system calls may be unusable. It may also name a thread with `prctl`, or
//! execute a program by a system call's number.

use crate::hooks::exec;
use crate::real;
use core::ffi::{c_int, c_long};
use tprof_inject::block::Thread;
use tprof_inject::lifecycle;
use tprof_inject::required_syscalls::{self, ForbiddenClasses};
use tprof_inject::seccomp::Counts;

const PR_SET_NAME: c_int = 15;
const PR_SET_SECCOMP: c_int = 22;
const PR_SET_TSC: c_int = 26;

const SYS_EXECVE: c_long = 59;
const SYS_PRCTL: c_long = 157;
const SYS_SECCOMP: c_long = 317;
const SYS_EXECVEAT: c_long = 322;

/// What a call of `prctl` or `syscall` requests.
enum Asked {
    /// Something that doesn't matter here.
    Other,
    /// Strict seccomp, or disabling the TSC, after which this thread may not read the clock.
    Strict,
    /// Installing a filter: the address of its `struct sock_fprog`, and the flags.
    Filter(usize, usize),
}

fn asked_of_prctl(option: c_int, value: usize, program: usize) -> Asked {
    match (option, value) {
        (PR_SET_SECCOMP, 1) | (PR_SET_TSC, 2) => Asked::Strict,
        (PR_SET_SECCOMP, 2) => Asked::Filter(program, 0),
        _ => Asked::Other,
    }
}

fn asked_of_seccomp(operation: usize, flags: usize, program: usize) -> Asked {
    match operation as u32 {
        0 => Asked::Strict,
        1 => Asked::Filter(program, flags),
        _ => Asked::Other,
    }
}

/// What was noted before the call, since afterwards it could be too late. If the call fails, it
/// must be undone.
enum Noted {
    Nothing,
    Strict(Option<&'static Thread>),
    Filter(ForbiddenClasses, usize),
}

impl Asked {
    fn note(self) -> Noted {
        match self {
            Asked::Other => Noted::Nothing,
            Asked::Strict => Noted::Strict(lifecycle::entering_strict_seccomp()),
            Asked::Filter(program, flags) => {
                Noted::Filter(lifecycle::entering_seccomp_filter(program), flags)
            }
        }
    }
}

impl Noted {
    fn done(self, result: c_long) {
        const NEW_LISTENER: usize = 8; // with this flag, the result is a descriptor
        match self {
            Noted::Nothing => {}
            Noted::Strict(noted) if result != 0 => lifecycle::strict_seccomp_refused(noted),
            Noted::Strict(_) => {}
            // If another thread can't take over the filter, the kernel installs none and returns
            // that thread's id.
            Noted::Filter(_, flags) if flags & NEW_LISTENER != 0 && result >= 0 => {}
            Noted::Filter(closing, _) if result != 0 => closing.take_back(),
            Noted::Filter(..) => {}
        }
    }
}

/// Returns which classes of system calls filters forbid in this process. libtprof_cupti.so, which
/// has no hooks, calls this. `make_room` will be called before a filter is installed.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_closed_calls(make_room: extern "C" fn()) -> *const Counts {
    required_syscalls::followed_by(make_room)
}

/// Interposes libc's `prctl`, which is variadic in C. The kernel reads five words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let noted = asked_of_prctl(option, a, b).note();
    let result =
        real!(PRCTL(option, a, b, c, d) as fn(c_int, usize, usize, usize, usize) -> c_int, else -1);
    noted.done(c_long::from(result));
    if option == PR_SET_NAME && result == 0 {
        lifecycle::thread_renamed();
    }
    result
}

/// Interposes libc's `syscall`, which is variadic in C. Words that the caller did not pass contain
/// what was in the registers and in the caller's frame. They are passed on, and the kernel doesn't
/// read them.
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
    let run = |a, b, c, d| real!(SYSCALL(number, a, b, c, d, e, f) as fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long, else -1);
    let noted = match number {
        SYS_SECCOMP => asked_of_seccomp(a, b, c).note(),
        SYS_PRCTL => asked_of_prctl(a as c_int, b, c).note(),
        SYS_EXECVE => {
            // SAFETY: the caller passes the arguments of execve as the kernel demands.
            return unsafe {
                exec::by_number(a as *const _, c as *const _, &mut |c| run(a, b, c, d))
            };
        }
        SYS_EXECVEAT => {
            // SAFETY: the caller passes the arguments of execveat as the kernel demands.
            return unsafe {
                exec::by_number_at(a as c_int, b as *const _, d as *const _, &mut |d| {
                    run(a, b, c, d)
                })
            };
        }
        _ => Noted::Nothing,
    };
    let result = run(a, b, c, d);
    noted.done(result);
    result
}

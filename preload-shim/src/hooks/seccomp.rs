//! Ways into seccomp, after which neither clock nor system call may be usable,
//! thread names set by `prctl`, and programs executed by number.

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

/// The kind of filter that a call installs.
enum Asked {
    /// Nothing of the kind.
    Other,
    /// Strict seccomp, or the TSC off.
    Strict,
    /// A filter: the address of its `struct sock_fprog`, and flags.
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

/// State noted before the call: afterwards it could be too late. A call that is
/// refused leaves no trace.
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
        const NEW_LISTENER: usize = 8; // a descriptor is returned
        match self {
            Noted::Nothing => {}
            Noted::Strict(noted) if result != 0 => lifecycle::strict_seccomp_refused(noted),
            Noted::Strict(_) => {}
            // Where other threads do not follow, the result is the id of one.
            Noted::Filter(_, flags) if flags & NEW_LISTENER != 0 && result >= 0 => {}
            Noted::Filter(closing, _) if result != 0 => closing.take_back(),
            Noted::Filter(..) => {}
        }
    }
}

/// Called by libtprof_cupti.so, which hooks nothing: what filters forbid in this process, and
/// what to call before one does.
#[unsafe(no_mangle)]
pub extern "C" fn tprof_closed_calls(make_room: extern "C" fn()) -> *const Counts {
    required_syscalls::followed_by(make_room)
}

/// Hook. Variadic in C; the kernel reads five.
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
    let run = |a, b, c, d| real!(SYSCALL(number, a, b, c, d, e, f) as fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long, else -1);
    let noted = match number {
        SYS_SECCOMP => asked_of_seccomp(a, b, c).note(),
        SYS_PRCTL => asked_of_prctl(a as c_int, b, c).note(),
        SYS_EXECVE => {
            // SAFETY: the caller's arguments of execve.
            return unsafe {
                exec::by_number(a as *const _, c as *const _, &mut |c| run(a, b, c, d))
            };
        }
        SYS_EXECVEAT => {
            // SAFETY: the caller's arguments of execveat.
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

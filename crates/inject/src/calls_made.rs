//! The system calls that injected code makes, by what they are for: a seccomp
//! filter that permits all of a class leaves that class as it is.
//!
//! A call that is added to a hook is added here. `system_calls_that_are_made` in
//! the process tests runs hooks under a filter of exactly these.

use crate::arch::number as n;
use crate::filter::{Call, Filter};
use crate::pointers;
use crate::sys::flags::*;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// What calls are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Recording in a process that is attached: of new threads, too.
    Threads = 0,
    /// Attaching, as a forked child or a program that is executed does.
    Processes = 1,
    /// Reading memory that may not be there, for Python's frames.
    Reading = 2,
}

const CLASSES: [Class; 3] = [Class::Threads, Class::Processes, Class::Reading];

/// Filters in force that do not permit all of a class. Filters are never taken
/// back, so a count falls only where the kernel refused one.
static CLOSED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// Whether calls of this class may kill.
#[inline(always)]
pub fn closed(class: Class) -> bool {
    CLOSED.get(class as usize).is_none_or(|count| count.load(Relaxed) != 0)
}

/// The classes that a filter closes.
#[derive(Clone, Copy, Default)]
pub struct Closing([bool; 3]);

impl Closing {
    /// What installing the `struct sock_fprog` at this address would close:
    /// nothing if the kernel cannot read it.
    pub fn by(program: usize) -> Closing {
        if closed(Class::Threads) {
            // It may not be looked at, and closes no more than is closed.
            return Closing::default();
        }
        let Some(filter) = Filter::at(program) else { return Closing::default() };
        Closing(CLASSES.map(|class| !filter.permits(calls(class))))
    }

    /// Whether this class is among them.
    pub fn closes(self, class: Class) -> bool {
        self.0.get(class as usize).is_some_and(|closes| *closes)
    }

    /// Before the filter is installed: afterwards it would be too late.
    pub fn begin(self) {
        self.each(|count| {
            count.fetch_add(1, SeqCst);
        });
    }

    /// The kernel refused the filter.
    pub fn take_back(self) {
        self.each(|count| {
            count.fetch_sub(1, SeqCst);
        });
    }

    fn each(self, change: impl Fn(&AtomicU32)) {
        for (count, closes) in CLOSED.iter().zip(self.0) {
            if closes {
                change(count);
            }
        }
    }
}

/// An argument that differs from call to call.
const ANY: Option<u64> = None;
/// An argument that is not passed is zero.
const ZERO: Option<u64> = Some(0);

const fn is(value: usize) -> Option<u64> {
    Some(value as u64)
}

const fn call(number: usize, given: [Option<u64>; 5]) -> Call {
    let [a, b, c, d, e] = given;
    Call { number: number as u32, arguments: [a, b, c, d, e, ZERO] }
}

const fn plain(number: usize) -> Call {
    call(number, [ZERO; 5])
}

const PRIVATE: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

fn calls(class: Class) -> &'static [Call] {
    match class {
        Class::Threads if pointers::asks_the_kernel() => THREADS,
        Class::Threads => THREADS.get(1..).unwrap_or(THREADS),
        Class::Processes => PROCESSES,
        Class::Reading => READING,
    }
}

static THREADS: &[Call] = &[
    // Where the processor does not give the thread pointer away.
    call(n::ARCH_PRCTL, [is(pointers::GET_FS), ANY, ZERO, ZERO, ZERO]),
    call(n::RT_SIGPROCMASK, [is(2), ANY, ANY, is(8), ZERO]),
    call(n::RT_SIGPROCMASK, [is(usize::MAX), ANY, ZERO, is(8), ZERO]),
    plain(n::GETPID),
    plain(n::GETPPID),
    plain(n::GETTID),
    plain(n::SCHED_YIELD),
    call(n::NANOSLEEP, [ANY, ZERO, ZERO, ZERO, ZERO]),
    call(n::CLOCK_GETTIME, [is(1), ANY, ZERO, ZERO, ZERO]),
    call(n::MPROTECT, [ANY, ANY, is(PROT_READ | PROT_WRITE), ZERO, ZERO]),
    call(n::MPROTECT, [ANY, ANY, is(PROT_READ), ZERO, ZERO]),
    call(n::MADVISE, [ANY, ANY, is(MADV_POPULATE_WRITE), ZERO, ZERO]),
    call(n::MADVISE, [ANY, ANY, is(MADV_WIPEONFORK), ZERO, ZERO]),
    call(n::MMAP, [ZERO, ANY, is(PROT_READ | PROT_WRITE), is(PRIVATE), is(usize::MAX)]),
    call(n::MUNMAP, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::PRCTL, [is(16), ANY, ZERO, ZERO, ZERO]),
    call(n::FUTEX, [ANY, ZERO, ANY, ANY, ZERO]),
    call(n::FUTEX, [ANY, is(1), ANY, ZERO, ZERO]),
];

static PROCESSES: &[Call] = &[
    call(n::SOCKET, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::SETSOCKOPT, [ANY, is(1), ANY, ANY, is(16)]),
    call(n::GETSOCKOPT, [ANY, is(1), is(17), ANY, ANY]),
    call(n::CONNECT, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::SENDTO, [ANY, ANY, ANY, ANY, ZERO]),
    call(n::RECVMSG, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::CLOSE, [ANY, ZERO, ZERO, ZERO, ZERO]),
    call(n::PRLIMIT64, [ZERO, ANY, ZERO, ANY, ZERO]),
    call(n::MMAP, [ZERO, ANY, ANY, ANY, ANY]),
    call(n::MPROTECT, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::MADVISE, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::OPEN, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::FSTAT, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::PREAD64, [ANY, ANY, ANY, ANY, ZERO]),
    call(n::FGETXATTR, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::ACCESS, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::READLINK, [ANY, ANY, ANY, ZERO, ZERO]),
    plain(n::UNAME),
    call(n::STAT, [ANY, ANY, ZERO, ZERO, ZERO]),
    // Whether the collector lives.
    call(n::KILL, [ANY, ZERO, ZERO, ZERO, ZERO]),
];

static READING: &[Call] = &[call(n::PROCESS_VM_READV, [ANY, ANY, is(1), ANY, ANY])];

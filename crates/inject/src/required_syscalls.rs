//! The system calls that injected code makes, by what they are for: a seccomp
//! filter that permits all of a class leaves that class as it is.
//!
//! A call that is added to a hook is added here. The process tests run threads under a
//! filter that kills for any other (`sandboxed enough`).

use crate::arch::number as n;
use crate::filter::{Filter, SystemCall};
use crate::seccomp::{self, CLASSES, CallClass, Counts, is_forbidden};
use crate::sys::flags::*;
use crate::{gate, loaded, ring, stacks, state, tls_owner};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use tprof_wire::env;

/// A library that follows this one: makes room there while it may still be made.
type MakeRoom = extern "C" fn();
static FOLLOWER: AtomicUsize = AtomicUsize::new(0);

/// This library's counts, for one that has no hooks.
pub fn followed_by(make_room: MakeRoom) -> *const Counts {
    FOLLOWER.store(make_room as usize, Relaxed);
    seccomp::counts()
}

/// Makes room for records before it may no longer be made, also in the library that
/// follows this one.
pub fn make_room() {
    if gate::recording_if_own().is_some() {
        make_room_of_own();
    }
    let follower = FOLLOWER.load(Relaxed);
    if follower != 0 {
        // SAFETY: a `MakeRoom`, of a library that is never unloaded.
        unsafe { core::mem::transmute::<usize, MakeRoom>(follower)() };
    }
}

extern "C" fn make_room_here() {
    if state::is_attached() {
        make_room_of_own();
    }
}

/// Makes room in this library's region and tables, while system calls may be made.
pub fn make_room_of_own() {
    ring::open_some();
    stacks::map_ahead();
}

/// Called in a library without hooks: the preloaded one knows what filters forbid.
pub fn follow_preloaded() {
    let Some(preloaded) = loaded::named(env::PRELOAD_LIBRARY.as_bytes()) else { return };
    let Some(function) = preloaded.function(c"tprof_closed_calls") else { return };
    // SAFETY: the function of this name and type, of a library of this version's.
    let counts = unsafe {
        core::mem::transmute::<usize, extern "C" fn(MakeRoom) -> *const Counts>(function)(
            make_room_here,
        )
    };
    // SAFETY: what the function of that name returns; the preloaded library stays.
    unsafe { seccomp::follow(counts) };
}

/// The classes that a filter closes.
#[derive(Clone, Copy, Default)]
pub struct ForbiddenClasses([bool; CLASSES.len()]);

impl ForbiddenClasses {
    /// The classes that installing the `struct sock_fprog` at this address would forbid:
    /// nothing if the kernel cannot read it.
    pub fn by(program: usize) -> ForbiddenClasses {
        if is_forbidden(CallClass::Threads) {
            // The filter may not be read, and forbids no more than is forbidden already.
            return ForbiddenClasses::default();
        }
        let Some(filter) = Filter::at(program) else { return ForbiddenClasses::default() };
        ForbiddenClasses(CLASSES.map(|class| !filter.permits(calls(class))))
    }

    /// Whether this class is among them.
    pub fn forbids(self, class: CallClass) -> bool {
        self.0.get(class as usize).is_some_and(|closes| *closes)
    }

    /// Called before the filter is installed: afterwards it would be too late.
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
        for (count, closes) in seccomp::counts().iter().zip(self.0) {
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

const fn call(number: usize, given: [Option<u64>; 5]) -> SystemCall {
    let [a, b, c, d, e] = given;
    SystemCall { number: number as u32, arguments: [a, b, c, d, e, ZERO] }
}

const fn plain(number: usize) -> SystemCall {
    call(number, [ZERO; 5])
}

const PRIVATE: usize = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

fn calls(class: CallClass) -> &'static [SystemCall] {
    match class {
        CallClass::Threads if tls_owner::needs_system_call() => THREADS,
        CallClass::Threads => THREADS.get(1..).unwrap_or(THREADS),
        CallClass::Processes => PROCESSES,
        CallClass::Reading => READING,
        CallClass::Segments => SEGMENTS,
    }
}

static THREADS: &[SystemCall] = &[
    // Needed where the processor does not give the thread pointer away.
    call(n::ARCH_PRCTL, [is(tls_owner::GET_FS), ANY, ZERO, ZERO, ZERO]),
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

static PROCESSES: &[SystemCall] = &[
    call(n::SOCKET, [ANY, ANY, ZERO, ZERO, ZERO]),
    call(n::SETSOCKOPT, [ANY, is(1), ANY, ANY, is(16)]),
    call(n::GETSOCKOPT, [ANY, is(1), is(17), ANY, ANY]),
    call(n::CONNECT, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::SENDMSG, [ANY, ANY, ANY, ZERO, ZERO]),
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

static SEGMENTS: &[SystemCall] = &[call(n::SHMCTL, [ANY, is(IPC_STAT), ANY, ZERO, ZERO])];

static READING: &[SystemCall] = &[call(n::PROCESS_VM_READV, [ANY, ANY, is(1), ANY, ANY])];

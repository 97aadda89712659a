//! Lists the system calls that injected code makes, by class. Under a seccomp filter, a class is
//! usable if the filter permits all of its calls.
//!
//! If a hook makes another system call, it must be added here. The process tests run threads under
//! a filter that kills the process for any other call (`sandboxed enough`).

use crate::arch::number as n;
use crate::filter::{Filter, SystemCall};
use crate::seccomp::{self, CLASSES, CallClass, Counts, is_forbidden};
use crate::sys::flags::*;
use crate::{gate, loaded, ring, stacks, state, tls_owner};
use tprof_wire::env;
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::*};

/// The function with which a library that follows this one prepares room for records, while system
/// calls are still permitted.
type MakeRoom = extern "C" fn();
static FOLLOWER: AtomicUsize = AtomicUsize::new(0);

/// Stores the function of a library without hooks, which follows this one. Returns this library's
/// counts.
pub fn followed_by(make_room: MakeRoom) -> *const Counts {
    FOLLOWER.store(make_room as usize, Relaxed);
    seccomp::counts()
}

/// Prepares room for records while system calls are still permitted, in this library and in the
/// library that follows it.
pub fn make_room() {
    if gate::recording_if_own().is_some() {
        make_room_of_own();
    }
    let follower = FOLLOWER.load(Relaxed);
    if follower != 0 {
        // SAFETY: `followed_by` stored this function, and its library is never unloaded.
        unsafe { core::mem::transmute::<usize, MakeRoom>(follower)() };
    }
}

extern "C" fn make_room_here() {
    if state::is_attached() {
        make_room_of_own();
    }
}

/// Prepares room in this library's region and tables, while system calls are still permitted.
pub fn make_room_of_own() {
    ring::open_some();
    stacks::map_ahead();
}

/// Makes this library, which has no hooks, use what the preloaded library knows about filters.
pub fn follow_preloaded() {
    let Some(preloaded) = loaded::named(env::PRELOAD_LIBRARY.as_bytes()) else { return };
    let Some(function) = preloaded.function(c"tprof_closed_calls") else { return };
    // SAFETY: in the preloaded library `tprof_closed_calls` has this type. Both libraries are of
    // one version, since they are shipped together.
    let counts = unsafe {
        core::mem::transmute::<usize, extern "C" fn(MakeRoom) -> *const Counts>(function)(
            make_room_here,
        )
    };
    // SAFETY: `tprof_closed_calls` returns the counts of the preloaded library, which is never
    // unloaded.
    unsafe { seccomp::follow(counts) };
}

/// The classes of system calls that a filter forbids.
#[derive(Clone, Copy, Default)]
pub struct ForbiddenClasses([bool; CLASSES.len()]);

impl ForbiddenClasses {
    /// The classes that the filter of the `struct sock_fprog` at this address would forbid; none if
    /// the kernel can't read it.
    pub fn by(program: usize) -> ForbiddenClasses {
        if is_forbidden(CallClass::Threads) {
            // Reading the filter needs a forbidden system call. The filter can't forbid more
            // classes anyway.
            return ForbiddenClasses::default();
        }
        let Some(mut filter) = Filter::at(program) else { return ForbiddenClasses::default() };
        ForbiddenClasses(CLASSES.map(|class| !filter.permits(calls(class))))
    }

    /// Whether this class is forbidden.
    pub fn forbids(self, class: CallClass) -> bool {
        self.0.get(class as usize).is_some_and(|closes| *closes)
    }

    /// Counts the classes as forbidden. Called before the filter is installed, since it takes
    /// effect at once.
    pub fn begin(self) {
        self.each(|count| {
            count.fetch_add(1, SeqCst);
        });
    }

    /// Undoes [`ForbiddenClasses::begin`]. Called when the kernel refused the filter.
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

/// An argument whose value differs from call to call.
const ANY: Option<u64> = None;
/// The value of an argument that isn't passed.
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
        CallClass::Files => FILES,
    }
}

static THREADS: &[SystemCall] = &[
    // Needed on processors on which a program can't read the thread pointer itself. Must be the
    // first call, since `calls` leaves it out on others.
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
    // Checks whether the collector is alive.
    call(n::KILL, [ANY, ZERO, ZERO, ZERO, ZERO]),
];

static SEGMENTS: &[SystemCall] = &[call(n::SHMCTL, [ANY, is(IPC_STAT), ANY, ZERO, ZERO])];

static READING: &[SystemCall] = &[
    call(n::PROCESS_VM_READV, [ANY, ANY, is(1), ANY, ANY]),
    call(n::SIGALTSTACK, [ZERO, ANY, ZERO, ZERO, ZERO]),
];

static FILES: &[SystemCall] = &[
    call(n::OPEN, [ANY, is(APPEND), ANY, ZERO, ZERO]),
    call(n::WRITE, [ANY, ANY, ANY, ZERO, ZERO]),
    call(n::CLOSE, [ANY, ZERO, ZERO, ZERO, ZERO]),
];

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::alone;

    /// A program that refuses this call alone, or with its first argument alone.
    fn refusing(number: usize, argument: Option<u32>) -> ForbiddenClasses {
        let op = |code: u64, t: u64, f: u64, k: u64| code | t << 16 | f << 24 | k << 32;
        let (allow, kill) = (op(0x06, 0, 0, 0x7fff_0000), op(0x06, 0, 0, 0));
        let program = match argument {
            None => vec![op(0x20, 0, 0, 0), op(0x15, 1, 0, number as u64), allow, kill],
            Some(value) => vec![
                op(0x20, 0, 0, 0),
                op(0x15, 0, 2, number as u64),
                op(0x20, 0, 0, 16),
                op(0x15, 1, 0, value.into()),
                allow,
                kill,
            ],
        };
        let head = [program.len(), program.as_ptr() as usize];
        ForbiddenClasses::by(head.as_ptr() as usize)
    }

    fn classes(of: ForbiddenClasses) -> [bool; 5] {
        CLASSES.map(|class| of.forbids(class))
    }

    #[test]
    fn a_filter_forbids_the_classes_whose_calls_it_refuses() {
        let _alone = alone();
        assert_eq!(
            classes(refusing(n::PROCESS_VM_READV, None)),
            [false, false, true, false, false]
        );
        assert_eq!(classes(refusing(n::SHMCTL, None)), [false, false, false, true, false]);
        assert_eq!(classes(refusing(n::FUTEX, None)), [true, false, false, false, false]);
        assert_eq!(classes(refusing(n::CONNECT, None)), [false, true, false, false, false]);
        assert_eq!(classes(refusing(n::MMAP, None)), [true, true, false, false, false]);
        assert_eq!(classes(refusing(n::WRITE, None)), [false, false, false, false, true]);
    }

    #[test]
    fn an_argument_that_recording_never_passes_may_be_refused() {
        let _alone = alone();
        assert_eq!(classes(refusing(n::PRCTL, Some(22))), [false; 5]);
        assert_eq!(classes(refusing(n::PRCTL, Some(16))), [true, false, false, false, false]);
    }

    #[test]
    fn a_program_that_the_kernel_cannot_read_forbids_nothing() {
        let _alone = alone();
        assert_eq!(classes(ForbiddenClasses::by(0)), [false; 5]);
    }

    #[test]
    fn a_filter_counts_from_its_beginning_unless_the_kernel_refused_it() {
        let _alone = alone();
        let of = refusing(n::SHMCTL, None);
        of.begin();
        of.begin();
        assert!(is_forbidden(CallClass::Segments) && !is_forbidden(CallClass::Reading));
        of.take_back();
        assert!(is_forbidden(CallClass::Segments), "one is in force");
        of.take_back();
        assert!(!is_forbidden(CallClass::Segments));
    }
}

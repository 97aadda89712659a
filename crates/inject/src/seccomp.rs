//! Classes of system calls that may kill, because seccomp filters do not permit them.
//!
//! A filter is judged before it takes effect. If it permits what recording needs, recording goes
//! on. If it doesn't, attached threads go on with the chunks that they hold, events of new
//! threads are counted as lost, and forked children and new programs are named. Addresses count
//! as unknown arguments, and so does what a filter keeps in scratch memory.
//!
//! - A filter that a raw system call installs bypasses the hook. It may kill the process for one
//!   of our system calls.
//! - A child of `clone(CLONE_VM | CLONE_SETTLS)` with thread-local storage of its own is not
//!   recorded: its allocations and mappings are counted as lost, and programs that it runs attach
//!   by themselves.
//! - Before Linux 5.9, mappings and exec calls of a thread without thread-local storage are lost,
//!   and counted, while a filter is in force.
//! - Chromium brings its own allocator, and its zygotes' children run in namespaces without the
//!   session's directory: the run names them.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// The purpose of a system call. `required_syscalls` lists the calls of each class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallClass {
    /// Recording in a process that is attached: of new threads, too.
    Threads = 0,
    /// Attaching, as a forked child or a program that is executed does.
    Processes = 1,
    /// Reading memory that may not be there, for Python's frames.
    Reading = 2,
    /// Asking how long a System V segment is.
    Segments = 3,
}

/// All the classes.
pub const CLASSES: [CallClass; 4] =
    [CallClass::Threads, CallClass::Processes, CallClass::Reading, CallClass::Segments];

/// For each class, the filters in force that do not permit all of its calls.
pub type Counts = [AtomicU32; CLASSES.len()];

/// Filters are never taken back, so a count falls only where the kernel refused one.
static FORBIDDEN: Counts = [const { AtomicU32::new(0) }; CLASSES.len()];

/// The counts of the library with the hooks for filters, in the one without.
static ELSEWHERE: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());

/// Whether calls of this class may kill.
#[inline(always)]
pub fn is_forbidden(class: CallClass) -> bool {
    let is_counted =
        |counts: &Counts| counts.get(class as usize).is_none_or(|count| count.load(Relaxed) != 0);
    // SAFETY: null, or that library's static, which is never unloaded.
    is_counted(&FORBIDDEN) || unsafe { ELSEWHERE.load(Relaxed).as_ref() }.is_some_and(is_counted)
}

/// This library's counts.
pub fn counts() -> &'static Counts {
    &FORBIDDEN
}

/// Filters are counted by another library, from here on.
///
/// # Safety
/// `counts` is that library's [`counts`], and it is never unloaded.
pub unsafe fn follow(counts: *const Counts) {
    ELSEWHERE.store(counts.cast_mut(), Relaxed);
}

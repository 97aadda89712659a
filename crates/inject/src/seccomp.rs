//! Tracks which classes of system calls may kill the process, because a seccomp filter forbids
//! them.
//!
//! A filter is evaluated before it takes effect. If it permits what recording needs, recording
//! continues. If it doesn't, attached threads continue with the chunks that they have, events of
//! new threads count as lost, and the run lists forked children and new programs. In the
//! evaluation, addresses count as unknown arguments, and so do values that a filter stores in
//! scratch memory.
//!
//! Limits:
//!
//! - A filter that is installed by a raw system call bypasses the hook. It may kill the process for
//!   one of tprof's system calls.
//! - A child of `clone(CLONE_VM | CLONE_SETTLS)` with thread-local storage of its own isn't
//!   recorded. Its allocations and mappings count as lost, and programs that it executes attach by
//!   themselves.
//! - Before Linux 5.9, while a filter is in force, mappings and exec calls of a thread without
//!   thread-local storage are not recorded but counted as lost.
//! - Chromium has its own allocator, and the children of its zygotes run in namespaces without the
//!   session's directory. The run lists these processes.

use tprof_wire::sync::{AtomicPtr, AtomicU32, Ordering::*};

/// What a system call is needed for. `required_syscalls` lists the calls of each class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallClass {
    /// Recording in a process that is attached, including its new threads.
    Threads = 0,
    /// Attaching a forked child or a program that is executed.
    Processes = 1,
    /// Reading memory that may not exist, to find Python's frames, and finding out on which stack a
    /// thread runs.
    Reading = 2,
    /// Finding the size of a System V segment.
    Segments = 3,
    /// Saving a module's code to a file of the session.
    Files = 4,
}

/// All the classes.
pub const CLASSES: [CallClass; 5] = [
    CallClass::Threads,
    CallClass::Processes,
    CallClass::Reading,
    CallClass::Segments,
    CallClass::Files,
];

/// For each class, the number of filters in force that do not permit all of its calls.
pub type Counts = [AtomicU32; CLASSES.len()];

/// This library's counts. A filter can't be removed, so a count goes down only if the kernel
/// refused the filter.
static FORBIDDEN: Counts = [const { AtomicU32::new(0) }; CLASSES.len()];

/// In a library without hooks, the counts of the preloaded library, which hooks the installation of
/// filters.
static ELSEWHERE: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());

/// Whether system calls of this class may kill the process.
#[inline(always)]
pub fn is_forbidden(class: CallClass) -> bool {
    let is_counted =
        |counts: &Counts| counts.get(class as usize).is_none_or(|count| count.load(Relaxed) != 0);
    // SAFETY: `ELSEWHERE` is null or the static of a library that is never unloaded.
    is_counted(&FORBIDDEN) || unsafe { ELSEWHERE.load(Relaxed).as_ref() }.is_some_and(is_counted)
}

/// This library's counts.
pub fn counts() -> &'static Counts {
    &FORBIDDEN
}

/// Makes [`is_forbidden`] consider the counts of another library as well.
///
/// # Safety
/// That library's [`counts`] returned `counts`, and the library is never unloaded.
pub unsafe fn follow(counts: *const Counts) {
    ELSEWHERE.store(counts.cast_mut(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_library_counts_is_forbidden_here_too() {
        let _alone = crate::testing::alone();
        let other: &'static Counts = Box::leak(Box::new(Counts::default()));
        // SAFETY: the counts live for good.
        unsafe { follow(other) };
        assert!(!is_forbidden(CallClass::Segments));
        other[CallClass::Segments as usize].store(1, Relaxed);
        assert!(is_forbidden(CallClass::Segments) && !is_forbidden(CallClass::Reading));
        ELSEWHERE.store(core::ptr::null_mut(), Relaxed);
        assert!(!is_forbidden(CallClass::Segments));
    }
}

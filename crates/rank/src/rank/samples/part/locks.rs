//! Distinguishes three waits that look the same to the kernel, since all of them wait for a futex:
//! for the end of a thread, for a lock that another thread holds, and for a condition. The
//! distinction matters because a wait for a condition may be harmless: idle threads of a pool wait
//! like this.

use tprof_trace::model::ThreadState;

use super::super::names::{Func, Layer};

/// Number of frames that are examined, from the innermost on.
const DEPTH: usize = 40;
/// The innermost functions of any wait for a futex, without leading underscores. They don't show
/// what the wait is for.
const SYSTEM_CALLS: [&str; 4] = [
    "syscall",
    "futex_abstimed_wait_common",
    "futex_abstimed_wait_common64",
    "futex_abstimed_wait_cancelable64",
];

/// The C library's functions that wait for the end of a thread, without leading underscores.
const JOINS: [&str; 6] = [
    "pthread_join",
    "pthread_clockjoin_ex",
    "pthread_timedjoin_ex",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "thrd_join",
];
/// Python's functions in `threading.py` that wait for the end of a thread, without their class.
const PYTHON_JOINS: [&str; 3] = ["join", "_wait_for_tstate_lock", "_shutdown"];

/// The C library's functions that wait for a held lock, without leading underscores.
const LOCKS: [&str; 15] = [
    "pthread_mutex_lock",
    "pthread_mutex_lock_full",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_mutex_cond_lock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_clockwrlock",
    "lll_lock_wait",
    "lll_lock_wait_private",
    "lll_mutex_lock_optimized",
    "futex_lock_pi64",
];
/// Ends of the names of other functions that wait for a held lock: of Rust's standard library,
/// parking_lot and Abseil.
const LOCK_ENDS: [&str; 8] = [
    "::lock_contended",
    "::read_contended",
    "::write_contended",
    "::lock_slow",
    "::lock_shared_slow",
    "::lock_exclusive_slow",
    "Mutex::LockSlow",
    "Mutex::LockSlowLoop",
];
/// Beginnings of the names of functions for the kernel's own locks, and for locks of files.
const KERNEL_LOCKS: [&str; 4] = ["rwsem_", "__mutex_lock", "fcntl_setlk", "locks_lock_inode_wait"];
/// CPython's functions that acquire a lock of the program.
const PYTHON_LOCKS: [&str; 2] = ["PyThread_acquire_lock_timed", "PyMutex_LockTimed"];

/// Whether a wait for a futex is for the end of a thread.
pub fn joins<'f>(state: ThreadState, mut frames: impl Iterator<Item = &'f Func>) -> bool {
    state == ThreadState::Lock
        && frames.by_ref().take(DEPTH).any(|func| match func.layer {
            Layer::Kernel => false,
            Layer::Native => JOINS.contains(&plain(&func.name)),
            Layer::Python => {
                let own = func.name.rsplit('.').next().unwrap_or(&func.name);
                func.file.ends_with("/threading.py") && PYTHON_JOINS.contains(&own)
            }
        })
}

/// Whether a wait is for a lock that another thread holds while it works, as opposed to a wait for
/// the next task.
pub fn wants_held_lock<'f>(
    state: ThreadState,
    frames: impl Iterator<Item = &'f Func> + Clone,
) -> bool {
    if state != ThreadState::Lock || joins(state, frames.clone()) {
        return false;
    }
    let inner = frames.clone().take(DEPTH);
    let mut native = inner.clone().filter(|func| func.layer == Layer::Native);
    let is_lock = |func: &Func| match func.layer {
        Layer::Kernel => KERNEL_LOCKS.iter().any(|start| func.name.starts_with(start)),
        Layer::Native => {
            let name = func.name.split(['@', '(']).next().unwrap_or_default();
            LOCKS.contains(&plain(&func.name)) || LOCK_ENDS.iter().any(|end| name.ends_with(end))
        }
        Layer::Python => false,
    };
    if inner.clone().any(is_lock) {
        return true;
    }
    // Queues, events and conditions also acquire a lock, but in `threading.py`. So the wait is for
    // a held lock only if the user's own code acquires the lock.
    let mut python = frames.filter(|func| func.layer == Layer::Python);
    python.next().is_some_and(|func| func.is_own() && !func.is_import())
        && native.any(|func| PYTHON_LOCKS.contains(&plain(&func.name)))
}

/// Whether a wait for a futex with this stack is for a held lock, as far as that is known. If no
/// compiled function has a name, a wait directly below the user's own Python code is most likely
/// for a lock.
pub(super) fn is_lock(frames: &[&Func]) -> bool {
    if wants_held_lock(ThreadState::Lock, frames.iter().copied()) {
        return true;
    }
    let python = frames.iter().position(|func| func.layer == Layer::Python);
    python.is_some_and(|at| {
        let is_unseen = |func: &&Func| {
            let is_named = !func.is_nameless() && !SYSTEM_CALLS.contains(&plain(&func.name));
            func.layer == Layer::Kernel || func.is_system() && !is_named
        };
        let own = frames[at];
        own.is_own() && !own.is_import() && frames[..at].iter().all(is_unseen)
    })
}

/// Whether a sleep is that of a database, which sleeps and retries until its lock is free.
pub(super) fn is_lock_of_database(frames: &[&Func]) -> bool {
    let inner = frames.iter().take_while(|func| func.layer != Layer::Python);
    inner.take(DEPTH).any(|func| func.layer == Layer::Native && func.module.contains("sqlite3"))
}

/// Returns a name without what libraries add to it: leading underscores, `GI_`, a version.
fn plain(name: &str) -> &str {
    let name = name.trim_start_matches('_').trim_start_matches("GI_").trim_start_matches('_');
    name.split('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str, Layer)]) -> Vec<Func> {
        let func = |(name, place, layer): &(&str, &str, Layer)| Func {
            name: (*name).into(),
            file: if *layer == Layer::Python { *place } else { "" }.into(),
            module: if *layer == Layer::Python { "[python]" } else { *place }.into(),
            layer: *layer,
        };
        frames.iter().map(func).collect()
    }

    fn is(frames: &[(&str, &str, Layer)]) -> (bool, bool) {
        let frames = stack(frames);
        let state = ThreadState::Lock;
        (joins(state, frames.iter()), wants_held_lock(state, frames.iter()))
    }

    use Layer::{Kernel, Native, Python};
    const WAIT: (&str, &str, Layer) = ("__futex_abstimed_wait_common", "libc.so.6", Native);
    const MAIN: (&str, &str, Layer) = ("main", "train", Native);

    #[test]
    fn a_wait_for_the_end_of_a_thread_is_not_a_wait_for_a_lock() {
        assert_eq!(
            is(&[WAIT, ("__pthread_clockjoin_ex", "libc.so.6", Native), MAIN]),
            (true, false)
        );
        assert_eq!(is(&[("pthread_join@GLIBC_2.2.5", "libc.so.6", Native), MAIN]), (true, false));
        let take = ("PyThread_acquire_lock_timed", "libpython3.11.so.1.0", Native);
        let join = ("Thread.join", "/usr/lib/python3.11/threading.py", Python);
        let own = ("main", "/me/train.py", Python);
        assert_eq!(is(&[WAIT, take, join, own]), (true, false));
        assert_eq!(is(&[WAIT, take, ("Batch.join", "/me/train.py", Python)]), (false, true));
    }

    #[test]
    fn a_wait_for_a_condition_is_not_a_wait_for_a_held_lock() {
        let work = ("work", "train", Native);
        assert_eq!(is(&[("__lll_lock_wait", "libc.so.6", Native), work]), (false, true));
        let lock = ("pthread_mutex_lock@@GLIBC_2.2.5", "libc.so.6", Native);
        assert_eq!(is(&[WAIT, lock, work]), (false, true));
        assert_eq!(is(&[WAIT, ("pthread_cond_wait", "libc.so.6", Native), work]), (false, false));
        assert_eq!(is(&[WAIT, ("sem_wait", "libc.so.6", Native), work]), (false, false));
        let rust = ("std::sys::sync::mutex::futex::Mutex::lock_contended", "train", Native);
        assert_eq!(is(&[("syscall", "libc.so.6", Native), rust]), (false, true));
        let kernel = ("rwsem_down_write_slowpath", "[kernel]", Kernel);
        assert_eq!(is(&[kernel, work]), (false, true));
        let take = ("PyThread_acquire_lock_timed", "python3.11", Native);
        let own = ("work", "/me/train.py", Python);
        assert_eq!(is(&[WAIT, take, own]), (false, true));
        let get = ("Condition.wait", "/usr/lib/python3.11/threading.py", Python);
        assert_eq!(is(&[WAIT, take, get, own]), (false, false));
        assert!(!wants_held_lock(ThreadState::Sleep, stack(&[lock]).iter()));
    }
}

//! Finds the cause of a thread's wait from the functions on its stack.
//!
//! The kernel's functions on the stack are the most precise. If their names are hidden, the state
//! in the row decides, which comes from the system call, or else the C library's functions on the
//! stack. The names are those of Linux, glibc, CPython and CUDA.

use tprof_trace::model::ThreadState;

use super::names::{FuncId, FunctionTable, Layer};

/// Number of frames that are examined, from the innermost on.
const LOOKED_AT: usize = 40;

/// Functions that identify the wait at any place on the stack.
const ANYWHERE: [(&str, ThreadState); 15] = [
    ("take_gil", ThreadState::Gil),
    // A thread that was asked to release the lock waits in `drop_gil` until another thread has
    // taken it.
    ("drop_gil", ThreadState::Gil),
    ("PyEval_RestoreThread", ThreadState::Gil),
    // Before Python 3.11, a sleep is a call of `select` without descriptors.
    ("pysleep", ThreadState::Sleep),
    ("time_sleep", ThreadState::Sleep),
    ("cuCtxSynchronize", ThreadState::Device),
    ("cuStreamSynchronize", ThreadState::Device),
    ("cuEventSynchronize", ThreadState::Device),
    ("cudaDeviceSynchronize", ThreadState::Device),
    ("cudaStreamSynchronize", ThreadState::Device),
    ("cudaEventSynchronize", ThreadState::Device),
    ("cuMemcpyDtoH_v2", ThreadState::Device),
    ("cuMemcpyHtoD_v2", ThreadState::Device),
    ("cudaMemcpy", ThreadState::Device),
    ("ncclGroupEnd", ThreadState::Device),
];

/// Beginnings of the names of the kernel's functions.
const KERNEL: [(&str, ThreadState); 37] = [
    ("futex_", ThreadState::Lock),
    ("do_futex", ThreadState::Lock),
    ("rwsem_", ThreadState::Lock),
    ("__mutex_lock", ThreadState::Lock),
    ("fcntl_setlk", ThreadState::Lock),
    ("locks_lock_inode_wait", ThreadState::Lock),
    ("do_nanosleep", ThreadState::Sleep),
    ("hrtimer_nanosleep", ThreadState::Sleep),
    ("common_nsleep", ThreadState::Sleep),
    ("ep_poll", ThreadState::Poll),
    ("do_epoll", ThreadState::Poll),
    ("do_sys_poll", ThreadState::Poll),
    ("poll_schedule_timeout", ThreadState::Poll),
    ("do_poll", ThreadState::Poll),
    ("do_select", ThreadState::Poll),
    ("core_sys_select", ThreadState::Poll),
    ("io_schedule", ThreadState::Io),
    ("folio_wait", ThreadState::Io),
    ("filemap_", ThreadState::Io),
    ("pipe_read", ThreadState::Io),
    ("pipe_write", ThreadState::Io),
    ("anon_pipe_", ThreadState::Io),
    ("unix_stream_", ThreadState::Io),
    ("unix_dgram_", ThreadState::Io),
    ("__skb_wait", ThreadState::Io),
    ("sk_wait", ThreadState::Io),
    ("tcp_", ThreadState::Io),
    ("inet_", ThreadState::Io),
    ("sock_", ThreadState::Io),
    ("n_tty_", ThreadState::Io),
    ("eventfd_read", ThreadState::Io),
    ("vfs_read", ThreadState::Io),
    ("vfs_write", ThreadState::Io),
    ("vfs_fsync", ThreadState::Io),
    ("ksys_read", ThreadState::Io),
    ("ksys_write", ThreadState::Io),
    ("blk_", ThreadState::Io),
];

/// Names of the C library's functions, without leading underscores.
const LIBC: [(&str, ThreadState); 44] = [
    ("futex_abstimed_wait", ThreadState::Lock),
    ("futex_abstimed_wait_cancelable64", ThreadState::Lock),
    ("futex_lock_pi64", ThreadState::Lock),
    ("lll_lock_wait", ThreadState::Lock),
    ("lll_lock_wait_private", ThreadState::Lock),
    ("pthread_cond_wait", ThreadState::Lock),
    ("pthread_cond_timedwait", ThreadState::Lock),
    ("pthread_cond_clockwait", ThreadState::Lock),
    ("pthread_mutex_lock", ThreadState::Lock),
    ("pthread_clockjoin_ex", ThreadState::Lock),
    ("pthread_join", ThreadState::Lock),
    ("pthread_rwlock_rdlock", ThreadState::Lock),
    ("pthread_rwlock_wrlock", ThreadState::Lock),
    ("sem_wait", ThreadState::Lock),
    ("new_sem_wait_slow64.constprop.0", ThreadState::Lock),
    ("sem_clockwait", ThreadState::Lock),
    ("sem_timedwait", ThreadState::Lock),
    ("clock_nanosleep", ThreadState::Sleep),
    ("nanosleep", ThreadState::Sleep),
    ("usleep", ThreadState::Sleep),
    ("sleep", ThreadState::Sleep),
    ("poll", ThreadState::Poll),
    ("ppoll", ThreadState::Poll),
    ("epoll_wait", ThreadState::Poll),
    ("epoll_pwait", ThreadState::Poll),
    ("select", ThreadState::Poll),
    ("pselect", ThreadState::Poll),
    ("libc_read", ThreadState::Io),
    ("read", ThreadState::Io),
    ("readv", ThreadState::Io),
    ("libc_pread64", ThreadState::Io),
    ("pread64", ThreadState::Io),
    ("libc_write", ThreadState::Io),
    ("write", ThreadState::Io),
    ("recv", ThreadState::Io),
    ("libc_recv", ThreadState::Io),
    ("recvfrom", ThreadState::Io),
    ("recvmsg", ThreadState::Io),
    ("libc_recvmsg", ThreadState::Io),
    ("libc_send", ThreadState::Io),
    ("sendmsg", ThreadState::Io),
    ("accept", ThreadState::Io),
    ("libc_accept", ThreadState::Io),
    ("fsync", ThreadState::Io),
];

/// Returns the cause of a wait, from its row or its stack. The row's state comes from the system
/// call; functions further out on the stack show whose lock or event that was.
pub fn wait_of(state: ThreadState, stack: &[FuncId], names: &FunctionTable) -> ThreadState {
    match state {
        ThreadState::Running | ThreadState::Runnable => return state,
        ThreadState::Gil | ThreadState::Device => return state,
        _ => {}
    }
    let frames = || stack.iter().take(LOOKED_AT).map(|id| names.get(*id));
    let native = frames().filter(|f| f.layer == Layer::Native);
    for func in native.clone() {
        let plain = func.name.split('(').next().unwrap_or_default();
        if let Some((_, state)) = ANYWHERE.iter().find(|(name, _)| *name == plain)
            && !(plain == "PyEval_RestoreThread" && may_lack_lock(&func.module))
        {
            return *state;
        }
    }
    if state != ThreadState::Blocked {
        return state;
    }
    // The innermost function in the table decides.
    for func in frames().filter(|f| f.layer == Layer::Kernel) {
        if let Some((_, state)) = KERNEL.iter().find(|(start, _)| func.name.starts_with(start)) {
            return *state;
        }
    }
    for func in native.filter(|f| is_libc(&f.module) || is_reserved(&f.name)) {
        let plain = func.name.trim_start_matches('_').trim_start_matches("GI_");
        let plain = plain.trim_start_matches('_').split('@').next().unwrap_or_default();
        if let Some((_, state)) = LIBC.iter().find(|(name, _)| *name == plain) {
            return *state;
        }
    }
    ThreadState::Blocked
}

/// Whether a function waits for a device.
pub(super) fn is_of_device(function: &str) -> bool {
    let plain = function.split('(').next().unwrap_or_default();
    ANYWHERE.iter().any(|(name, state)| *name == plain && *state == ThreadState::Device)
}

/// Whether a module's name is that of an interpreter that is built without the GIL (`python3.14t`,
/// `libpython3.14t.so.1.0`). There, a thread waits for the GIL only if `take_gil` is on its stack.
fn may_lack_lock(module: &str) -> bool {
    let name = module.strip_prefix("lib").unwrap_or(module);
    let version = name.strip_prefix("python3.").unwrap_or_default();
    version.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('t')
}

fn is_libc(module: &str) -> bool {
    module.starts_with("libc.so")
        || module.starts_with("libpthread")
        || module.starts_with("ld-musl")
}

/// Whether the C standard reserves a function's name for the C library. A static program contains
/// the C library, so the module's name does not tell whether a function belongs to the C library.
fn is_reserved(function: &str) -> bool {
    function.starts_with("__")
}

/// A state in a word.
pub fn word(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Running => "running",
        ThreadState::Runnable => "ready",
        ThreadState::Blocked => "other",
        ThreadState::Lock => "lock",
        ThreadState::Io => "I/O",
        ThreadState::Sleep => "sleep",
        ThreadState::Poll => "poll",
        ThreadState::Gil => "GIL",
        ThreadState::Device => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Func;
    use super::*;

    fn stack(frames: &[(&str, &str, Layer)]) -> (FunctionTable, Vec<FuncId>) {
        let mut names = FunctionTable::default();
        let func = |(name, module, layer): &(&str, &str, Layer)| Func {
            name: (*name).into(),
            file: "".into(),
            module: (*module).into(),
            layer: *layer,
        };
        let ids = frames.iter().map(|f| names.id(func(f))).collect();
        (names, ids)
    }

    fn wait_by(frames: &[(&str, &str, Layer)]) -> ThreadState {
        let (names, ids) = stack(frames);
        wait_of(ThreadState::Blocked, &ids, &names)
    }

    #[test]
    fn the_stack_shows_what_was_waited_for() {
        use Layer::{Kernel, Native, Python};
        let libc = "libc.so.6";
        let futex = [
            ("schedule", "[kernel]", Kernel),
            ("futex_wait_queue", "[kernel]", Kernel),
            ("__futex_abstimed_wait_common", libc, Native),
        ];
        assert_eq!(wait_by(&futex), ThreadState::Lock);
        let mut gil = futex.to_vec();
        gil.push(("take_gil", "python3.11", Native));
        assert_eq!(wait_by(&gil), ThreadState::Gil);
        *gil.last_mut().unwrap() = ("drop_gil", "python3.8", Native);
        assert_eq!(wait_by(&gil), ThreadState::Gil);
        for (module, state) in [
            ("libpython3.13.so.1.0", ThreadState::Gil),
            ("libpython3.13t.so.1.0", ThreadState::Lock),
            ("python3.14t", ThreadState::Lock),
        ] {
            *gil.last_mut().unwrap() = ("PyEval_RestoreThread", module, Native);
            assert_eq!(wait_by(&gil), state, "{module}");
        }
        assert_eq!(wait_by(&[("clock_nanosleep", libc, Native)]), ThreadState::Sleep);
        assert_eq!(wait_by(&[("__poll", libc, Native)]), ThreadState::Poll);
        assert_eq!(wait_by(&[("__libc_recvmsg", libc, Native)]), ThreadState::Io);
        let sync = [("ioctl", libc, Native), ("cuStreamSynchronize", "libcuda.so.1", Native)];
        assert_eq!(wait_by(&sync), ThreadState::Device);
        assert_eq!(wait_by(&[("__clock_nanosleep", "static", Native)]), ThreadState::Sleep);
        // A function of the program that only has the name of a libc function.
        assert_eq!(wait_by(&[("read", "train", Native)]), ThreadState::Blocked);
        assert_eq!(wait_by(&[("sleep", "train.py", Python)]), ThreadState::Blocked);
    }

    #[test]
    fn a_cause_that_the_row_already_has_is_not_changed() {
        let (names, ids) = stack(&[("poll", "libc.so.6", Layer::Native)]);
        for state in [ThreadState::Runnable, ThreadState::Sleep, ThreadState::Gil] {
            assert_eq!(wait_of(state, &ids, &names), state);
        }
    }

    #[test]
    fn functions_further_out_show_which_lock_it_was() {
        let of = |outer| {
            let (names, ids) = stack(&[
                ("__futex_abstimed_wait_common", "libc.so.6", Layer::Native),
                (outer, "libpython3.11.so.1.0", Layer::Native),
            ]);
            wait_of(ThreadState::Lock, &ids, &names)
        };
        assert_eq!(of("take_gil"), ThreadState::Gil);
        assert_eq!(of("cuStreamSynchronize"), ThreadState::Device);
        assert_eq!(of("PyThread_acquire_lock_timed"), ThreadState::Lock);
    }
}

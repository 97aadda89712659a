//! Records the state that tprof inherited, and restores it for the job, because Rust's runtime
//! changes some of it.
//!
//! Before `main`, Rust's runtime ignores SIGPIPE, and opens `/dev/null` on each of the first three
//! descriptors that is closed. A function in `.init_array` runs even earlier, and records the
//! original state.
//!
//! All calls are libc's. nix has no names for the signals that the C library reserves, and cannot
//! query a disposition without changing it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);
/// Signals that the C library reserves. Its `sigaction` refuses both, and it installs a handler for
/// the second one as soon as there are two threads.
const OF_THE_C_LIBRARY: [i32; 2] = [32, 33];
static OWN_IGNORED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// Bit N is set if descriptor N was closed when tprof started.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: `.init_array` has pointers to functions that the C library calls once at the start, with
// arguments in registers, which a C function without parameters may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    CHILD_IGNORED.store(is_ignored(libc::SIGCHLD), Relaxed);
    for (signal, ignored) in OF_THE_C_LIBRARY.into_iter().zip(&OWN_IGNORED) {
        let action = kernel_sigaction(signal, None);
        ignored.store(action.is_some_and(|a| a.handler == libc::SIG_IGN), Relaxed);
    }
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD only queries a descriptor, and fails if the number isn't one.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Relaxed);
}

/// Whether a signal is ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null new action, `sigaction` only writes the old one to `action`, which is
    // live.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// Signals that ask a command to end.
pub const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Makes this process ignore a signal.
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN installs no handler, so no code runs at the signal.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// The kernel's `struct sigaction`; `rest` contains the flags, the restorer and the mask.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: libc::sighandler_t,
    rest: [usize; 3],
}

/// Queries a signal's disposition, and sets it if `new` is given. Makes the system call itself,
/// because the C library hides some signals.
fn kernel_sigaction(signal: i32, new: Option<&KernelAction>) -> Option<KernelAction> {
    const MASK_BYTES: usize = 8;
    let mut old = KernelAction { handler: libc::SIG_DFL, rest: [0; 3] };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or points to a live `KernelAction`, and `old` is a live one. The type
    // has the layout that the kernel expects for a mask of `MASK_BYTES`.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, &raw mut old, MASK_BYTES) };
    (result == 0).then_some(old)
}

/// Restores the signal dispositions that tprof inherited. Async-signal-safe, so that a forked child
/// may call it.
pub fn restore_dispositions() {
    for (signal, ignored) in [(libc::SIGPIPE, &PIPE_IGNORED), (libc::SIGCHLD, &CHILD_IGNORED)] {
        let to = if ignored.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither SIG_IGN nor SIG_DFL installs a handler.
        unsafe { libc::signal(signal, to) };
    }
    for (signal, ignored) in OF_THE_C_LIBRARY.into_iter().zip(&OWN_IGNORED) {
        if ignored.load(Relaxed) {
            let ignore = KernelAction { handler: libc::SIG_IGN, rest: [0; 3] };
            let _ = kernel_sigaction(signal, Some(&ignore));
        }
    }
}

/// Discards a pending SIGXFSZ that a write to one of tprof's own files caused. Async-signal-safe.
pub fn forget_file_size_signal() {
    // SAFETY: SIG_IGN discards a pending signal and runs no code; the outer call restores the
    // previous disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::signal(libc::SIGXFSZ, libc::SIG_IGN)) };
}

/// Restores the default disposition of SIGCHLD, because tprof couldn't wait for its child if it had
/// inherited `SIG_IGN`.
pub fn keep_children_waitable() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Closes the descriptors that were closed when tprof started. Async-signal-safe. Only for a forked
/// child, or right before an exec: otherwise Rust's runtime uses these descriptors.
pub fn reclose_inherited() {
    let closed = CLOSED.load(Relaxed);
    for fd in 0..3 {
        if closed & (1 << fd) != 0 {
            // SAFETY: the caller is a forked child or about to exec, so nothing uses these
            // descriptors any more.
            unsafe { libc::close(fd) };
        }
    }
}

//! Restores what tprof inherited and its runtime then changed, because a job must find it as it
//! was.
//!
//! Rust's runtime ignores SIGPIPE and opens `/dev/null` on each of the first three descriptors that
//! is closed, both before `main`. A function in `.init_array` runs even earlier and records the
//! original state.
//!
//! All calls are libc's: nix knows signals 1 to 31 by name but not the C library's own, and cannot
//! query a disposition without setting one.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CHILD_IGNORED: AtomicBool = AtomicBool::new(false);
/// Signals that the C library keeps for itself: it handles the second from the first thread on, and
/// hides both from `sigaction`.
const OF_THE_C_LIBRARY: [i32; 2] = [32, 33];
static OWN_IGNORED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
/// Bit N is set if descriptor N was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the section holds pointers to functions that the C library calls once
// at start, with arguments that `note` does not take.
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
        // SAFETY: asks about a descriptor number; changes nothing.
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
    // SAFETY: a null new action asks only for the old one.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// Signals that ask a command to end.
pub const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Makes this process ignore a signal.
pub fn ignore(signal: i32) {
    // SAFETY: this disposition runs no code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// The kernel's `struct sigaction`; `rest` is flags, restorer and mask.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: libc::sighandler_t,
    rest: [usize; 3],
}

/// Calls the system call itself, which hides no signal.
fn kernel_sigaction(signal: i32, new: Option<&KernelAction>) -> Option<KernelAction> {
    const MASK_BYTES: usize = 8;
    let mut old = KernelAction { handler: libc::SIG_DFL, rest: [0; 3] };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both point at live values of the kernel's own layout, or to nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, &raw mut old, MASK_BYTES) };
    (result == 0).then_some(old)
}

/// Restores the signal dispositions. Async-signal-safe, for a forked child.
pub fn restore_dispositions() {
    for (signal, ignored) in [(libc::SIGPIPE, &PIPE_IGNORED), (libc::SIGCHLD, &CHILD_IGNORED)] {
        let to = if ignored.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither disposition runs code.
        unsafe { libc::signal(signal, to) };
    }
    for (signal, ignored) in OF_THE_C_LIBRARY.into_iter().zip(&OWN_IGNORED) {
        if ignored.load(Relaxed) {
            let ignore = KernelAction { handler: libc::SIG_IGN, rest: [0; 3] };
            let _ = kernel_sigaction(signal, Some(&ignore));
        }
    }
}

/// Drops a SIGXFSZ that one of tprof's own files caused. Async-signal-safe.
pub fn forget_file_size_signal() {
    // SAFETY: to ignore a signal runs no code, and drops one that waits; then all is as it was.
    unsafe { libc::signal(libc::SIGXFSZ, libc::signal(libc::SIGXFSZ, libc::SIG_IGN)) };
}

/// Lets tprof wait for its child, which an inherited `SIG_IGN` would prevent.
pub fn keep_children_waitable() {
    // SAFETY: the default disposition runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Closes the descriptors that were closed originally. Async-signal-safe, for a forked child or
/// right before an exec: elsewhere those descriptors belong to Rust's runtime.
pub fn reclose_inherited() {
    let closed = CLOSED.load(Relaxed);
    for fd in 0..3 {
        if closed & (1 << fd) != 0 {
            // SAFETY: in the child nothing else uses these descriptors.
            unsafe { libc::close(fd) };
        }
    }
}

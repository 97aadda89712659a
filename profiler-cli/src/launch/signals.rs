//! Handles signals that reach tprof while the job runs.
//!
//! All signals that tprof handles are blocked before the collector starts its threads, and the main
//! thread takes them one by one with `sigtimedwait`. So no handler runs, and no other thread gets a
//! signal. `ctrlc` and `signal-hook` would install handlers, which a forked child would also run
//! until its exec, and `ctrlc` does not report the sender.
//!
//! `nix` provides sets and masks. It has no `sigtimedwait`, and its `Signal` ends at 31. So it can
//! neither forward a real-time signal nor report that one killed the job (its `waitpid` reaps the
//! child and returns EINVAL). Those calls use libc.
#![allow(unsafe_code)]

use super::inherited::{ENDING, is_ignored};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Signals that tprof does not block: those that no process can block, those that a fault in tprof
/// raises, and those that the C library uses.
const NOT_TAKEN: [i32; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGPIPE,
];

/// A signal that was taken from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Number of the signal.
    pub signal: i32,
    /// Whether the kernel sent the signal (for the terminal or a timer), and not a process.
    pub by_kernel: bool,
    /// Pid of the sender in this pid namespace; 0 if no process sent the signal or its pid is
    /// unknown here.
    pub sender: u32,
}

/// A set of signals that are blocked, for [`Signals::next`].
pub struct Signals {
    set: SigSet,
    original: SigSet,
}

impl Signals {
    /// Blocks all signals that tprof handles, in this thread and in the threads that it will start.
    pub fn block() -> Self {
        Self::block_these((1..=libc::SIGRTMAX()).filter(|signal| !NOT_TAKEN.contains(signal)))
    }

    /// Blocks only the signals that end a command: an interrupt, a hang-up, a request to end. A
    /// signal that is ignored, as SIGHUP is under `nohup`, stays ignored.
    pub fn block_ending() -> Self {
        Self::block_these(ENDING.into_iter().filter(|signal| !is_ignored(*signal)))
    }

    /// Undoes what [`Signals::block_ending`] does.
    pub fn unblock_ending() {
        // This fails only for an invalid `how`, which nix never passes.
        let _ = set_of(ENDING).thread_unblock();
    }

    fn block_these(signals: impl IntoIterator<Item = i32>) -> Self {
        let set = set_of(signals);
        // This fails only for an invalid `how`, which nix never passes.
        let original = set.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        Self { set, original: original.unwrap_or(SigSet::empty()) }
    }

    /// Returns the mask of blocked signals before this set was blocked.
    pub fn original(&self) -> SigSet {
        self.original
    }

    /// Returns the next signal of the set, if one comes within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<ReceivedSignal> {
        let info = take(&self.set, timeout)?;
        let by_process = matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: for the codes SI_USER, SI_TKILL and SI_QUEUE, the kernel fills the field
        // `si_pid`.
        let sender = if by_process { unsafe { info.si_pid() } } else { 0 };
        Some(ReceivedSignal {
            signal: info.si_signo,
            by_kernel: info.si_code > 0,
            sender: sender.unsigned_abs(),
        })
    }
}

impl Signals {
    /// Forwards the signals that arrived before the job existed. The job has been forked, but waits
    /// with these signals blocked. So if a signal was sent to the job too, both become one pending
    /// signal, and the job gets it once.
    pub fn forward_pending(&self, pid: i32) {
        while let Some(taken) = self.next(Duration::ZERO) {
            if taken.signal != libc::SIGCHLD {
                send(pid, taken.signal);
            }
        }
    }
}

/// Returns the set of these signal numbers, which may be real-time signals.
fn set_of(signals: impl IntoIterator<Item = i32>) -> SigSet {
    let mut set = *SigSet::empty().as_ref();
    for signal in signals {
        // SAFETY: `set` is a live, initialised set. If the C library reserves a number, `sigaddset`
        // refuses it and leaves the set unchanged.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: `SigSet::empty` initialised the set, and `sigaddset` only adds signals.
    unsafe { SigSet::from_sigset_t_unchecked(set) }
}

/// Removes a blocked signal of a set from the queue, if one comes within `timeout`.
fn take(set: &SigSet, timeout: Duration) -> Option<libc::siginfo_t> {
    let mut info = MaybeUninit::zeroed();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the set, the `siginfo_t` and the timeout are live during the call.
    let signal = unsafe { libc::sigtimedwait(set.as_ref(), info.as_mut_ptr(), &timeout) };
    // SAFETY: `sigtimedwait` has filled `info`; it was zeroed before, and all zeroes is valid too.
    (signal > 0).then(|| unsafe { info.assume_init() })
}

/// Sends a signal to a process. Does nothing if the process has ended.
pub fn send(pid: i32, signal: i32) {
    // SAFETY: `kill` touches no memory of this process.
    unsafe { libc::kill(pid, signal) };
}

/// A state change of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The child ended, with this wait status.
    Ended(i32),
    /// This signal stopped the child.
    Stopped(i32),
    /// The child was continued, and has not been stopped again.
    Continued,
}

/// Returns the state change of a child since the last call, if there was one.
pub fn change_of(pid: i32) -> Option<Change> {
    let mut status = 0;
    let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: `status` is live during the call.
    let found = unsafe { libc::waitpid(pid, &mut status, options) };
    if found != pid {
        return None;
    }
    Some(if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFCONTINUED(status) {
        Change::Continued
    } else {
        Change::Ended(status)
    })
}

/// Reaps the orphans that tprof adopted as the init process, except the job `except`.
pub fn reap_orphans(except: i32) {
    let peek = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is live and zeroed, so `si_pid` is 0 if no child has ended.
        let pid = unsafe {
            match libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), peek) {
                0 => info.assume_init().si_pid(),
                _ => 0,
            }
        };
        if pid == 0 || pid == except {
            return;
        }
        // SAFETY: the status pointer may be null, and `pid` is a child that has ended.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

/// Lets `signal` have its default effect on tprof, immediately.
fn take_effect(signal: i32) {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: `raise` touches no memory. The signal stays pending while it is blocked.
    unsafe { libc::raise(signal) };
    let set = set_of([signal]);
    // The pending signal takes effect before this call returns.
    let _ = set.thread_unblock();
    // This line is reached only if the signal stopped tprof and tprof was continued.
    let _ = set.thread_block();
}

/// Stops tprof as the job was stopped, until the shell continues both.
///
/// The terminal signals the processes of a group one by one. The job may stop, and tprof with it,
/// before the terminal's signal reaches tprof. If the signal arrived after the shell's SIGCONT, it
/// would stop tprof again while the job runs. So tprof first waits briefly for the signal, and
/// removes it. If the job stopped itself, none arrives.
pub fn stop_like_job(signal: i32) {
    const ON_ITS_WAY: Duration = Duration::from_millis(20);
    take(&set_of([signal]), ON_ITS_WAY);
    take_effect(signal);
}

/// Dies by the signal that killed the job, so that tprof's parent gets the same status. tprof
/// writes no core dump, because the job may have written one.
pub fn die_like_job(signal: i32) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // The limit on core dumps isn't enough: if they are piped to a handler, the kernel ignores the
    // limit, but not this flag.
    let _ = set_dumpable(false);
    take_effect(signal);
    // Only the init process of a pid namespace survives the signal.
    std::process::exit(128 + signal)
}

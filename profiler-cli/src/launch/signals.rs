//! Handles signals that reach tprof while the job runs.
//!
//! All signals that can be taken are blocked before the collector starts its threads, and taken one
//! by one with `sigtimedwait`: no handler runs, and only the main thread takes any. `ctrlc` and
//! `signal-hook` would install handlers, which a forked child runs as well until its exec, and
//! `ctrlc` does not report the sender.
//!
//! `nix` provides the sets and masks. It has no `sigtimedwait`, and its `Signal` ends at 31, so it
//! can neither forward a real-time signal nor report a job that died of one (its `waitpid` reaps
//! the child and returns EINVAL). Those calls use libc.
#![allow(unsafe_code)]

use super::inherited::{ENDING, is_ignored};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::mem::MaybeUninit;
use std::time::Duration;

/// Signals raised by a fault of tprof itself, or used inside the C library.
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
    /// Whether the kernel sent it (the terminal, a timer) and not a process.
    pub by_kernel: bool,
    /// Pid of the sender, if a process sent it and its pid is valid here.
    pub sender: u32,
}

/// Signals held back for [`Signals::next`].
pub struct Signals {
    set: SigSet,
    original: SigSet,
}

impl Signals {
    /// Blocks the signals in this thread, and so in threads that it starts.
    pub fn block() -> Self {
        Self::block_these((1..=libc::SIGRTMAX()).filter(|signal| !NOT_TAKEN.contains(signal)))
    }

    /// Blocks only signals that end a command: an interrupt, a hang-up, a request to end. An
    /// ignored signal, as under `nohup`, stays ignored.
    pub fn block_ending() -> Self {
        Self::block_these(ENDING.into_iter().filter(|signal| !is_ignored(*signal)))
    }

    /// Undoes what [`Signals::block_ending`] does.
    pub fn unblock_ending() {
        // It fails only for a wrong `how`, which nix does not pass.
        let _ = set_of(ENDING).thread_unblock();
    }

    fn block_these(signals: impl IntoIterator<Item = i32>) -> Self {
        let set = set_of(signals);
        // As above, it cannot fail.
        let original = set.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        Self { set, original: original.unwrap_or(SigSet::empty()) }
    }

    /// Returns the original mask.
    pub fn original(&self) -> SigSet {
        self.original
    }

    /// Returns the next signal, if one comes within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<ReceivedSignal> {
        let info = take(&self.set, timeout)?;
        let by_process = matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: these codes carry a sender.
        let sender = if by_process { unsafe { info.si_pid() } } else { 0 };
        Some(ReceivedSignal {
            signal: info.si_signo,
            by_kernel: info.si_code > 0,
            sender: sender.unsigned_abs(),
        })
    }
}

impl Signals {
    /// Forwards signals that came before the job could get them. The job, which is still held back,
    /// has them blocked, so that a signal which reached both stays one signal.
    pub fn pass_on(&self, pid: i32) {
        while let Some(taken) = self.next(Duration::ZERO) {
            if taken.signal != libc::SIGCHLD {
                send(pid, taken.signal);
            }
        }
    }
}

/// Creates a set of signals by number, including real-time signals.
fn set_of(signals: impl IntoIterator<Item = i32>) -> SigSet {
    let mut set = *SigSet::empty().as_ref();
    for signal in signals {
        // SAFETY: a live set. The C library refuses the numbers it keeps
        // for itself, and they stay out of the set.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: initialised by `SigSet::empty`.
    unsafe { SigSet::from_sigset_t_unchecked(set) }
}

/// Takes a blocked signal from a set, if one comes within `timeout`.
fn take(set: &SigSet, timeout: Duration) -> Option<libc::siginfo_t> {
    let mut info = MaybeUninit::zeroed();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: all three point at live values.
    let signal = unsafe { libc::sigtimedwait(set.as_ref(), info.as_mut_ptr(), &timeout) };
    // SAFETY: filled by the call; all zeroes is valid as well.
    (signal > 0).then(|| unsafe { info.assume_init() })
}

/// Sends a signal to one process, which may have ended.
pub fn send(pid: i32, signal: i32) {
    // SAFETY: sends a signal, touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// State change of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended, with this wait status.
    Ended(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was continued, and has not been stopped again.
    Continued,
}

/// Returns what happened to the child since the last call.
pub fn change_of(pid: i32) -> Option<Change> {
    let mut status = 0;
    let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: points at a live local; `pid` is our child.
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

/// Reaps orphans that tprof inherited, as init must.
pub fn reap_orphans(except: i32) {
    let peek = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: points at room for an answer; its zeroes stay where there is none.
        let pid = unsafe {
            match libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), peek) {
                0 => info.assume_init().si_pid(),
                _ => 0,
            }
        };
        if pid == 0 || pid == except {
            return;
        }
        // SAFETY: an ended child; its status is not needed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

/// Gives `signal` its default effect on tprof, immediately.
fn take_effect(signal: i32) {
    // SAFETY: the default disposition runs no code.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: sends a signal to this very thread's process.
    unsafe { libc::raise(signal) };
    let set = set_of([signal]);
    // The pending signal takes effect before this returns.
    let _ = set.thread_unblock();
    // Only reached after a stop.
    let _ = set.thread_block();
}

/// Stops tprof as the job was stopped, until the shell continues both.
///
/// The terminal signals the members of a group one by one. The job may have stopped, and tprof with
/// it, before the terminal's own signal reaches tprof. A signal that came after the shell's SIGCONT
/// would stop tprof once more, while the job runs. So that signal is taken first; a job that
/// stopped itself caused none.
pub fn stop_by(signal: i32) {
    const ON_ITS_WAY: Duration = Duration::from_millis(20);
    take(&set_of([signal]), ON_ITS_WAY);
    take_effect(signal);
}

/// Dies by the same signal as the job, so that the waiting process gets the same status. Writes no
/// core dump of tprof in addition to the job's.
pub fn die_by(signal: i32) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // A core handler behind a pipe ignores the limit, but checks this.
    let _ = set_dumpable(false);
    take_effect(signal);
    // Only the init process of a pid namespace survives its own signal.
    std::process::exit(128 + signal)
}

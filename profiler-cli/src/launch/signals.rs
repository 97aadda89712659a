//! Signals that reach tprof while the job runs.
//!
//! All that can be taken are blocked before the collector starts its threads,
//! and taken one by one with `sigtimedwait`: no handler runs, no thread but the
//! main one sees any.
#![allow(unsafe_code)]

use std::time::Duration;

/// Raised by a fault of tprof itself, or used inside the C library.
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

/// A signal that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub signal: i32,
    /// Sent by the kernel (the terminal, a timer), not by a process.
    pub by_kernel: bool,
    /// Who sent it, if a process did and its pid has a meaning here.
    pub sender: u32,
}

/// Signals held back for [`Signals::next`].
pub struct Signals {
    set: libc::sigset_t,
    original: libc::sigset_t,
}

impl Signals {
    /// Blocks them in this thread, and so in those that it will start.
    pub fn block() -> Self {
        let mut set = empty();
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| !NOT_TAKEN.contains(signal)) {
            // SAFETY: a live set. The C library refuses the numbers it keeps
            // for itself, and they stay out of the set.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
        let mut original = empty();
        // SAFETY: both point at live sets.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut original) };
        Self { set, original }
    }

    /// Blocks those alone that end a command: an interrupt, a hang-up, a request to end. One that
    /// is ignored, as `nohup` has it, stays ignored.
    pub fn block_ending() -> Self {
        let mut original = empty();
        let set = ending();
        // SAFETY: both point at live sets.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut original) };
        Self { set, original }
    }

    /// Takes [`Signals::block_ending`] back.
    pub fn unblock_ending() {
        // SAFETY: a live set.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &ending(), std::ptr::null_mut()) };
    }

    /// The mask as it was.
    pub fn original(&self) -> libc::sigset_t {
        self.original
    }

    /// The next signal, if one comes within `timeout`.
    pub fn next(&self, timeout: Duration) -> Option<Taken> {
        // SAFETY: all zeroes is a valid `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: all three point at live values.
        let signal = unsafe { libc::sigtimedwait(&self.set, &mut info, &timeout) };
        if signal <= 0 {
            return None;
        }
        let by_process = matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: these codes carry a sender.
        let sender = if by_process { unsafe { info.si_pid() } } else { 0 };
        Some(Taken { signal, by_kernel: info.si_code > 0, sender: sender.unsigned_abs() })
    }
}

impl Signals {
    /// Passes on what came before the job was there to get it. The job, still
    /// held back, has them blocked, so that one which reached both stays one.
    pub fn pass_on(&self, pid: i32) {
        while let Some(taken) = self.next(Duration::ZERO) {
            if taken.signal != libc::SIGCHLD {
                send(pid, taken.signal);
            }
        }
    }
}

fn empty() -> libc::sigset_t {
    // SAFETY: all zeroes is a valid set on Linux: the empty one.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: a live set.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

fn ending() -> libc::sigset_t {
    let mut set = empty();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all zeroes is a valid `sigaction`; the call only reads into it.
        let ignored = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now) == 0
                && now.sa_sigaction == libc::SIG_IGN
        };
        if !ignored {
            // SAFETY: a live set and a signal's number.
            unsafe { libc::sigaddset(&mut set, signal) };
        }
    }
    set
}

/// Sends a signal to one process; it may be gone.
pub fn send(pid: i32, signal: i32) {
    // SAFETY: sends a signal, touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// How a child changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ended, with this wait status.
    Ended(i32),
    /// Stopped by this signal.
    Stopped(i32),
    /// Continued, and not stopped again since.
    Continued,
}

/// What happened to the child since last asked.
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

/// Takes the status of orphans that were handed to tprof, as init must.
pub fn reap_orphans(except: i32) {
    // SAFETY: all zeroes is a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        let peek = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: points at a live local.
        let answer = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, peek) };
        // SAFETY: `waitid` filled it, or left the zero it was given.
        let pid = unsafe { info.si_pid() };
        if answer != 0 || pid == 0 || pid == except {
            return;
        }
        // SAFETY: an ended child whose status nobody asks for.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

/// Gives `signal` its default effect on tprof, now.
fn take_effect(signal: i32) {
    let mut set = empty();
    // SAFETY: a live set and a signal number from the kernel.
    unsafe { libc::sigaddset(&mut set, signal) };
    // SAFETY: the default disposition runs no code.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: sends a signal to this very thread's process.
    unsafe { libc::raise(signal) };
    // SAFETY: a live set; the pending signal takes effect before this returns.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
    // SAFETY: as above; reached again only after a stop.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Stops tprof as the job was stopped, until the shell continues both.
///
/// The terminal signals the members of a group one by one. The job may have stopped,
/// and tprof with it, before the terminal's own signal reaches tprof; one that came
/// after the shell's SIGCONT would stop tprof once more beside a job that runs. So
/// that signal is taken first; a job that stopped itself has none.
pub fn stop_by(signal: i32) {
    const ON_ITS_WAY: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut set = empty();
    // SAFETY: a live set and a signal number from the kernel.
    unsafe { libc::sigaddset(&mut set, signal) };
    // SAFETY: both point at live values; the signal is blocked, SIGSTOP is ignored here.
    unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &ON_ITS_WAY) };
    take_effect(signal);
}

/// Dies as the job died, so that whoever waits sees the same, and leaves no
/// core of tprof beside the job's.
pub fn die_by(signal: i32) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: points at a live value.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    // SAFETY: changes a flag of this process. A core handler behind a pipe does
    // not ask for the limit, only for this.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    take_effect(signal);
    // Only init of a pid namespace survives its own signal.
    std::process::exit(128 + signal)
}

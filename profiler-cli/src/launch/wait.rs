//! Waits for the job, and passes on signals and stops between the job and the process that started
//! tprof.
//!
//! That process knows only tprof's pid, so tprof forwards its signals to the job. Signals of the
//! terminal are not forwarded: they go to the whole process group, so the job has them already.
//! When the job stops, tprof stops too, as the shell expects.

use crate::launch::signals::{self, Change, ReceivedSignal, Signals};
use std::time::{Duration, Instant};
use tprof_os::proc;

/// Two Ctrl-C within this time make tprof finish without the job. In an interactive job (such as a
/// Python prompt), users press Ctrl-C often, and mean only the job. So the time is shorter than a
/// user needs to read the job's reaction to the first Ctrl-C.
const DOUBLE: Duration = Duration::from_secs(2);

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job ended, with this wait status.
    Ended(i32),
    /// A second Ctrl-C came soon after the first; the job continues without tprof.
    Interrupted,
}

/// Remembers the last Ctrl-C, to detect a second one.
#[derive(Default)]
pub struct Interrupts {
    last: Option<Instant>,
}

impl Interrupts {
    /// Whether this Ctrl-C came within [`DOUBLE`] after another.
    pub fn is_double(&mut self, now: Instant) -> bool {
        let second = self.last.is_some_and(|last| now.duration_since(last) <= DOUBLE);
        self.last = Some(now);
        second
    }
}

/// Waits until the job has ended, or until tprof should finish without it. Signals for which `is_own`
/// returns true are for tprof alone. Calls `asked_to_end` for
/// each signal that asks a process to end.
pub fn wait(
    pid: i32,
    signals: &Signals,
    asked_to_end: &dyn Fn(i32),
    is_own: &dyn Fn(i32) -> bool,
) -> Outcome {
    let init = std::process::id() == 1;
    let mut interrupts = Interrupts::default();
    // `was_stopped`: tprof stopped together with the job, and has not taken the SIGCONT that
    // continued it from the queue yet. `job_is_stopped`: the job is still in that stop.
    let (mut was_stopped, mut job_is_stopped) = (false, false);
    let mut changed = None;
    loop {
        match changed.take().or_else(|| signals::change_of(pid)) {
            Some(Change::Ended(status)) => return Outcome::Ended(status),
            Some(Change::Stopped(signal)) if has_terminal() => {
                signals::stop_like_job(signal);
                (was_stopped, job_is_stopped) = (true, true);
            }
            Some(Change::Continued) => job_is_stopped = false,
            Some(Change::Stopped(_)) | None => {}
        }
        if init {
            signals::reap_orphans(pid);
        }
        // SIGCHLD ends the wait. The timeout is needed because a tracer may take the SIGCHLD.
        let Some(taken) = signals.next(Duration::from_secs(1)) else { continue };
        match taken.signal {
            libc::SIGCHLD => {}
            libc::SIGCONT if std::mem::take(&mut was_stopped) => {
                // The SIGCONT may have been for the whole group or only for tprof. Whether the job
                // is stopped now doesn't show which, because it may have been continued and have
                // stopped again. But if its state has not changed since, only tprof was continued.
                changed = signals::change_of(pid);
                if changed.is_none() && job_is_stopped {
                    signals::send(pid, libc::SIGCONT);
                }
            }
            signal if !taken.by_kernel && is_own(signal) => {}
            signal => {
                if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGXCPU) {
                    asked_to_end(signal);
                }
                if is_for_job(taken, pid) {
                    signals::send(pid, signal);
                }
                if signal == libc::SIGINT && interrupts.is_double(Instant::now()) {
                    return Outcome::Interrupted;
                }
            }
        }
    }
}

/// Whether the signal must be forwarded, because the job has not got it yet.
fn is_for_job(taken: ReceivedSignal, pid: i32) -> bool {
    if taken.by_kernel {
        // Signals of the terminal reach the whole group. Other signals of the kernel, such as an
        // alarm that was set before an exec, reach only tprof.
        return !matches!(
            taken.signal,
            libc::SIGINT
                | libc::SIGQUIT
                | libc::SIGHUP
                | libc::SIGCONT
                | libc::SIGTSTP
                | libc::SIGTTIN
                | libc::SIGTTOU
                | libc::SIGWINCH
        );
    }
    // If the sender belongs to the job, it signalled the group, so the job has already got the
    // signal.
    !descends_from(taken.sender, pid.unsigned_abs())
}

/// Whether tprof has a controlling terminal, from which a shell can continue it.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn descends_from(mut pid: u32, ancestor: u32) -> bool {
    // Real process trees are less deep. The bound is needed because pids are reused.
    for _ in 0..64 {
        if pid == ancestor {
            return true;
        }
        match proc::parent_of(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_quick_interrupts_end_the_wait() {
        let start = Instant::now();
        let mut interrupts = Interrupts::default();
        assert!(!interrupts.is_double(start));
        assert!(!interrupts.is_double(start + Duration::from_secs(60)));
        assert!(interrupts.is_double(start + Duration::from_secs(61)));
    }

    #[test]
    fn signals_of_the_terminal_are_not_forwarded() {
        let taken = ReceivedSignal { signal: libc::SIGINT, by_kernel: true, sender: 0 };
        assert!(!is_for_job(taken, 1_000_000_000));
        assert!(is_for_job(ReceivedSignal { signal: libc::SIGALRM, ..taken }, 1_000_000_000));
        let sent = ReceivedSignal { by_kernel: false, sender: 1, ..taken };
        assert!(is_for_job(sent, 1_000_000_000));
    }

    #[test]
    fn a_signal_from_the_job_itself_is_not_forwarded() {
        let job = std::process::id();
        let taken = ReceivedSignal { signal: libc::SIGTERM, by_kernel: false, sender: job };
        assert!(!is_for_job(taken, job.cast_signed()));
    }
}

//! Waits for the job, and takes its place towards the process that started tprof.
//!
//! That process knows only tprof's pid. Signals sent there are forwarded to the job. Signals of the
//! terminal went to the whole process group, and so already to the job. When the job stops, tprof
//! stops, as the shell expects.

use crate::launch::signals::{self, Change, ReceivedSignal, Signals};
use std::time::{Duration, Instant};
use tprof_collect::proc;

/// Two Ctrl-C within this time make tprof finish. The time is shorter than it takes to read what a
/// job answered to the first one, because an interactive job (such as a Python prompt) gets many,
/// each meant by itself.
const DOUBLE: Duration = Duration::from_secs(2);

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job ended, with this wait status.
    Ended(i32),
    /// A second Ctrl-C came; the job continues without tprof.
    Interrupted,
}

/// Counts Ctrl-C, to detect the second.
#[derive(Default)]
pub struct Interrupts {
    last: Option<Instant>,
}

impl Interrupts {
    /// Whether this Ctrl-C closely follows another.
    pub fn second(&mut self, now: Instant) -> bool {
        let second = self.last.is_some_and(|last| now.duration_since(last) <= DOUBLE);
        self.last = Some(now);
        second
    }
}

/// Waits until the job has ended, or tprof is to finish without it. `asked_to_end` is called for
/// each signal that asks a process to end.
pub fn wait(pid: i32, signals: &Signals, asked_to_end: &dyn Fn(i32)) -> Outcome {
    let init = std::process::id() == 1;
    let mut interrupts = Interrupts::default();
    // Whether tprof was stopped and has not taken the SIGCONT since; whether the job is still in
    // that stop.
    let (mut was_stopped, mut job_is_stopped) = (false, false);
    let mut changed = None;
    loop {
        match changed.take().or_else(|| signals::change_of(pid)) {
            Some(Change::Ended(status)) => return Outcome::Ended(status),
            Some(Change::Stopped(signal)) if has_terminal() => {
                signals::stop_by(signal);
                (was_stopped, job_is_stopped) = (true, true);
            }
            Some(Change::Continued) => job_is_stopped = false,
            Some(Change::Stopped(_)) | None => {}
        }
        if init {
            signals::reap_orphans(pid);
        }
        // SIGCHLD ends the wait; the timeout covers one that a tracer took.
        let Some(taken) = signals.next(Duration::from_secs(1)) else { continue };
        match taken.signal {
            libc::SIGCHLD => {}
            libc::SIGCONT if std::mem::take(&mut was_stopped) => {
                // A sender that continued the whole group also continued the job, which may have
                // stopped again by now: its state would not show that. If nothing changed, only
                // tprof was continued.
                changed = signals::change_of(pid);
                if changed.is_none() && job_is_stopped {
                    signals::send(pid, libc::SIGCONT);
                }
            }
            signal => {
                if matches!(signal, libc::SIGTERM | libc::SIGHUP | libc::SIGXCPU) {
                    asked_to_end(signal);
                }
                if is_for_job(taken, pid) {
                    signals::send(pid, signal);
                }
                if signal == libc::SIGINT && interrupts.second(Instant::now()) {
                    return Outcome::Interrupted;
                }
            }
        }
    }
}

/// Whether the job has not received this signal yet.
fn is_for_job(taken: ReceivedSignal, pid: i32) -> bool {
    if taken.by_kernel {
        // From the terminal, to the whole group. Others, such as an alarm set before an exec, reach
        // only tprof.
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
    // A job that signals its own group meant itself.
    !descends_from(taken.sender, pid.unsigned_abs())
}

/// Whether tprof has a controlling terminal, and so someone to continue it.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn descends_from(mut pid: u32, ancestor: u32) -> bool {
    // Deep enough for any real tree; bounded, because pids are reused.
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
    fn two_interrupts_close_together_are_needed() {
        let start = Instant::now();
        let mut interrupts = Interrupts::default();
        assert!(!interrupts.second(start));
        assert!(!interrupts.second(start + Duration::from_secs(60)));
        assert!(interrupts.second(start + Duration::from_secs(61)));
    }

    #[test]
    fn what_the_terminal_sent_is_not_forwarded() {
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

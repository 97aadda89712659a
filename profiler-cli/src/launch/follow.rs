//! `--follow`: waits until the last process of the job has ended.

use crate::launch::signals::{self, Signals};
use std::time::{Duration, Instant};
use tprof_collect::Session;
use tprof_ui::errors::print_stderr;

/// If processes outlive the command by less than this, no message is printed.
const SILENT: Duration = Duration::from_secs(1);
/// How often to check whether the run has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the run ends, or until a signal ends it. The command has already ended, so signals
/// are now meant for tprof.
pub fn follow(session: &Session, signals: &Signals, quiet: bool) {
    session.follow();
    let (began, mut is_noted) = (Instant::now(), quiet);
    while !session.is_over() {
        if !is_noted && began.elapsed() > SILENT {
            is_noted = true;
            print_stderr(
                "tprof: the command has ended, other processes of the job continue; Ctrl-C stops recording\n",
            );
        }
        match signals.next(PAUSE).map(|taken| taken.signal) {
            Some(libc::SIGINT | libc::SIGTERM | libc::SIGQUIT | libc::SIGHUP) => {
                return session.stop_waiting();
            }
            Some(signal @ (libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)) => {
                signals::stop_like_job(signal);
            }
            // As init process of a pid namespace, tprof adopts orphans and must reap them.
            Some(libc::SIGCHLD) if std::process::id() == 1 => signals::reap_orphans(0),
            _ => {}
        }
    }
}

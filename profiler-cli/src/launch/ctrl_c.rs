//! Handles Ctrl-C in commands that run until the user ends them and that have no job: `open`,
//! `attach`.
//!
//! `ctrlc` calls the handler on its own thread. Commands with a job handle signals differently
//! ([`super::signals`]), because they forward them and need to know the sender.

use super::inherited::{ENDING, ignore, is_ignored};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls `act` at each Ctrl-C, SIGTERM and SIGHUP from now on. A signal that is ignored, as SIGHUP
/// is under `nohup`, stays ignored. May be called only once.
pub fn on_end(act: impl FnMut() + Send + 'static) {
    let ignored = ENDING.map(|signal| is_ignored(signal).then_some(signal));
    // If the handler's thread cannot be started, the signals have their default effect.
    TAKEN.store(ctrlc::set_handler(act).is_ok(), Relaxed);
    ignored.into_iter().flatten().for_each(ignore);
}

/// Whether [`on_end`] handles the signals that end a command.
pub fn is_taken() -> bool {
    TAKEN.load(Relaxed)
}

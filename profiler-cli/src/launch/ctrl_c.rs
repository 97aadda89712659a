//! Ctrl-C in commands that run until they are ended and own no job: `open`, `attach`.
//!
//! `ctrlc` calls them on a thread of its own. A command that owns a job takes signals
//! otherwise ([`super::signals`]): it forwards them, and needs to know who sent which.

use super::inherited::{ENDING, ignore, is_ignored};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls `act` at each Ctrl-C, SIGTERM and SIGHUP from now on. One that is ignored, as
/// `nohup` has it, stays ignored. Once in a process.
pub fn on_end(act: impl FnMut() + Send + 'static) {
    let ignored = ENDING.map(|signal| is_ignored(signal).then_some(signal));
    // Without a thread for it, a signal has its own effect.
    TAKEN.store(ctrlc::set_handler(act).is_ok(), Relaxed);
    ignored.into_iter().flatten().for_each(ignore);
}

/// Whether [`on_end`] takes the signals that end a command.
pub fn is_taken() -> bool {
    TAKEN.load(Relaxed)
}

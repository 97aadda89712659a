//! Handles Ctrl-C in commands that run until they are ended and own no job: `open`, `attach`.
//!
//! `ctrlc` calls the handlers on a thread of its own. A command that owns a job takes signals in
//! another way ([`super::signals`]), because it forwards them and needs to know who sent which.

use super::inherited::{ENDING, ignore, is_ignored};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls `act` at each Ctrl-C, SIGTERM and SIGHUP from now on. An ignored signal, as under `nohup`,
/// stays ignored. Can be called once per process.
pub fn on_end(act: impl FnMut() + Send + 'static) {
    let ignored = ENDING.map(|signal| is_ignored(signal).then_some(signal));
    // If no thread can be started for it, a signal has its default effect.
    TAKEN.store(ctrlc::set_handler(act).is_ok(), Relaxed);
    ignored.into_iter().flatten().for_each(ignore);
}

/// Whether [`on_end`] handles the signals that end a command.
pub fn is_taken() -> bool {
    TAKEN.load(Relaxed)
}

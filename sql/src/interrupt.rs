//! Handles signals that end a query.

use std::path::PathBuf;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tprof_ui::errors::{Failure, reason};

use crate::status::QUERY;

/// Number of signals that are stored until a query handles them.
const PENDING: usize = 8;
/// Exit status of a program ended by Ctrl-C.
pub const CTRL_C: u8 = OF_SIGNAL + 2;
/// Added to a signal's number, this gives the exit status of a program that the signal ends.
const OF_SIGNAL: u8 = 128;

/// Watches signals for as long as the program runs.
#[derive(Clone, Debug)]
pub struct Interrupts(Sender<u8>);

impl Interrupts {
    /// Starts to watch. From now on, the signals do not end the program by themselves: a query that
    /// subscribes decides what happens. If a signal arrives between two queries, this removes the
    /// directory of temporary files and ends the program.
    pub fn watch(spill: PathBuf) -> Result<Interrupts, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new("cannot watch for signals").cause(reason(&error)).code(QUERY)
        };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let (sender, _) = tokio::sync::broadcast::channel(PENDING);
        let of_thread = sender.clone();
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    let status = OF_SIGNAL + u8::try_from(signal).unwrap_or_default();
                    let is_idle = of_thread.send(status).is_err();
                    // The program is at its prompt. There Ctrl-C is a key that the line editor
                    // handles, but any other signal ends the program.
                    if is_idle && signal != SIGINT {
                        let _ = std::fs::remove_dir_all(&spill);
                        let _ = signal_hook::low_level::emulate_default_handler(signal);
                    }
                }
            })
            .map_err(failed)?;
        Ok(Interrupts(sender))
    }

    /// Subscribes to signals from now on.
    pub fn subscribe(&self) -> Next {
        Next(self.0.subscribe())
    }
}

/// Receives the signals that arrive after the subscription.
pub struct Next(Receiver<u8>);

impl Next {
    /// Waits for a signal, and returns the exit status of a program that this signal ends.
    pub async fn status(&mut self) -> u8 {
        loop {
            match self.0.recv().await {
                Ok(status) => return status,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

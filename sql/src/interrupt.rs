//! Signals that end a query.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};

use crate::failed::QUERY;
use crate::terminal::errors::{Failure, reason};

/// Signals that can wait for a query to notice them.
const PENDING: usize = 8;
/// Added to a signal's number, it is the exit status of a program that the signal ends.
const OF_SIGNAL: u8 = 128;

/// Watches signals for as long as the program runs.
#[derive(Clone, Debug)]
pub struct Interrupts(Sender<u8>);

impl Interrupts {
    /// Begins to watch: from now on no signal of these ends the program by itself.
    pub fn watch() -> Result<Interrupts, Failure> {
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
                    // Between queries nobody waits for one.
                    let _ = of_thread.send(OF_SIGNAL + u8::try_from(signal).unwrap_or_default());
                }
            })
            .map_err(failed)?;
        Ok(Interrupts(sender))
    }

    /// Signals from now on.
    pub fn from_now(&self) -> Next {
        Next(self.0.subscribe())
    }
}

/// The signals that come.
pub struct Next(Receiver<u8>);

impl Next {
    /// Waits for a signal; gives the exit status of a program that it ends.
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

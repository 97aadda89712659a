//! Signals that end the program.

use tokio::signal::unix::{SignalKind, signal};

/// Signals that end the program. A signal that was ignored when the program started stays ignored.
pub struct ShutdownSignals {
    signals: Vec<tokio::signal::unix::Signal>,
}

impl ShutdownSignals {
    /// Starts to handle the signals.
    pub fn new() -> std::io::Result<ShutdownSignals> {
        let ignored = ignored();
        let all = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let taken = all.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        Ok(ShutdownSignals { signals: taken.map(signal).collect::<Result<_, _>>()? })
    }

    /// Waits until one of the signals arrives.
    pub async fn wait(&mut self) {
        std::future::poll_fn(|context| {
            let is_there = self.signals.iter_mut().any(|one| one.poll_recv(context).is_ready());
            if is_there { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// Returns the signals that this process ignores, one bit each (`SigIgn` of proc(5)).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

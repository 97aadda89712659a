//! Shows the progress of an import on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

use tprof_facts::units::bytes;
use tprof_import::Progress;

use tprof_ui::errors::print_stderr;

/// Imports shorter than this show no progress.
const FIRST: Duration = Duration::from_millis(700);
const EVERY: Duration = Duration::from_millis(100);

/// Does the work. Meanwhile shows its progress, if stderr is a terminal.
pub fn while_shown<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // If the thread cannot be started, no progress is shown.
        let _ = std::thread::Builder::new().spawn_scoped(scope, move || show(progress, &wait));
        let result = work();
        drop(done);
        result
    })
}

fn show(progress: &Progress, wait: &mpsc::Receiver<()>) {
    let mut pause = FIRST;
    let mut shown = false;
    while wait.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
        let (read, total) = progress.bytes();
        if let Some(percent) = (read.min(total) * 100).checked_div(total) {
            let (read, total) = (bytes(read), bytes(total));
            print_stderr(&format!("\r\x1b[Kimport {percent:3} %, {read} of {total}"));
            shown = true;
        }
        pause = EVERY;
    }
    if shown {
        print_stderr("\r\x1b[K");
    }
}

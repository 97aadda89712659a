//! Long results go through the user's pager.

use std::io::{Write, stdout};
use std::process::{Command, Stdio};

/// The pager where none is named: it cuts long lines, and leaves what it showed.
const USUAL: &str = "less -SFRX";

/// Shows text on the terminal, in pages where it is longer.
pub fn show(text: &[u8]) {
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let room = terminal_size::terminal_size_of(stdout()).map(|(_, height)| usize::from(height.0));
    // One line is the next prompt's.
    if room.is_none_or(|room| lines < room) || !paged(text) {
        let _ = stdout().write_all(text);
    }
    let _ = stdout().flush();
}

/// Whether the pager showed it.
fn paged(text: &[u8]) -> bool {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let pager = pager.unwrap_or_else(|| USUAL.to_owned());
    let command = Command::new("sh").arg("-c").arg(&pager).stdin(Stdio::piped()).spawn();
    let Ok(mut pager) = command else { return false };
    if let Some(mut stdin) = pager.stdin.take() {
        // A pager that is left early reads no further.
        let _ = stdin.write_all(text);
    }
    // The shell's status for a command that is not there.
    pager.wait().is_ok_and(|status| status.code() != Some(127))
}

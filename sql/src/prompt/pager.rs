//! Shows long results in the user's pager.

use std::io::{Write, stdout};
use std::process::{Command, Stdio};

/// The default pager, which cuts long lines and leaves its output on the screen.
const USUAL: &str = "less -SFRX";

/// Shows text on the terminal, in a pager if it is long.
pub fn show(text: &[u8]) {
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    let room = terminal_size::terminal_size_of(stdout()).map(|(_, height)| usize::from(height.0));
    // The text is shown directly if it fits on the screen, with one line left for the next prompt.
    if room.is_none_or(|room| lines < room) || !paged(text) {
        let _ = stdout().write_all(text);
    }
    let _ = stdout().flush();
}

/// Runs the pager, and returns whether it showed the text.
fn paged(text: &[u8]) -> bool {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let pager = pager.unwrap_or_else(|| USUAL.to_owned());
    let command = Command::new("sh").arg("-c").arg(&pager).stdin(Stdio::piped()).spawn();
    let Ok(mut pager) = command else { return false };
    if let Some(mut stdin) = pager.stdin.take() {
        // An error means that the user left the pager early, so it stopped reading.
        let _ = stdin.write_all(text);
    }
    // The shell exits with 127 if the command is missing.
    pager.wait().is_ok_and(|status| status.code() != Some(127))
}

//! Colour: on a terminal alone, and never with NO_COLOR.

use std::io::IsTerminal;

const RED: &str = "31;1";
const GREEN: &str = "32;1";
const YELLOW: &str = "33;1";
const BOLD: &str = "1";

fn painted(text: &str, code: &str, terminal: bool) -> String {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if terminal && !refused { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A label of an error line, for stderr.
pub fn error_label(label: &str) -> String {
    painted(label, if label == "error" { RED } else { BOLD }, std::io::stderr().is_terminal())
}

/// A label of the summary, for stderr.
pub fn label(label: &str) -> String {
    painted(label, BOLD, std::io::stderr().is_terminal())
}

/// A verdict of `doctor`, for stdout.
pub fn verdict(word: &str) -> String {
    let code = match word.trim() {
        "ok" => GREEN,
        "no" => RED,
        "part" => YELLOW,
        _ => BOLD,
    };
    painted(word, code, std::io::stdout().is_terminal())
}

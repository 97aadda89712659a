//! Colour: only on a terminal, and never with NO_COLOR.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

const RED: Style = AnsiColor::Red.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const BOLD: Style = Style::new().bold();

fn painted(text: &str, style: Style, stream: &impl RawStream) -> String {
    match AutoStream::choice(stream) {
        ColorChoice::Never => text.to_owned(),
        _ => format!("{style}{text}{style:#}"),
    }
}

/// A label of an error line, for stderr.
pub fn error_label(label: &str) -> String {
    painted(label, if label == "error" { RED } else { BOLD }, &std::io::stderr())
}

/// A label of the summary, for stderr.
pub fn label(label: &str) -> String {
    painted(label, BOLD, &std::io::stderr())
}

/// A verdict of `doctor`, for stdout.
pub fn verdict(word: &str) -> String {
    let style = match word.trim() {
        "ok" => GREEN,
        "no" => RED,
        "part" => YELLOW,
        _ => BOLD,
    };
    painted(word, style, &std::io::stdout())
}

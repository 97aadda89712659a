//! Colours text, if the output is a terminal and `NO_COLOR` is not set.

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

/// Colours the label of an error's line, for stderr.
pub fn error_label(label: &str) -> String {
    painted(label, if label == "error" { RED } else { BOLD }, &std::io::stderr())
}

/// Colours a label of the summary, for stderr.
pub fn label(label: &str) -> String {
    painted(label, BOLD, &std::io::stderr())
}

/// Severities of findings, as pages of text spell them, with their colours.
const SEVERITIES: [(&str, Style); 5] = [
    ("CRITICAL", RED),
    ("HIGH", AnsiColor::Red.on_default()),
    ("MEDIUM", AnsiColor::Yellow.on_default()),
    ("LOW", AnsiColor::Cyan.on_default()),
    ("NOT COMPLETE", YELLOW),
];

/// Colours the severities of findings in a page for stdout. A severity must be a whole word in
/// capitals, at the beginning of a line or after two spaces.
pub fn severities(page: &str) -> String {
    if AutoStream::choice(&std::io::stdout()) == ColorChoice::Never {
        return page.to_owned();
    }
    let lines: Vec<String> = page.split('\n').map(with_severity).collect();
    lines.join("\n")
}

/// Colours the first severity in a line.
fn with_severity(line: &str) -> String {
    for (word, style) in SEVERITIES {
        let Some(at) = line.find(word) else { continue };
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let begins = before.is_empty() || before.ends_with("  ") || before.ends_with(". ");
        if begins && (after.is_empty() || after.starts_with([' ', ':', ',', '\u{a0}'])) {
            return format!("{before}{style}{word}{style:#}{after}");
        }
    }
    line.to_owned()
}

/// Colours a verdict of `doctor`, for stdout.
pub fn verdict(word: &str) -> String {
    let style = match word.trim() {
        "ok" => GREEN,
        "no" => RED,
        "part" => YELLOW,
        _ => BOLD,
    };
    painted(word, style, &std::io::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_severity_in_its_place_has_a_colour() {
        let is_painted = |line: &str| with_severity(line) != line;
        for line in [
            "1. HIGH, up to 2.0 s: DataLoadBound",
            "NOT COMPLETE: 3 events",
            "      LOW Stragglers",
        ] {
            assert!(is_painted(line), "{line}");
        }
        for line in ["  10 ms  mod_HIGH (a.py)", "  10 ms  HIGHER", "a job with HIGH load", ""] {
            assert!(!is_painted(line), "{line}");
        }
    }
}

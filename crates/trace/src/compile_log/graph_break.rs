//! Reads why Dynamo ended a graph in the middle of a function: the payload of
//! `dynamo_graph_break_reason`.

use super::log::{CompiledFrame, GraphBreak};
use super::texts::short;

/// Maximum number of hints that are kept.
const MAX_HINTS: usize = 64;

/// Parses a payload. Also returns how many hints were left out.
pub(super) fn parse(payload: &str) -> (GraphBreak, u64) {
    let (mut found, mut left_out) = (GraphBreak::default(), 0);
    let mut lines = payload.lines();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if let Some(place) = text.strip_prefix("Graph break in user code at ") {
            (found.file, found.line) = place_of(place);
        } else if let Some(reason) = text
            .strip_prefix("Graph Break Reason: ")
            .or_else(|| text.strip_prefix("Reason: "))
            .filter(|_| found.reason.is_none())
        {
            // Some versions write the instruction first, and the reason on another line.
            let reason = match reason.starts_with("Encountered graph break") {
                true => lines.by_ref().map(str::trim).find(|line| !line.is_empty()),
                false => Some(reason),
            };
            found.reason =
                reason.map(|reason| short(reason.strip_prefix("Unsupported: ").unwrap_or(reason)));
        } else if let Some(text) = text.strip_prefix("Explanation: ") {
            found.explanation = Some(short(text));
        } else if let Some(text) = text.strip_prefix("Hint: ") {
            match found.hints.len() < MAX_HINTS {
                true => found.hints.push(short(text)),
                false => left_out += 1,
            }
        } else if text.starts_with("User code traceback:") {
            break;
        }
    }
    if found.reason.is_none() {
        let first = payload.lines().map(str::trim).find(|line| !line.is_empty());
        found.reason = first.map(short);
    }
    (found, left_out)
}

/// Returns the break after which this function resumes. The function's name shows it, such as
/// `torch_dynamo_resume_in_f_at_14`.
pub(super) fn before(frame: &CompiledFrame) -> Option<GraphBreak> {
    let name = frame.function.as_deref()?.strip_prefix("torch_dynamo_resume_in_")?;
    let (_, line) = name.rsplit_once("_at_")?;
    Some(GraphBreak {
        compile_id: frame.id,
        file: frame.file.clone(),
        line: Some(line.parse().ok()?),
        ..GraphBreak::default()
    })
}

/// Parses `FILE:LINE`, which may be followed by names.
fn place_of(text: &str) -> (Option<String>, Option<u32>) {
    match text.rsplit_once(':') {
        Some((file, line)) => {
            let digits: String = line.chars().take_while(char::is_ascii_digit).collect();
            (Some(short(file)), digits.parse().ok())
        }
        None => (Some(short(text)), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_its_line_and_hints() {
        let text = "Graph break in user code at /a b/job.py:14\nGraph Break Reason: Data-dependent \
                    branching\n  Explanation: No.\n\n  Hint: Use `torch.cond`.\n  Hint: Or not.\n\n\
                    User code traceback:\n  Hint: of a string in the code\n";
        let (found, _) = parse(text);
        assert_eq!((found.file.as_deref(), found.line), (Some("/a b/job.py"), Some(14)));
        assert_eq!(found.reason.as_deref(), Some("Data-dependent branching"));
        assert_eq!(found.explanation.as_deref(), Some("No."));
        assert_eq!(found.hints, ["Use `torch.cond`.", "Or not."]);
    }

    #[test]
    fn the_first_line_of_a_reason_in_an_unknown_form_is_read() {
        let first = parse("\n call_function x\nmore").0.reason;
        assert_eq!(first.as_deref(), Some("call_function x"));
        assert_eq!(parse("").0.reason, None);
        let (place, _) = parse("Graph break in user code at <string>:7\n");
        assert_eq!((place.file.as_deref(), place.line), (Some("<string>"), Some(7)));
    }
}

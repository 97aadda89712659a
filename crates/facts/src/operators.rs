//! Tells whether PyTorch's operators were recorded for the whole run.

use serde_json::Value;
use tprof_trace::TraceFile;

use crate::units::counted;

/// Whether the operators of a file's process were recorded for only a part of its time.
/// `--operators auto` has a budget. Once the budget is spent, tprof records the operators of only
/// one step in n, or only ranges if it finds no steps. So operators without a record are unknown,
/// not absent.
pub fn ended(file: &TraceFile) -> bool {
    let mut facts = file.properties().filter(|(key, _)| *key == "pytorch");
    facts.any(|(_, text)| {
        serde_json::from_str::<Value>(text)
            .is_ok_and(|fact| matches!(fact["operators"].as_str(), Some("steps" | "ranges")))
    })
}

/// Returns the note for readers of operators if their recording [`ended`] early in this many ranks.
pub fn note(ended: u64) -> Option<String> {
    (ended > 0).then(|| {
        format!(
            "{} recorded operators for a part of the time only, as these took too much of it; \
             --operators names records them all",
            counted(ended, "rank", "ranks")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Property;
    use tprof_trace::{TraceHeader, TraceWriter};

    #[test]
    fn recording_of_operators_ended_if_only_ranges_follow() {
        let is_ended = |texts: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("rank-0.tprof");
            let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
            for text in texts {
                let (key, value) = (writer.name("pytorch"), writer.name(text));
                writer.property(Property { key, value });
            }
            writer.finish().unwrap();
            ended(&TraceFile::open(&path).unwrap())
        };
        let [whole, steps, ranges] =
            ["shapes", "steps", "ranges"].map(|mode| format!(r#"{{"operators":"{mode}"}}"#));
        assert!(!is_ended(&[]) && !is_ended(&[&whole]));
        assert!(is_ended(&[&steps]) && is_ended(&[&ranges]) && is_ended(&[&whole, &ranges]));
    }
}

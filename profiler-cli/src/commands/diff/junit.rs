//! Writes conditions as JUnit XML test cases, for CI servers.
//!
//! The format has no standard, so this module uses only the elements that Jenkins' schema and all
//! readers accept. A condition that could not be checked is a skipped case with the reason. There
//! are no times, because no test ran.

use std::fmt::Write;

use super::conditions::{ConditionResult, ConditionVerdict};

const SUITE: &str = "tprof diff";

/// Returns the XML file for a comparison of two runs.
pub(super) fn document(judged: &[ConditionResult], a: &str, b: &str) -> String {
    let count =
        |is: fn(&ConditionVerdict) -> bool| judged.iter().filter(|one| is(&one.verdict)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
        judged.len(),
        count(|verdict| matches!(verdict, ConditionVerdict::Fails)),
        count(|verdict| matches!(verdict, ConditionVerdict::Unchecked(_))),
    );
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{SUITE}\" {counts}>\n  \
         <testsuite name=\"{SUITE}\" {counts}>\n    <properties>\n"
    );
    for (name, run) in [("A", a), ("B", b)] {
        let run = escaped(run);
        let _ = writeln!(xml, "      <property name=\"{name}\" value=\"{run}\"/>");
    }
    xml.push_str("    </properties>\n");
    judged.iter().for_each(|one| case(&mut xml, one));
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn case(xml: &mut String, judged: &ConditionResult) {
    let name = escaped(&judged.condition);
    let _ = writeln!(xml, "    <testcase classname=\"tprof.diff\" name=\"{name}\">");
    let interval = judged.interval.as_deref().unwrap_or("not known, there are no repeats");
    let figure = escaped(&format!(
        "{}; 95 % interval of the change: {interval}; limit of the change: {}",
        judged.figure, judged.limit
    ));
    let _ = match &judged.verdict {
        ConditionVerdict::Holds => writeln!(xml, "      <system-out>{figure}</system-out>"),
        ConditionVerdict::Fails => {
            writeln!(xml, "      <failure message=\"{figure}\" type=\"change\">{figure}</failure>")
        }
        ConditionVerdict::Unchecked(why) => {
            let why = escaped(why.cause.as_deref().unwrap_or(&why.what));
            writeln!(xml, "      <skipped message=\"{why}\"/>")
        }
    };
    xml.push_str("    </testcase>\n");
}

/// Escapes the text of an element or attribute. Characters that XML cannot represent become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use tprof_ui::errors::Failure;

    use super::*;

    #[test]
    fn a_condition_is_a_case_by_its_verdict() {
        let judged = |condition: &str, verdict| ConditionResult {
            condition: condition.to_owned(),
            verdict,
            figure: "step time from 1 ms to 2 ms, +100.0 %".to_owned(),
            interval: Some("\u{b1} 3 us".to_owned()),
            limit: "+5 %".to_owned(),
        };
        let unchecked = Failure::new("cannot check").cause("no \"f<\u{1}>\" & no\nother");
        let all = [
            judged("step_time>+5%", ConditionVerdict::Fails),
            judged("launches>+0", ConditionVerdict::Holds),
            judged("function:f<T>>+5%", ConditionVerdict::Unchecked(unchecked)),
        ];
        let xml = document(&all, "a & b", "c");
        assert_eq!(xml.matches("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\"").count(), 2);
        for part in [
            "value=\"a &amp; b\"",
            "name=\"step_time&gt;+5%\">\n      <failure message=\"step time from 1 ms to 2 ms, +100.0 \
             %; 95 % interval of the change: \u{b1} 3 us; limit of the change: +5 %\" type=\"change\">",
            "name=\"function:f&lt;T&gt;&gt;+5%\">\n      <skipped message=\"no &quot;f&lt;\u{fffd}&gt;&quot; \
             &amp; no&#10;other\"/>",
            "<system-out>step time",
        ] {
            assert!(xml.contains(part), "{part} is not in {xml}");
        }
    }
}

//! Reads payloads in JSON: the reasons of recompilations and bypasses, PyTorch's version, and a
//! time.

use super::json::{FirstTexts, Scalar};
use super::texts::{one_line, short};
use serde::Deserialize;

/// Returns the guards that failed, and how many were left out. Text that isn't a list counts as one
/// guard.
pub(super) fn reasons(text: &str) -> (Vec<String>, u64) {
    match serde_json::from_str::<FirstTexts>(text) {
        Ok(found) => (found.texts.iter().map(|reason| one_line(reason)).collect(), found.more),
        Err(_) => (vec![one_line(text.trim())], 0),
    }
}

/// Returns the time of a `chromium_event`, microseconds since 1970.
pub(super) fn moment(text: &str) -> Option<u64> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Event {
        ts: Scalar,
    }
    let event = serde_json::from_str::<Event>(text).ok()?;
    event.ts.number().filter(|us| *us > 1e15 && *us < 1e16).map(|us| us as u64)
}

/// Returns the version of PyTorch.
pub(super) fn version(text: &str) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Version {
        pytorch_version: Scalar,
    }
    serde_json::from_str::<Version>(text).ok()?.pytorch_version.text().map(short)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Bypass {
    cache_bypass_reason: Scalar,
    cache_bypass_exception_type: Scalar,
}

/// Returns the reason why a cache was bypassed.
pub(super) fn bypass(text: &str) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Outer {
        args: Bypass,
    }
    let why = |of: &Bypass| {
        let reason = of.cache_bypass_reason.text();
        reason.or(of.cache_bypass_exception_type.text()).map(one_line)
    };
    let own = || why(&serde_json::from_str::<Bypass>(text).ok()?);
    own().or_else(|| why(&serde_json::from_str::<Outer>(text).ok()?.args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_bypass_is_found_in_both_forms() {
        let own =
            r#"{"key": null, "cache_bypass_reason": "Unsupported\n stack", "components": []}"#;
        assert_eq!(bypass(own).as_deref(), Some("Unsupported"));
        let outer = r#"{"ts": 1, "args": {"cache_bypass_exception_type": "E"}}"#;
        assert_eq!(bypass(outer).as_deref(), Some("E"));
        assert_eq!(
            (bypass("{}"), bypass("[1]"), bypass(r#"{"cache_bypass_reason": 1}"#)),
            (None, None, None)
        );
    }

    #[test]
    fn reasons_and_times_in_unknown_forms_are_read_in_part() {
        assert_eq!(reasons("[\"a  b\\nc\"]"), (vec!["a b".to_owned()], 0));
        assert_eq!(reasons("guard\nstack\n"), (vec!["guard".to_owned()], 0));
        assert_eq!(
            moment(r#"{"ts": 1795511601149183.0, "args": {}}"#),
            Some(1_795_511_601_149_183)
        );
        assert_eq!(
            (moment(r#"{"ts": "x"}"#), moment(r#"{"ts": 5}"#), moment("")),
            (None, None, None)
        );
        assert_eq!(version(r#"{"pytorch_version": "2.8"}"#).as_deref(), Some("2.8"));
    }
}

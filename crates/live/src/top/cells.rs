//! Formats numbers for the terminal, by their units.

use tprof_facts::units;

/// Text shown for an unknown number.
pub const UNKNOWN: &str = "-";

/// Formats a value in its unit.
pub fn value(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return UNKNOWN.to_owned() };
    // A cast turns values below 0 into 0.
    let whole = value.round() as u64;
    match unit {
        "ns" => units::duration(whole),
        "bytes" => units::bytes(whole),
        "count" => units::count(whole),
        "per_second" => rate(value),
        "share" => units::percent(value),
        "watts" => format!("{value:.0} W"),
        _ => free(value),
    }
}

fn rate(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}/s"),
        v if v >= 10.0 => format!("{v:.1}/s"),
        v => format!("{v:.2}/s"),
    }
}

/// Formats a number without a unit, with about four digits.
fn free(value: f64) -> String {
    let size = value.abs();
    match value {
        v if v == 0.0 || (0.001..100_000.0).contains(&size) => {
            let places = if size >= 1000.0 {
                0
            } else if size >= 10.0 {
                2
            } else {
                3
            };
            format!("{v:.places$}")
        }
        v => format!("{v:.3e}"),
    }
}

/// Removes characters that would move the cursor.
pub fn clean(text: &str) -> String {
    tprof_facts::printable::printable_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_decide_how_numbers_are_written() {
        assert_eq!(value(Some(1.5e9), "ns"), "1.50 s");
        assert_eq!(value(Some(2048.0), "bytes"), "2.0 KiB");
        assert_eq!(value(Some(9.94), "per_second"), "9.94/s");
        assert_eq!(value(Some(0.931), "share"), "93.1 %");
        assert_eq!(value(Some(412.4), "watts"), "412 W");
        assert_eq!(value(Some(2.31), "none"), "2.310");
        assert_eq!(value(Some(1e-9), "none"), "1.000e-9");
        assert_eq!([value(None, "ns"), value(Some(f64::NAN), "none")], ["-", "-"]);
        assert_eq!(clean("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}

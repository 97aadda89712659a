//! Parses sizes and durations as people type them, and formats texts that parse to the same value.

use std::time::Duration;

const SIZE_UNITS: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("p", 1 << 50),
    ("pib", 1 << 50),
    ("pb", 1_000_000_000_000_000),
];

const TIME_UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses `4096`, `512K`, `64MiB`, `1.5GB`: K and KiB are 1024, KB is 1000.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit, rest) = split(text)?;
    let scale = lookup(&SIZE_UNITS, unit)?;
    if rest.is_empty() { scaled(number, scale) } else { None }
}

/// Parses `500ms`, `2s`, `1m30s`; a number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total: u64 = 0;
    let mut rest = text;
    loop {
        let (number, unit, after) = split(rest)?;
        // In `1m30s`, every part needs its unit.
        let whole = after.is_empty() && rest.len() == text.len();
        if unit.is_empty() && !whole {
            return None;
        }
        total = total.checked_add(scaled(number, lookup(&TIME_UNITS, unit)?)?)?;
        if after.is_empty() {
            return Some(Duration::from_nanos(total));
        }
        rest = after;
    }
}

/// Splits `1.5GiB…` into the number, the unit and the rest.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let blank = rest.trim_start_matches(' ');
    let unit = blank.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(blank.len());
    let (unit, rest) = blank.split_at(unit);
    Some((number, unit, rest))
}

fn lookup(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

/// Returns `number * scale`, exactly for whole numbers.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    // The limit is slightly below 2^63. `f64` can't hold larger sizes exactly, and no disk is that
    // large.
    (value.is_finite() && value < 9.2e18).then_some(value.round() as u64)
}

/// Formats a size so that [`parse_size`] returns the same number.
pub fn exact_size(bytes: u64) -> String {
    for (unit, shift) in [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Formats a duration so that [`parse_duration`] returns the same time.
pub fn exact_duration(time: Duration) -> String {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    for (unit, scale) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ns.is_multiple_of(scale) {
            return format!("{}{unit}", ns / scale);
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("512K"), Some(512 << 10));
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("64 mib"), Some(64 << 20));
        assert_eq!(parse_size("1.5GB"), Some(1_500_000_000));
        assert_eq!(parse_size("0"), Some(0));
        for bad in
            ["", "K", "12Q", "-1", "1e3", "1.2.3K", "99999999999P", "4K4K", "4K ", ".5M", "٣"]
        {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2s"), Some(Duration::from_secs(2)));
        assert_eq!(parse_duration("5m"), Some(Duration::from_secs(300)));
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("0.25"), Some(Duration::from_millis(250)));
        for bad in ["", "s", "5x", "-3s", "1m30", "5 0s", "nan", "inf", "999999999999d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn exact_texts_parse_to_the_same_value() {
        for bytes in [0, 1, 1000, 1024, 512 << 10, 3 << 20, (1 << 30) + 1, u64::MAX, 1 << 63] {
            assert_eq!(parse_size(&exact_size(bytes)), Some(bytes));
        }
        for ns in [0, 1, 1500, 2_000_000, 90_000_000_000, 1_000_000_001] {
            let time = Duration::from_nanos(ns);
            assert_eq!(parse_duration(&exact_duration(time)), Some(time));
        }
    }
}

//! Formats numbers for people.

/// Formats `1234567` as `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a measured value with three digits: `106,880,001.4` as `107,000,000`. A negative value
/// or one that is not a number is formatted as `0`.
pub fn estimate(value: f64) -> String {
    // The cast converts negative values and NaN to 0.
    let digits = (value as u64).checked_ilog10().unwrap_or(0);
    let unit = 10u64.pow(digits.saturating_sub(2));
    count((value / unit as f64).round() as u64 * unit)
}

/// Formats bytes in binary units with one decimal: `17 B`, `1.5 KiB`, `12.0 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64;
    let mut unit = "B";
    for next in UNITS {
        // 1023.95 would be printed as 1024.0, so use the next unit.
        if scaled < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

/// Formats bytes per second: `2.3 GiB/s`. A rate that is not a number is `0 B/s`.
pub fn rate(bytes_per_second: f64) -> String {
    // The cast converts negative values and NaN to 0.
    format!("{}/s", bytes(bytes_per_second.round() as u64))
}

/// Formats bytes like [`bytes`], with a sign.
pub fn signed_bytes(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "+" };
    format!("{sign}{}", bytes(value.unsigned_abs()))
}

/// Formats a duration: `870 ns`, `12.3 us`, `4.1 ms`, `8.20 s`, `4 min 09 s`, `3 h 02 min`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{:.1} us", value / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", value / 1e6),
        999_950_000..99_995_000_000 => format!("{:.2} s", value / 1e9),
        _ => {
            let seconds = (value / 1e9).round() as u64;
            if seconds < 3600 {
                format!("{} min {:02} s", seconds / 60, seconds % 60)
            } else {
                format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60)
            }
        }
    }
}

/// Formats a time since the beginning of a run so that steps differ: `870 ns`, `12.3 us`, `4.1 ms`,
/// `7203.1042 s`.
pub fn since_start(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => duration(ns),
        _ => format!("{:.4} s", ns as f64 / 1e9),
    }
}

/// Returns a moment as date and time: `2026-11-29 06:52:21 UTC`. `unix_ns` counts from 1970.
pub fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (mut day, of_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", day + 1)
}

/// Formats a share from 0 to 1 as a percentage: `12.3 %`; small shares keep two digits.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent != 0.0 && percent.abs() < 1.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// Formats a share below one percent so that it never looks like zero.
pub fn small_share(share: f64) -> String {
    match share {
        share if share < 0.0001 => "less than 0.01 %".to_owned(),
        share => format!("{:.2} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(
            [count(0), count(999), count(1000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        let estimates = [0.4, 999.4, 1234.5, 106_880_001.4, 999_600.0, 1.8e19, -1.0, f64::NAN];
        assert_eq!(
            estimates.map(estimate),
            [
                "0",
                "999",
                "1,230",
                "107,000,000",
                "1,000,000",
                "18,000,000,000,000,000,000",
                "0",
                "0"
            ]
        );
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"]
        );
        assert_eq!([signed_bytes(-2048), signed_bytes(5)], ["-2.0 KiB", "+5 B"]);
        assert_eq!([rate(2.5e9), rate(0.4), rate(f64::NAN)], ["2.3 GiB/s", "0 B/s", "0 B/s"]);
        let times = [0, 870, 12_300, 4_100_000, 8_200_000_000, 249_000_000_000, 10_920_000_000_000];
        let shown = ["0 ns", "870 ns", "12.3 us", "4.1 ms", "8.20 s", "4 min 09 s", "3 h 02 min"];
        assert_eq!(times.map(duration), shown);
        let moments = [0, 951_782_399, 951_782_400, 4_107_542_399, 1_796_021_541];
        assert_eq!(
            moments.map(|seconds| utc(seconds * 1_000_000_000)),
            [
                "1970-01-01 00:00:00 UTC",
                "2000-02-28 23:59:59 UTC",
                "2000-02-29 00:00:00 UTC",
                "2100-02-28 23:59:59 UTC",
                "2026-11-30 06:52:21 UTC"
            ]
        );
        assert_eq!([percent(0.0), percent(0.0012), percent(0.5)], ["0.0 %", "0.12 %", "50.0 %"]);
    }
}

//! Numbers as people read them.

/// `1234567` as `1,234,567`.
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

/// How much was recorded: `3,397 events and 12 CPU samples`, `52 CPU samples`, `0 events`.
pub fn recorded(recorded: tprof_trace::Recorded) -> String {
    let some = |n: u64, unit: &str| {
        (n > 0).then(|| format!("{} {unit}{}", count(n), if n == 1 { "" } else { "s" }))
    };
    match (some(recorded.events, "event"), some(recorded.samples, "CPU sample")) {
        (Some(events), Some(samples)) => format!("{events} and {samples}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "0 events".to_owned(),
    }
}

/// `1 process`, `46 processes (84 program images)`: images are named where there are more.
pub fn processes(processes: usize, images: usize) -> String {
    let count = |n: usize| count(n as u64);
    let all = format!("{} process{}", count(processes), if processes == 1 { "" } else { "es" });
    match images == processes {
        true => all,
        false => format!("{all} ({} program images)", count(images)),
    }
}

/// Bytes in binary units with one decimal: `17 B`, `1.5 KiB`, `12.0 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64;
    let mut unit = "B";
    for next in UNITS {
        // 1023.95 would print as 1024.0.
        if scaled < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1} {unit}")
}

/// As [`bytes`], with a sign.
pub fn signed_bytes(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "+" };
    format!("{sign}{}", bytes(value.unsigned_abs()))
}

/// A duration: `870 ns`, `12.3 us`, `4.1 ms`, `8.20 s`, `4 min 09 s`, `3 h 02 min`.
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

/// A share from 0 to 1 as a percentage: `12.3 %`; small ones keep two digits.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent != 0.0 && percent.abs() < 1.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// Name of a signal, `signal N` if it has none here.
pub fn signal(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [count(0), count(999), count(1000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        let shown = [0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 20, u64::MAX].map(bytes);
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"]
        );
        assert_eq!([signed_bytes(-2048), signed_bytes(5)], ["-2.0 KiB", "+5 B"]);
        let times = [0, 870, 12_300, 4_100_000, 8_200_000_000, 249_000_000_000, 10_920_000_000_000];
        let shown = ["0 ns", "870 ns", "12.3 us", "4.1 ms", "8.20 s", "4 min 09 s", "3 h 02 min"];
        assert_eq!(times.map(duration), shown);
        assert_eq!([percent(0.0), percent(0.0012), percent(0.5)], ["0.0 %", "0.12 %", "50.0 %"]);
    }
}

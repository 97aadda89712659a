//! Parses a line's prefix: `V1122 08:36:34.041000 PID torch/_dynamo/utils.py:2473] `.

use super::dates::PrefixTime;

/// The largest pid that Linux assigns.
const MAX_PID: u32 = 1 << 22;

/// The prefix before a line's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinePrefix {
    pub time: PrefixTime,
    /// Pid of the process; `None` for PyTorch 2.4, which writes the address of the thread instead.
    pub pid: Option<u32>,
}

/// Splits a line into its prefix and the rest; `None` for a line without a prefix.
pub(super) fn split(line: &[u8]) -> Option<(LinePrefix, &[u8])> {
    let (first, rest) = line.split_first()?;
    if !first.is_ascii_uppercase() || rest.len() < 22 {
        return None;
    }
    let two = |at: usize| number(rest.get(at..at + 2)?);
    let (month, day) = (two(0)?, two(2)?);
    let (hour, minute, second) = (two(5)?, two(8)?, two(11)?);
    let micros = number(rest.get(14..20)?)?;
    let marks = [(4, b' '), (7, b':'), (10, b':'), (13, b'.'), (20, b' ')];
    if !marks.iter().all(|&(at, mark)| rest[at] == mark)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let rest = &rest[21..];
    let end = rest.iter().position(|&byte| byte == b' ')?;
    let pid = u32::try_from(number(&rest[..end])?).ok().filter(|&pid| pid <= MAX_PID);
    let rest = &rest[end + 1..];
    let end = rest.windows(2).position(|pair| pair == b"] ")?;
    let of_day_us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    let time = PrefixTime { month: month as u8, day: day as u8, of_day_us };
    Some((LinePrefix { time, pid }, &rest[end + 2..]))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_the_time_and_the_process() {
        let line =
            b"V1122 08:36:34.041000 4711 torch/_dynamo/utils.py:2473] {\"str\": [\"a] b\", 0]}";
        let (prefix, json) = split(line).unwrap();
        let of_day_us = ((8 * 60 + 36) * 60 + 34) * 1_000_000 + 41_000;
        let time = PrefixTime { month: 11, day: 22, of_day_us };
        assert_eq!(prefix, LinePrefix { time, pid: Some(4711) });
        assert_eq!(json, b"{\"str\": [\"a] b\", 0]}");
    }

    #[test]
    fn a_line_without_a_prefix_is_none() {
        for line in [
            "",
            "V",
            "V1122 08:36:34.041000",
            "V1322 08:36:34.041000 1 a.py:1] {}",
            "v1122 08:36:34.041000 1 a.py:1] {}",
            "V1122 08:36:34.041000 1234567890123456789 a.py:1] {}",
            "V1122 08:36:34.041000 1 a.py:1 {}",
            "Traceback (most recent call last):",
        ] {
            assert_eq!(split(line.as_bytes()), None, "{line}");
        }
    }
}

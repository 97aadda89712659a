//! Parses and checks conditions under which a comparison fails, such as `step_time>+5%`.

use std::fmt;
use std::str::FromStr;

/// A condition on how a metric changed from A to B.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Key of the metric.
    pub metric: String,
    /// The direction of change that fails.
    pub direction: Direction,
    /// The largest change that still passes.
    pub limit: Limit,
}

/// The direction of change that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A change above the limit.
    Above,
    /// A change below the limit.
    Below,
}

/// The largest change that still passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Change as a share of A's value: 0.05 is five percent.
    Share(f64),
    /// Change in the metric's own unit: nanoseconds, bytes, a count, or a share.
    Own(f64),
}

/// The reason why a condition cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The text has no `>` or `<`.
    #[error("it has no `>` or `<`")]
    NoDirection,
    /// There is no metric before the direction.
    #[error("it names no metric before its `>` or `<`")]
    NoMetric,
    /// The text after the direction is not a change.
    #[error(
        "`{0}` is not a change: a sign, a number, and %, ns, us, ms, s, KiB, MiB, GiB or nothing"
    )]
    NoChange(String),
}

/// For each unit of a limit, the number of the metric's own units in it.
const UNITS: [(&str, f64); 10] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("", 1.0),
];

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Gate, GateError> {
        // A function's name may also contain `>` and `<`, so the last one is the direction.
        let at = text.rfind(['>', '<']).ok_or(GateError::NoDirection)?;
        let (metric, rest) = (text[..at].trim(), text[at + 1..].trim());
        if metric.is_empty() {
            return Err(GateError::NoMetric);
        }
        let direction =
            if text[at..].starts_with('>') { Direction::Above } else { Direction::Below };
        let bad = || GateError::NoChange(rest.to_owned());
        // A limit without a sign could be mistaken for a limit of the value itself.
        if !rest.starts_with(['+', '-']) {
            return Err(bad());
        }
        let unit = rest.trim_start_matches(|c: char| "+-.0123456789".contains(c));
        let number: f64 = rest[..rest.len() - unit.len()].parse().map_err(|_| bad())?;
        let limit = match unit.trim() {
            "%" => Limit::Share(number / 100.0),
            unit => {
                let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1;
                Limit::Own(number * scale)
            }
        };
        Ok(Gate { metric: metric.to_owned(), direction, limit })
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Above { '>' } else { '<' };
        match self.limit {
            Limit::Share(share) => write!(f, "{}{direction}{:+}%", self.metric, share * 100.0),
            Limit::Own(value) => write!(f, "{}{direction}{value:+}", self.metric),
        }
    }
}

impl Gate {
    /// Whether a change of `difference` from the value `a` trips this condition. `error` is half
    /// the width of the change's 95 % interval. With an `error`, a change that may be zero doesn't
    /// trip.
    pub fn trips(&self, a: f64, difference: f64, error: Option<f64>) -> bool {
        let limit = match self.limit {
            Limit::Share(share) => share * a.abs(),
            Limit::Own(value) => value,
        };
        let beyond = match self.direction {
            Direction::Above => difference > limit,
            Direction::Below => difference < limit,
        };
        beyond && error.is_none_or(|error| difference.abs() > error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed() {
        let gate: Gate = "step_time>+5%".parse().unwrap();
        assert_eq!(gate.metric, "step_time");
        assert_eq!((gate.direction, gate.limit), (Direction::Above, Limit::Share(0.05)));
        let gate: Gate = " gpu_busy < -1.5 % ".parse().unwrap();
        assert_eq!((gate.direction, gate.limit), (Direction::Below, Limit::Share(-0.015)));
        assert_eq!("x>+2ms".parse::<Gate>().unwrap().limit, Limit::Own(2e6));
        assert_eq!("x>+1GiB".parse::<Gate>().unwrap().limit, Limit::Own(1_073_741_824.0));
        assert_eq!("x>+3".parse::<Gate>().unwrap().limit, Limit::Own(3.0));
        assert_eq!("step_time".parse::<Gate>(), Err(GateError::NoDirection));
        assert_eq!(">+5%".parse::<Gate>(), Err(GateError::NoMetric));
        for bad in ["x>5%", "x>+%", "x>+5 miles", "x>", "x>+5%%", "x>+-5%"] {
            assert!(matches!(bad.parse::<Gate>(), Err(GateError::NoChange(_))), "{bad}");
        }
    }

    #[test]
    fn a_metric_name_may_contain_the_signs_of_a_direction() {
        let gate: Gate = "function:sum<int>::operator>(int)>+5%".parse().unwrap();
        assert_eq!(gate.metric, "function:sum<int>::operator>(int)");
        assert_eq!((gate.direction, gate.limit), (Direction::Above, Limit::Share(0.05)));
    }

    #[test]
    fn a_change_trips_if_it_exceeds_the_limit_and_its_interval() {
        let gate: Gate = "step_time>+5%".parse().unwrap();
        assert!(gate.trips(100.0, 6.0, None));
        assert!(!gate.trips(100.0, 5.0, None));
        assert!(!gate.trips(100.0, -6.0, None));
        assert!(gate.trips(100.0, 6.0, Some(2.0)));
        assert!(!gate.trips(100.0, 6.0, Some(7.0)), "it may as well be none");
        let gate: Gate = "gpu_busy<-10%".parse().unwrap();
        assert!(gate.trips(0.8, -0.09, None) && !gate.trips(0.8, -0.07, None));
    }

    #[test]
    fn a_condition_prints_as_the_user_typed_it() {
        for text in ["step_time>+5%", "gpu_busy<-1.5%"] {
            assert_eq!(text.parse::<Gate>().unwrap().to_string(), text);
        }
    }
}

//! Parses histograms of a program's own values. The SDK records a histogram as a mark whose name
//! contains the counts.

use serde_json::Value;
use tprof_trace::model::HISTOGRAM_SEPARATOR;

/// A distribution of values: counts in buckets of equal width between the lowest and the highest
/// value.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramHistogram {
    /// The step number that the program gave the histogram.
    pub step: Option<u64>,
    /// The lowest value; `None` if there are no values.
    pub min: Option<f64>,
    /// The highest value; `None` if there are no values.
    pub max: Option<f64>,
    /// Sum of the values; `None` if it doesn't fit a 64-bit floating-point number.
    pub sum: Option<f64>,
    /// Sum of the squares of the values.
    pub squares: Option<f64>,
    /// Number of values in each bucket, the lowest bucket first.
    pub counts: Vec<u64>,
    /// Number of values that are infinite or not a number. They are in none of the buckets.
    pub not_finite: u64,
}

/// Splits the name of a mark into the histogram's name and its counts.
pub fn split(text: &str) -> (&str, &str) {
    text.split_once(HISTOGRAM_SEPARATOR).unwrap_or((text, ""))
}

impl ProgramHistogram {
    /// Parses the counts in the name of a mark; `None` if they are damaged.
    pub fn of(values: &str) -> Option<ProgramHistogram> {
        let values: Value = serde_json::from_str(values).ok()?;
        let of = values.get("histogram")?;
        let number = |key: &str| of.get(key).and_then(Value::as_f64);
        let counts = of.get("counts")?.as_array()?.iter().map(Value::as_u64);
        let found = ProgramHistogram {
            step: of.get("step").and_then(Value::as_u64),
            min: number("min"),
            max: number("max"),
            sum: number("sum"),
            squares: number("squares"),
            counts: counts.collect::<Option<_>>()?,
            not_finite: of.get("not_finite").and_then(Value::as_u64).unwrap_or(0),
        };
        let has_values = !found.counts.is_empty();
        (found.min.is_some() == has_values && found.max.is_some() == has_values).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_counts_are_read_from_a_marks_name() {
        let text = "grad \u{1f}{\"histogram\":{\"min\":-1.5,\"max\":2,\"sum\":0.5,\"squares\":null,\"counts\":[1,0,2],\"not_finite\":4,\"step\":7}}";
        let (name, values) = split(text);
        let of = ProgramHistogram::of(values).unwrap();
        assert_eq!((name, of.step, of.min, of.max), ("grad ", Some(7), Some(-1.5), Some(2.0)));
        assert_eq!((of.squares, of.counts, of.not_finite), (None, vec![1, 0, 2], 4));
        assert_eq!(split("plain"), ("plain", ""));
    }

    #[test]
    fn damaged_counts_are_not_read() {
        for values in [
            "",
            "{}",
            "{\"histogram\":{\"min\":0,\"max\":1,\"sum\":0,\"squares\":0,\"counts\":[]}}",
            "{\"histogram\":{\"min\":null,\"max\":1,\"sum\":0,\"squares\":0,\"counts\":[1]}}",
            "{\"histogram\":{\"min\":0,\"max\":1,\"sum\":0,\"squares\":0,\"counts\":[1,",
        ] {
            assert_eq!(ProgramHistogram::of(values), None, "{values}");
        }
    }
}

//! Histograms of values of the program.

use crate::measurements::Number;
use crate::recording::{is_recording, mark};

/// Number of buckets, as many as TensorBoard draws.
const BUCKETS: usize = 30;
/// Character between the name and the counts.
const SEPARATOR: char = '\x1f';
/// Largest size of name and counts together, in bytes.
const LONGEST: usize = 3800;

/// Records the distribution of values at this moment, for TensorBoard's histograms: 30 buckets of
/// equal width between the lowest and the highest value, and their sums. NaN and infinite values are
/// counted separately. The histogram is drawn at `step`, or without one at the current step. While
/// nothing is being recorded, the values are not read.
///
/// ```
/// let weights = [0.1_f32, -0.4, 0.25];
/// tprof::histogram("layer 1", &weights, None);
/// tprof::histogram("layer 1", &weights, Some(7));
/// ```
pub fn histogram<T: Number + Copy>(name: &str, values: &[T], step: Option<u64>) {
    if is_recording() {
        mark(&text(name, &Counted::of(values), step));
    }
}

/// The counts of a histogram.
#[derive(Debug, PartialEq)]
struct Counted {
    /// Lowest and highest value; `None` without a value.
    extent: Option<(f64, f64)>,
    sum: f64,
    squares: f64,
    counts: Vec<u64>,
    not_finite: usize,
}

impl Counted {
    fn of<T: Number + Copy>(values: &[T]) -> Counted {
        let finite = || values.iter().map(|value| value.to_f64()).filter(|value| value.is_finite());
        let mut found =
            Counted { extent: None, sum: 0.0, squares: 0.0, counts: Vec::new(), not_finite: 0 };
        let mut count = 0;
        for value in finite() {
            let (lowest, highest) = found.extent.unwrap_or((value, value));
            found.extent = Some((lowest.min(value), highest.max(value)));
            found.sum += value;
            found.squares += value * value;
            count += 1;
        }
        found.not_finite = values.len() - count;
        let Some((lowest, highest)) = found.extent else { return found };
        let width = (highest - lowest) / BUCKETS as f64;
        // There is one value, or the values are too close together or too far apart for buckets.
        if !width.is_finite() || lowest + width <= lowest {
            found.counts = vec![count as u64];
            return found;
        }
        found.counts = vec![0; BUCKETS];
        for value in finite() {
            found.counts[(((value - lowest) / width) as usize).min(BUCKETS - 1)] += 1;
        }
        found
    }
}

/// Formats the histogram for tprof's collector.
fn text(name: &str, counted: &Counted, step: Option<u64>) -> String {
    let number = |value: f64| match value.is_finite() {
        true => format!("{value:?}"),
        false => "null".to_owned(),
    };
    let (lowest, highest) = counted.extent.unwrap_or((f64::NAN, f64::NAN));
    let counts: Vec<String> = counted.counts.iter().map(u64::to_string).collect();
    let step = step.map(|step| format!(",\"step\":{step}")).unwrap_or_default();
    let values = format!(
        "{SEPARATOR}{{\"histogram\":{{\"min\":{},\"max\":{},\"sum\":{},\"squares\":{},\"counts\":[{}],\
         \"not_finite\":{}{step}}}}}",
        number(lowest),
        number(highest),
        number(counted.sum),
        number(counted.squares),
        counts.join(","),
        counted.not_finite
    );
    let mut plain = name.replace(SEPARATOR, " ");
    let mut room = LONGEST.saturating_sub(values.len()).min(plain.len());
    while !plain.is_char_boundary(room) {
        room -= 1;
    }
    plain.truncate(room);
    plain + &values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_one_bucket() {
        let values = [0.0, 30.0, 15.5, 29.9, f64::NAN, f64::NEG_INFINITY, 0.2];
        let found = Counted::of(&values);
        assert_eq!((found.extent, found.not_finite), (Some((0.0, 30.0)), 2));
        let expected: Vec<(usize, u64)> = vec![(0, 2), (15, 1), (29, 2)];
        let held = found.counts.iter().copied().enumerate().filter(|bucket| bucket.1 > 0);
        assert_eq!(held.collect::<Vec<_>>(), expected);
        assert_eq!(Counted::of(&[7_u8, 7]).counts, [2]);
        assert_eq!(Counted::of(&[f64::MIN, f64::MAX]).counts, [2]);
        assert_eq!(Counted::of(&[f32::NAN]).counts, [0; 0]);
        assert_eq!(Counted::of::<i64>(&[]).extent, None);
    }

    #[test]
    fn the_text_is_a_name_then_json_and_fits_the_limit() {
        let found = Counted::of(&[1.0, f64::MAX]);
        let text = text(&"ä\x1f".repeat(4000), &found, Some(3));
        assert!(text.len() <= LONGEST && text.len() > LONGEST - 4, "{}", text.len());
        let (name, values) = text.split_once(SEPARATOR).unwrap();
        assert!(name.starts_with("ä ä"), "{name}");
        assert!(values.starts_with("{\"histogram\":{\"min\":1.0,\"max\":1.7976931348623157e308,"));
        assert!(
            values.contains("\"squares\":null") && values.ends_with("\"step\":3}}"),
            "{values}"
        );
    }
}

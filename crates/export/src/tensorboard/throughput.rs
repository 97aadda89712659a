//! Computes samples, tokens and the like per second in each step, from counters of the program.
//!
//! A counter's name contains the unit that it counts. If its values only rise, it is a running
//! total. Otherwise each reading is an amount. `batch_size` is an amount of samples that stays
//! valid until it changes, because trainers set it once or at each batch. Readings between two
//! steps belong to the earlier step, because programs count when a step is done. Readings after the
//! last step belong to no step, because they may belong to a step that did not end.

use tprof_facts::Step;

/// Units that count as throughput.
const UNITS: [&str; 9] =
    ["tokens", "samples", "images", "examples", "sequences", "frames", "words", "records", "rows"];
/// Words that may accompany the unit in a name.
const BESIDE: [&str; 11] = [
    "num",
    "n",
    "total",
    "count",
    "seen",
    "processed",
    "input",
    "train",
    "trained",
    "global",
    "so",
];
/// The name that trainers use for the number of samples per step or batch.
const BATCH_SIZE: &str = "batch_size";

/// Returns the unit in a counter's name, if the counter counts a throughput.
pub(super) fn unit(name: &str) -> Option<&'static str> {
    if name == BATCH_SIZE {
        return Some("samples");
    }
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let units: Vec<&&str> = UNITS.iter().filter(|unit| words.contains(unit)).collect();
    let known = |word: &&str| BESIDE.contains(word) || UNITS.contains(word);
    match (units.as_slice(), words.iter().all(known)) {
        ([unit], true) => Some(unit),
        _ => None,
    }
}

/// Returns the rate per second of each step, by index of the step. `readings` are times and values
/// in order of time. A step without a reading has no rate.
pub(super) fn rates(name: &str, readings: &[(u64, f64)], steps: &[Step]) -> Vec<(usize, f64)> {
    let falls = readings.windows(2).any(|pair| pair[1].1 < pair[0].1);
    let rises = readings.windows(2).any(|pair| pair[1].1 > pair[0].1);
    let holds = name == BATCH_SIZE;
    let is_so_far = rises && !falls && !holds;
    let mut rates = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let until_ns = steps.get(place + 1).map_or(step.end_ns, |next| next.start_ns);
        let first = readings.partition_point(|(time_ns, _)| *time_ns < step.start_ns);
        let end = readings.partition_point(|(time_ns, _)| *time_ns < until_ns).max(first);
        let before = first.checked_sub(1).map(|at| readings[at].1);
        let within = &readings[first..end];
        let amount = match within.last() {
            Some((_, last)) if is_so_far => before.map(|before| last - before),
            Some(_) => Some(within.iter().map(|(_, value)| value).sum()),
            None => before.filter(|_| holds),
        };
        let seconds = step.end_ns.saturating_sub(step.start_ns) as f64 / 1e9;
        if let Some(amount) = amount.filter(|_| seconds > 0.0) {
            rates.push((place, amount / seconds));
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_counter_contains_its_unit() {
        for (name, counts) in [
            ("tokens", Some("tokens")),
            ("num_input_tokens_seen", Some("tokens")),
            ("train/samples", Some("samples")),
            ("Images_total", Some("images")),
            ("batch_size", Some("samples")),
            ("tokens_per_second", None),
            ("samples_tokens", None),
            ("loss", None),
            ("rows_left_in_queue", None),
            ("", None),
        ] {
            assert_eq!(unit(name), counts, "{name}");
        }
    }

    /// Returns steps that last 1 s and begin 2 s apart, the first at 10 s.
    fn steps(count: u64) -> Vec<Step> {
        let second = 1_000_000_000;
        let at = |number| Step {
            start_ns: (10 + 2 * number) * second,
            end_ns: (11 + 2 * number) * second,
            process: 0,
            number,
        };
        (0..count).map(at).collect()
    }

    fn read(values: &[(f64, f64)]) -> Vec<(u64, f64)> {
        values.iter().map(|(seconds, value)| ((seconds * 1e9) as u64, *value)).collect()
    }

    #[test]
    fn the_rate_of_a_running_total_is_its_rise() {
        let readings = read(&[(9.0, 100.0), (11.5, 612.0), (13.5, 612.0), (14.5, 1636.0)]);
        let found = rates("tokens", &readings, &steps(3));
        assert_eq!(found, [(0, 512.0), (1, 0.0), (2, 1024.0)]);
        // The rise before the first reading is unknown, so its step has no rate.
        assert_eq!(rates("tokens", &readings[1..], &steps(3)), [(1, 0.0), (2, 1024.0)]);
    }

    #[test]
    fn readings_that_fall_are_amounts() {
        let readings = read(&[(10.2, 512.0), (10.7, 500.0), (14.5, 480.0)]);
        assert_eq!(rates("tokens", &readings, &steps(3)), [(0, 1012.0), (2, 480.0)]);
    }

    #[test]
    fn a_batch_size_counts_for_each_step_until_it_changes() {
        let readings = read(&[(1.0, 32.0), (14.5, 64.0)]);
        let found = rates("batch_size", &readings, &steps(3));
        assert_eq!(found, [(0, 32.0), (1, 32.0), (2, 64.0)]);
        assert_eq!(rates("batch_size", &[], &steps(3)), []);
    }
}

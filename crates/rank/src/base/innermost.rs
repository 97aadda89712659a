//! Finds the innermost of one thread's nested spans at each moment.

use std::cmp::Reverse;

use super::intervals::Interval;

/// Splits the time of nested spans into parts that do not overlap, in order of time. Each part has
/// the value of the innermost span around it.
pub fn innermost<T: Copy>(mut spans: Vec<(Interval, T)>) -> Vec<(Interval, T)> {
    spans.sort_by_key(|(span, _)| (span.start, Reverse(span.end)));
    let mut found: Vec<(Interval, T)> = Vec::with_capacity(spans.len());
    let mut open: Vec<(u64, T)> = Vec::new();
    let mut at_ns = 0;
    let mut until = |open: &mut Vec<(u64, T)>, time_ns: u64| {
        while let Some(&(end_ns, what)) = open.last() {
            let part = Interval::new(at_ns, end_ns.min(time_ns));
            found.extend((part.length() > 0).then_some((part, what)));
            at_ns = at_ns.max(part.end);
            if end_ns > time_ns {
                break;
            }
            open.pop();
        }
        at_ns = at_ns.max(time_ns);
    };
    for (span, what) in spans {
        until(&mut open, span.start);
        open.push((span.end, what));
    }
    until(&mut open, u64::MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(start: u64, end: u64) -> Interval {
        Interval::new(start, end)
    }

    #[test]
    fn an_inner_span_takes_its_time_from_the_outer_one() {
        let spans = vec![(at(20, 40), 'b'), (at(10, 100), 'a'), (at(120, 130), 'c')];
        let parts = [(at(10, 20), 'a'), (at(20, 40), 'b'), (at(40, 100), 'a'), (at(120, 130), 'c')];
        assert_eq!(innermost(spans), parts);
    }

    proptest! {
        #[test]
        fn each_moment_has_the_span_that_began_last(
            spans in prop::collection::vec((0_u64..60, 0_u64..20), 0..12),
        ) {
            let spans: Vec<(Interval, usize)> =
                spans.iter().enumerate().map(|(i, (from, long))| (at(*from, from + long), i)).collect();
            let parts = innermost(spans.clone());
            prop_assert!(parts.windows(2).all(|two| two[0].0.end <= two[1].0.start));
            for moment in 0..80 {
                let is_in = |of: &Interval| (of.start..of.end).contains(&moment);
                let begins = |i: usize| spans[i].0.start;
                let latest = spans.iter().filter(|(of, _)| is_in(of)).map(|(of, _)| of.start).max();
                let found = parts.iter().find(|(part, _)| is_in(part)).map(|(_, i)| begins(*i));
                prop_assert_eq!(found, latest);
            }
        }
    }
}

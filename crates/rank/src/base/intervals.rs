//! Computes with sets of intervals: union, intersection, difference, length.
//!
//! Work on different streams overlaps, so durations must never be summed: every share of time that
//! a report names is the length of a [`Cover`] or of the intersection of two.

use std::borrow::Borrow;

use crate::base::search::partition_near;

/// Nanoseconds from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    /// The first nanosecond of the interval.
    pub start: u64,
    /// One past the last nanosecond of the interval.
    pub end: u64,
}

impl Interval {
    /// Creates the interval from `start` up to `end`; it is empty if `end` lies before `start`.
    #[inline]
    pub fn new(start: u64, end: u64) -> Interval {
        Interval { start, end: end.max(start) }
    }

    /// Length of the interval, nanoseconds.
    #[inline]
    pub fn length(self) -> u64 {
        self.end - self.start
    }

    /// The shortest interval that holds all of these; `None` if there are none.
    pub fn hull(intervals: impl Iterator<Item = Interval>) -> Option<Interval> {
        intervals.reduce(|a, b| Interval::new(a.start.min(b.start), a.end.max(b.end)))
    }

    /// The part that both intervals share; empty where they only touch.
    #[inline]
    pub fn overlap(self, other: Interval) -> Interval {
        Interval::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// Intervals in order that neither overlap nor touch: a set of nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    parts: Vec<Interval>,
}

impl Cover {
    /// Union of intervals in any order.
    pub fn of(intervals: impl IntoIterator<Item = Interval>) -> Cover {
        let mut union = Union::default();
        intervals.into_iter().for_each(|interval| union.add(interval));
        union.finish()
    }

    /// Returns the union of several covers. The time that this takes grows with the number of their
    /// parts, not with the number of pairs of parts.
    pub fn any(covers: impl IntoIterator<Item = impl Borrow<Cover>>) -> Cover {
        let mut parts: Vec<Interval> = Vec::new();
        covers.into_iter().for_each(|cover| parts.extend(&cover.borrow().parts));
        // Each cover's parts are in order already, which makes a stable sort fast.
        parts.sort();
        let mut any = Cover::default();
        parts.into_iter().for_each(|part| any.push(part));
        any
    }

    /// Adds an interval that starts no earlier than the last one.
    fn push(&mut self, interval: Interval) {
        match self.parts.last_mut() {
            Some(last) if interval.start <= last.end => last.end = last.end.max(interval.end),
            _ => self.parts.push(interval),
        }
    }

    /// The intervals of the set, in order.
    #[inline]
    pub fn parts(&self) -> &[Interval] {
        &self.parts
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Number of nanoseconds in the set.
    #[inline]
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.length()).sum()
    }

    /// The interval from the first to the last nanosecond; `None` if the set is empty.
    #[inline]
    pub fn span(&self) -> Option<Interval> {
        Some(Interval { start: self.parts.first()?.start, end: self.parts.last()?.end })
    }

    /// The nanoseconds in either of two sets.
    pub fn union(&self, other: &Cover) -> Cover {
        let mut union = Cover { parts: Vec::with_capacity(self.parts.len() + other.parts.len()) };
        let (mut ours, mut theirs) = (self.parts.as_slice(), other.parts.as_slice());
        while let (Some(a), Some(b)) = (ours.first(), theirs.first()) {
            let next = if a.start <= b.start { &mut ours } else { &mut theirs };
            union.push(next[0]);
            *next = &next[1..];
        }
        ours.iter().chain(theirs).for_each(|part| union.push(*part));
        union
    }

    /// The nanoseconds in both sets.
    pub fn intersection(&self, other: &Cover) -> Cover {
        let mut parts = Vec::new();
        each_overlap(&self.parts, &other.parts, |part| parts.push(part));
        Cover { parts }
    }

    /// Number of nanoseconds in both sets, without building that set.
    pub fn shared(&self, other: &Cover) -> u64 {
        let mut shared = 0;
        each_overlap(&self.parts, &other.parts, |part| shared += part.length());
        shared
    }

    /// Prepares the set for many queries of [`Measure::within`].
    pub fn measure(&self) -> Measure<'_> {
        let mut before = Vec::with_capacity(self.parts.len());
        let mut length = 0;
        for part in &self.parts {
            before.push(length);
            length += part.length();
        }
        Measure { parts: &self.parts, before }
    }

    /// The nanoseconds in this set that are not in the other.
    pub fn without(&self, other: &Cover) -> Cover {
        let mut parts = Vec::new();
        let mut others = other.parts.iter().peekable();
        for part in &self.parts {
            let mut start = part.start;
            while let Some(cut) = others.peek() {
                if cut.start >= part.end {
                    break;
                }
                if cut.start > start {
                    parts.push(Interval { start, end: cut.start });
                }
                start = start.max(cut.end);
                if cut.end > part.end {
                    break;
                }
                others.next();
            }
            if start < part.end {
                parts.push(Interval { start, end: part.end });
            }
        }
        Cover { parts }
    }

    /// Whether the set holds any nanosecond of an interval, or the start of an empty interval.
    pub fn touches(&self, interval: Interval) -> bool {
        let first = self.parts.partition_point(|part| part.end <= interval.start);
        let end = interval.end.max(interval.start + 1);
        self.parts.get(first).is_some_and(|part| part.start < end)
    }

    /// The part of the set within an interval, found by binary search.
    pub fn within(&self, limits: Interval) -> Cover {
        let first = self.parts.partition_point(|part| part.end <= limits.start);
        let parts = self.parts[first..].iter().take_while(|part| part.start < limits.end);
        Cover {
            parts: parts
                .map(|part| part.overlap(limits))
                .filter(|part| part.length() > 0)
                .collect(),
        }
    }

    /// Number of nanoseconds of the set within an interval, found by binary search.
    pub fn length_within(&self, limits: Interval) -> u64 {
        let first = self.parts.partition_point(|part| part.end <= limits.start);
        let parts = self.parts[first..].iter().take_while(|part| part.start < limits.end);
        parts.map(|part| part.overlap(limits).length()).sum()
    }
}

/// Builds a cover from intervals in any order; intervals in order of start are cheapest.
#[derive(Clone, Debug, Default)]
pub struct Union {
    cover: Cover,
    /// Intervals that were added after a later one.
    late: Vec<Interval>,
}

impl Union {
    /// Adds one more interval.
    pub fn add(&mut self, interval: Interval) {
        if interval.length() == 0 {
            return;
        }
        match self.cover.parts.last() {
            Some(last) if interval.start < last.start => self.late.push(interval),
            _ => self.cover.push(interval),
        }
    }

    /// Returns the union of all intervals that were added.
    pub fn finish(self) -> Cover {
        let Union { mut cover, mut late } = self;
        if late.is_empty() {
            return cover;
        }
        late.append(&mut cover.parts);
        late.sort_unstable();
        late.into_iter().for_each(|interval| cover.push(interval));
        cover
    }
}

/// A cover, and for each of its intervals the total length of the intervals before it.
#[derive(Debug)]
pub struct Measure<'a> {
    parts: &'a [Interval],
    before: Vec<u64>,
}

impl Measure<'_> {
    /// Nanoseconds of an interval that are in the cover.
    pub fn within(&self, interval: Interval) -> u64 {
        let begun = |time_ns| self.parts.partition_point(|part| part.start < time_ns);
        let up_to = |time_ns| self.up_to(time_ns, begun(time_ns));
        up_to(interval.end) - up_to(interval.start)
    }

    /// Starts a walk, for queries of intervals that follow each other.
    pub fn walk(&self) -> MeasureWalk<'_> {
        MeasureWalk { measure: self, at: 0 }
    }

    /// Nanoseconds of the cover before a moment, given how many parts have begun by then.
    fn up_to(&self, time_ns: u64, begun: usize) -> u64 {
        let Some(last) = begun.checked_sub(1) else { return 0 };
        let part = self.parts[last];
        self.before[last] + part.end.min(time_ns) - part.start
    }
}

/// A walk along a cover: each query starts where the last one ended.
///
/// The answer is right for intervals in any order. If an interval is near the last one, the walk
/// need not search the whole cover, which would cost more than all other work on a row.
#[derive(Debug)]
pub struct MeasureWalk<'a> {
    measure: &'a Measure<'a>,
    /// Number of parts that started before the start of the last query's interval.
    at: usize,
}

impl MeasureWalk<'_> {
    /// Nanoseconds of an interval that are in the cover.
    pub fn within(&mut self, interval: Interval) -> u64 {
        let parts = self.measure.parts;
        let begun = |near, time_ns: u64| partition_near(parts, near, |part| part.start < time_ns);
        self.at = begun(self.at, interval.start);
        let before = self.measure.up_to(interval.start, self.at);
        self.measure.up_to(interval.end, begun(self.at, interval.end)) - before
    }
}

impl FromIterator<Interval> for Cover {
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> Cover {
        Cover::of(intervals)
    }
}

fn each_overlap(mut a: &[Interval], mut b: &[Interval], mut found: impl FnMut(Interval)) {
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        let overlap = first.overlap(*second);
        if overlap.length() > 0 {
            found(overlap);
        }
        if first.end <= second.end { a = &a[1..] } else { b = &b[1..] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cover(parts: &[(u64, u64)]) -> Cover {
        parts.iter().map(|(start, end)| Interval::new(*start, *end)).collect()
    }

    #[test]
    fn overlapping_work_counts_once() {
        let cover = cover(&[(5, 9), (0, 3), (2, 4), (9, 10), (7, 7), (20, 25)]);
        assert_eq!(
            cover.parts(),
            [Interval::new(0, 4), Interval::new(5, 10), Interval::new(20, 25)]
        );
        assert_eq!(cover.length(), 14);
        assert_eq!(cover.span(), Some(Interval::new(0, 25)));
        assert_eq!(Cover::default().span(), None);
    }

    #[test]
    fn union_intersection_and_difference_are_those_of_sets() {
        let (a, b) = (cover(&[(0, 10), (20, 30)]), cover(&[(5, 22), (28, 40)]));
        assert_eq!(a.union(&b), cover(&[(0, 40)]));
        assert_eq!(a.intersection(&b), cover(&[(5, 10), (20, 22), (28, 30)]));
        assert_eq!(a.without(&b), cover(&[(0, 5), (22, 28)]));
        assert_eq!(b.without(&a), cover(&[(10, 20), (30, 40)]));
        assert_eq!(a.within(Interval::new(8, 25)), cover(&[(8, 10), (20, 25)]));
        for limits in [(8, 25), (0, 0), (0, 100), (10, 20), (25, 26)] {
            let limits = Interval::new(limits.0, limits.1);
            assert_eq!(a.length_within(limits), a.within(limits).length());
        }
    }

    fn intervals() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..60, 0_u64..12), 0..24)
            .prop_map(|rows| rows.into_iter().map(|(at, long)| (at, at + long)).collect())
    }

    /// Marks which of the first nanoseconds are in a set.
    fn bits(parts: &[(u64, u64)]) -> u128 {
        let of = |(start, end): &(u64, u64)| (*start..*end).map(|at| 1_u128 << at).sum::<u128>();
        parts.iter().map(of).fold(0, |all, one| all | one)
    }

    fn bits_of(cover: &Cover) -> u128 {
        let parts: Vec<(u64, u64)> =
            cover.parts().iter().map(|part| (part.start, part.end)).collect();
        assert!(parts.windows(2).all(|pair| pair[0].1 < pair[1].0), "{parts:?}");
        assert!(parts.iter().all(|part| part.0 < part.1), "{parts:?}");
        bits(&parts)
    }

    proptest! {
        #[test]
        fn covers_agree_with_sets_of_nanoseconds(a in intervals(), b in intervals()) {
            let (first, second) = (cover(&a), cover(&b));
            prop_assert_eq!(bits_of(&first), bits(&a));
            prop_assert_eq!(first.length(), u64::from(bits(&a).count_ones()));
            prop_assert_eq!(bits_of(&first.union(&second)), bits(&a) | bits(&b));
            prop_assert_eq!(Cover::any([&first, &second]), first.union(&second));
            prop_assert_eq!(bits_of(&first.intersection(&second)), bits(&a) & bits(&b));
            prop_assert_eq!(bits_of(&first.without(&second)), bits(&a) & !bits(&b));
            prop_assert_eq!(first.shared(&second), first.intersection(&second).length());
            let measure = first.measure();
            let mut walk = measure.walk();
            for part in &b {
                let part = Interval::new(part.0, part.1);
                prop_assert_eq!(measure.within(part), first.within(part).length());
                prop_assert_eq!(walk.within(part), first.within(part).length());
            }
            prop_assert_eq!(
                first.shared(&second) + first.without(&second).length(),
                first.length()
            );
        }

        #[test]
        fn neither_order_nor_a_cut_changes_a_cover(
            parts in intervals(), turn in 0_usize..24, at in 0_u64..60,
        ) {
            let whole = cover(&parts);
            let mut other: Vec<(u64, u64)> = parts
                .iter()
                .flat_map(|&(start, end)| [(start, end.min(at.max(start))), (start.max(at.min(end)), end)])
                .collect();
            let turn = turn.min(other.len());
            other.rotate_left(turn);
            other.reverse();
            prop_assert_eq!(cover(&other), whole);
        }
    }
}

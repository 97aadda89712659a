//! Sorts rows of tables.
//!
//! Each sort of a slice by the standard library compiles to some thousands of instructions of its
//! own, and reports have two hundred of them. These functions share one sort of numbers, which
//! costs a call for each comparison and does not matter for the rows of a table. Sort what a rank
//! recorded, which may be millions of rows, with the standard library.

use std::cmp::Ordering;

/// Sorts rows of tables. Rows that are equal keep their order.
pub trait SortRows<T> {
    /// Sorts the rows by `compare`.
    fn sort_rows_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);
    /// Sorts the rows by their keys.
    fn sort_rows_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortRows<T> for [T] {
    fn sort_rows_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let rows = &*self;
        let mut order = sorted_places(rows.len(), &mut |a, b| compare(&rows[a], &rows[b]));
        reorder(self, &mut order);
    }

    fn sort_rows_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_rows_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Returns the places 0 to `len` in the order of their rows.
#[inline(never)]
fn sorted_places(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

/// Moves the row at `places[n]` to `n`, for each `n`.
fn reorder<T>(rows: &mut [T], places: &mut [usize]) {
    for first in 0..places.len() {
        let mut at = first;
        // Each place belongs to one circle of places whose rows change places with each other.
        while places[at] != first {
            let from = std::mem::replace(&mut places[at], at);
            rows.swap(at, from);
            at = from;
        }
        places[at] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    #[test]
    fn rows_are_sorted_as_by_the_standard_library() {
        // Numbers that repeat, so that the order of equal rows shows.
        let rows = |len: u64| (0..len).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 7 & 15, n));
        for len in [0, 1, 2, 3, 20, 21, 1_000] {
            let mut sorted: Vec<_> = rows(len).collect();
            let mut expected = sorted.clone();
            sorted.sort_rows_by_key(|row| Reverse(row.0));
            expected.sort_by_key(|row| Reverse(row.0));
            assert_eq!(sorted, expected);
            sorted.sort_rows_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            expected.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            assert_eq!(sorted, expected);
        }
    }
}

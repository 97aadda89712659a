//! Draws a curve as one line of block characters.

/// Number of equal parts of the time; a curve has a value for each.
pub const COLUMNS: usize = 52;
/// Columns that a curve's name and its highest value need next to it.
const BESIDE: usize = 28;

const LEVELS: [char; 8] = [
    '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];

/// Draws a curve with one character per column, on a page of `page` columns. A character shows the
/// maximum of its buckets. Unknown values are spaces. Known values, including 0, have at least the
/// lowest block.
pub fn curve(buckets: &[Option<u64>], length: usize, highest: u64, page: usize) -> String {
    let columns = COLUMNS.min(page.saturating_sub(BESIDE)).min(length).max(1);
    (0..columns)
        .map(|column| {
            let (from, to) = (column * length / columns, (column + 1) * length / columns);
            let part = buckets.get(from..to.min(buckets.len()).max(from)).unwrap_or_default();
            match part.iter().flatten().max() {
                None => ' ',
                Some(&value) => LEVELS[level(value, highest)],
            }
        })
        .collect()
}

fn level(value: u64, highest: u64) -> usize {
    if highest == 0 {
        return 0;
    }
    let top = LEVELS.len() as u128 - 1;
    (u128::from(value) * top / u128::from(highest)).min(top) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_maxima() {
        let mut buckets = vec![Some(0); 200];
        buckets[0] = None;
        buckets[150] = Some(700);
        let line: Vec<char> = curve(&buckets, 200, 700, 80).chars().collect();
        assert_eq!(line.len(), COLUMNS);
        assert_eq!(line.iter().filter(|c| **c == LEVELS[7]).count(), 1);
        assert_eq!(curve(&buckets, 200, 700, 60).chars().count(), 60 - BESIDE);
        assert_eq!(curve(&[None, Some(3)], 2, 3, 80), " \u{2588}");
        assert_eq!(curve(&[Some(3)], 3, 3, 80), "\u{2588}  ");
    }
}

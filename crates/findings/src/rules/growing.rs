//! Decides whether held memory keeps growing. Caches, data and pools are filled once and then stop
//! growing.

/// The time is divided into one of these numbers of parts, and only the lowest level of each part
/// is judged. So memory that is allocated and freed within a part doesn't count. The smaller number
/// makes longer parts, for memory that is held longer.
const PARTS: [usize; 2] = [16, 8];
/// A later part of the time is judged by itself only if it has at least this many moments.
const LEAST_MOMENTS: usize = 8;
/// The straight line through all levels must rise by a share in this range of the difference
/// between the last and the first level.
const STEADY: std::ops::RangeInclusive<f64> = 0.7..=1.4;
/// The line must also rise by more than this many standard deviations of the levels from the line.
/// This limit is for the first attempt, which judges the whole time in 16 parts. The other attempts
/// use [`LEAST_OF_OTHERS`]. It is higher, because several attempts make a false positive more
/// likely.
const LEAST_OF_DEVIATION: f64 = 3.0;
const LEAST_OF_OTHERS: f64 = 5.0;
/// The growth is divided into this many equal rises, and for each rise the moment at which it is
/// complete is computed.
const RISES: u64 = 16;
/// The time without growth at the end must be at most this share of the whole time, or at most
/// [`MOST_OF_PAUSES`] times the longest earlier pause. The second limit is for growth by a few
/// large blocks, which has pauses.
const MOST_PAUSE: f64 = 0.1;
const MOST_OF_PAUSES: f64 = 1.25;
/// The smallest share of the growth that must happen in the last third of the time.
const LEAST_OF_LAST: f64 = 0.13;

/// Returns the number of moments to judge. If less than a sixteenth of the time follows the highest
/// level, that time is left out: the memory is released at the end, for example when `main`
/// returns.
pub(super) fn until_release(levels: &[u64]) -> usize {
    let most = levels.iter().max();
    let last = levels.iter().rposition(|level| Some(level) == most).map_or(0, |at| at + 1);
    if last + levels.len() / 16 >= levels.len() { last } else { levels.len() }
}

/// Returns the moment from which the levels rise until the end; `None` if they don't. The rise must
/// have at least `least_rises` steps, and `counts` must accept its first and last level. If the
/// whole time doesn't grow, later parts of it are judged too, because memory that is filled at the
/// start may hide later growth.
pub(super) fn grows_from(
    levels: &[u64],
    least_rises: usize,
    counts: impl Fn(u64, u64) -> bool,
) -> Option<usize> {
    let starts = [levels.len() / 4, levels.len() / 2, levels.len() * 2 / 3];
    let is_judged = |from: &usize| levels.len() - from >= LEAST_MOMENTS;
    let of_time = PARTS.into_iter().map(|parts| (0, parts));
    let later = starts.into_iter().filter(is_judged).map(|from| (from, PARTS[0]));
    let found = of_time.chain(later).find(|(from, parts)| {
        let lowest = lowest_of_parts(&levels[*from..], *parts);
        let (Some(first), Some(last)) = (lowest.first(), lowest.last()) else { return false };
        let is_first = (*from, *parts) == (0, PARTS[0]);
        let deviations = if is_first { LEAST_OF_DEVIATION } else { LEAST_OF_OTHERS };
        let is_growth = counts(*first, *last) && is_steady(&lowest, deviations);
        is_growth && goes_on(&lowest, least_rises) && goes_on(&levels[*from..], least_rises)
    });
    found.map(|(from, _)| from)
}

/// Divides the time into at most `most` equal parts and returns the lowest level of each. This is
/// the memory that was held throughout the part.
fn lowest_of_parts(levels: &[u64], most: usize) -> Vec<u64> {
    let parts = levels.len().min(most);
    let of_part = |at: usize| {
        let part = at * levels.len() / parts..(at + 1) * levels.len() / parts;
        levels[part].iter().copied().min()
    };
    (0..parts).filter_map(of_part).collect()
}

/// Returns for each moment the bytes that are never released later: the lowest level from that
/// moment to the end.
fn kept(levels: &[u64]) -> Vec<u64> {
    let mut kept = levels.to_vec();
    for at in (1..kept.len()).rev() {
        kept[at - 1] = kept[at - 1].min(kept[at]);
    }
    kept
}

/// Whether the levels lie close to a straight line.
fn is_steady(levels: &[u64], least_of_deviation: f64) -> bool {
    let kept = kept(levels);
    let growth = kept.last().copied().unwrap_or(0) - kept.first().copied().unwrap_or(0);
    let (rise, deviation) = line(levels);
    STEADY.contains(&(rise / growth.max(1) as f64)) && rise >= least_of_deviation * deviation
}

/// Whether the kept bytes grow in at least this many rises, and keep growing until the end.
fn goes_on(levels: &[u64], least_rises: usize) -> bool {
    let Some(intervals) = levels.len().checked_sub(1).filter(|intervals| *intervals > 1) else {
        return false;
    };
    let kept = kept(levels);
    let (first, last) = (kept[0], kept[intervals]);
    let growth = last - first;
    if growth == 0 {
        return false;
    }
    let part = |parts: u64| {
        first + (u128::from(growth) * u128::from(parts)).div_ceil(u128::from(RISES)) as u64
    };
    let mut reached: Vec<usize> =
        (1..RISES).map(|parts| kept.partition_point(|level| *level < part(parts))).collect();
    let pause = (intervals - reached[reached.len() - 1]) as f64;
    reached.dedup();
    let longest = reached.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let of_last = (last - kept[levels.len() * 2 / 3]) as f64;
    reached.len() >= least_rises.min(intervals)
        && pause <= (MOST_PAUSE * intervals as f64).max(MOST_OF_PAUSES * longest as f64)
        && of_last >= LEAST_OF_LAST * growth as f64
}

/// Returns the rise of the straight line through all levels, and the levels' standard deviation
/// from that line.
fn line(levels: &[u64]) -> (f64, f64) {
    let count = levels.len() as f64;
    let mean = levels.iter().map(|level| *level as f64).sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let apart =
        || levels.iter().enumerate().map(|(at, level)| (at as f64 - middle, *level as f64 - mean));
    let (mut of_both, mut of_time) = (0.0, 0.0);
    for (time, level) in apart() {
        of_both += time * level;
        of_time += time * time;
    }
    let slope = of_both / of_time.max(1.0);
    let squares = apart().map(|(time, level)| (level - slope * time).powi(2)).sum::<f64>();
    (slope * (count - 1.0), (squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1048576.0;
    const MOMENTS: usize = 257;

    /// Samples a function at this many moments. The function maps the share of the time to a size
    /// in MiB.
    fn levels(moments: usize, mib: impl Fn(f64) -> f64) -> Vec<u64> {
        (0..moments).map(|at| (mib(at as f64 / (moments - 1) as f64) * MIB) as u64).collect()
    }

    fn is_growth(moments: usize, mib: impl Fn(f64) -> f64) -> bool {
        let grown = |first: u64, last: u64| last.saturating_sub(first) as f64;
        let counts = |first, last| grown(first, last) >= MIB.max(0.05 * last as f64);
        grows_from(&levels(moments, mib), 3, counts).is_some()
    }

    #[test]
    fn memory_that_is_released_at_the_end_counts_as_kept() {
        let leak =
            |released: f64| levels(MOMENTS, |at| if at < released { 100.0 * at } else { 40.0 });
        assert_eq!(until_release(&leak(0.97)), 249);
        assert_eq!(until_release(&leak(0.8)), MOMENTS);
        assert_eq!(until_release(&levels(MOMENTS, |at| 100.0 * at)), MOMENTS);
        assert_eq!(until_release(&[]), 0);
    }

    #[test]
    fn memory_filled_once_does_not_grow_all_the_time() {
        for end in 1..=18 {
            let end = f64::from(end) / 20.0;
            for moments in [32, 64, MOMENTS] {
                let filled = |at: f64| 50.0 + 100.0 * (at / end).min(1.0);
                assert!(!is_growth(moments, filled), "until {end}, at {moments} moments");
                let loaded = |at: f64| if at < end { 50.0 } else { 150.0 };
                assert!(!is_growth(moments, loaded), "at {end}, of {moments} moments");
            }
        }
        // A cache fills more and more slowly, and other memory is allocated and freed again and
        // again.
        assert!(!is_growth(MOMENTS, |at| 100.0 * (1.0 - (-5.0 * at).exp())));
        assert!(!is_growth(MOMENTS, |at| 50.0 + 40.0 * (at * 77.0).sin()));
        assert!(!is_growth(MOMENTS, |at| 50.0 + 40.0 * (at * 9.3).fract()));
        // After a pool is filled, only a little more memory is added.
        assert!(!is_growth(MOMENTS, |at| 100.0 * (at / 0.3).min(1.0) + 0.5 * at));
        assert!(!is_growth(4, |at| if at < 0.3 { 10.0 } else { 60.0 }));
    }

    #[test]
    fn a_leak_is_found_if_it_is_even_stepped_late_or_noisy() {
        for moments in [4, 5, 9, 20, 64, MOMENTS] {
            assert!(is_growth(moments, |at| 50.0 + 100.0 * at), "even, at {moments}");
        }
        assert!(is_growth(MOMENTS, |at| 20.0 + 1.5 * at), "slow");
        for steps in [3.0, 4.0, 5.0, 10.0] {
            let stepped = |at: f64| 50.0 + (at * (steps + 1.0)).floor().min(steps) * 8.0;
            assert!(is_growth(MOMENTS, stepped), "{steps} steps");
        }
        for start in [0.1, 0.3, 0.5, 0.6, 0.7, 0.8] {
            let late = |at: f64| 50.0 + 100.0 * (at - start).max(0.0);
            assert!(is_growth(MOMENTS, late), "from {start}");
        }
        // Other memory is allocated and freed on top of the leak, or filled before it.
        for teeth in [10.3, 11.3, 20.9, 31.0, 63.0] {
            let saw = |at: f64| 50.0 + 30.0 * at + 25.0 * (at * teeth).fract();
            assert!(is_growth(MOMENTS, saw), "{teeth} teeth");
        }
        for end in [0.1, 0.2, 0.3, 0.4, 0.6] {
            let both = |at: f64| 100.0 * (at / end).min(1.0) + 20.0 * at;
            assert!(is_growth(MOMENTS, both), "after {end}");
        }
        assert!(is_growth(MOMENTS, |at| 100.0 * at * at), "faster and faster");
    }

    /// Makes several heaps of about 20 MiB that are estimated from samples, and counts how many are
    /// judged to grow. Each heap grows by `rise` MiB and has a random estimation error. The share
    /// `stays` of the error carries over from one moment to the next.
    fn taken_for_growing(heaps: u64, rise: f64, stays: f64) -> usize {
        let is_growth = |seed: &u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut normal = || {
                let uniform = (0..12).map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 11) as f64 / (1u64 << 53) as f64
                });
                uniform.sum::<f64>() - 6.0
            };
            let mut off = 3.0 * normal();
            let noisy: Vec<f64> = (0..MOMENTS)
                .map(|_| {
                    off = stays * off + 3.0 * (1.0 - stays * stays).sqrt() * normal();
                    off
                })
                .collect();
            let at = |share: f64| noisy[(share * (MOMENTS - 1) as f64).round() as usize];
            is_growth(MOMENTS, |share| (20.0 + rise * share + at(share)).max(0.0))
        };
        (0..heaps).filter(is_growth).count()
    }

    #[test]
    fn sampling_noise_is_not_growth() {
        for (stays, most) in [(0.0, 10), (0.5, 20)] {
            let taken = taken_for_growing(1000, 0.0, stays);
            assert!(taken <= most, "{taken} of 1000, of which {stays} stay");
            let taken = taken_for_growing(1000, 40.0, stays);
            assert!(taken >= 900, "{taken} of 1000 that grow, of which {stays} stay");
        }
    }
}

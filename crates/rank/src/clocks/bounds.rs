//! Finds the line between two clocks, from bounds on how far they are apart.
//!
//! No rank leaves a collective before the last has entered it. So each collective of two clocks
//! bounds their difference from both sides: what one clock showed when its first rank left is not
//! before what the other showed when its last rank entered. Clocks drift evenly for a while, so a
//! line lies between all lower and all upper bounds (Duda, Harrus, Haddad and Bernard, "Estimating
//! global time in distributed systems", ICDCS 1987). All ranks leave a collective at about the same
//! time, so of all such lines the one nearest to that is chosen; the others tell its error. If one
//! rank always comes last, bounds of only one side are close, and the error is as large as that rank
//! is late.

use tprof_trace::ClockLine;

/// The largest drift between two clocks: two quartz oscillators, each within 100 ppm of its nominal
/// rate.
const MOST_DRIFT: f64 = 200e-6;

/// Bounds that contradict each other by less than this still count as consistent. Times of devices
/// are converted to the host's clock with an error of a few microseconds.
const RESOLUTION_NS: f64 = 10_000.0;

/// Halvings of an interval: enough for a drift of 1e-4 to become exact.
const HALVINGS: u32 = 60;

/// What one collective says about two clocks: the difference, to be added to the one clock's times,
/// lies between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Time of the clock, ns.
    pub at_ns: i64,
    /// The least difference, ns.
    pub least_ns: i64,
    /// The largest difference, ns.
    pub most_ns: i64,
    /// The difference if both clocks' ranks left at the same moment, ns.
    pub ends_ns: i64,
}

/// A line between two clocks, with its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    /// What to add to the one clock's times.
    pub line: ClockLine,
    /// The true difference is within this of the line, at every time between the first and the last
    /// bounds, ns.
    pub error_ns: u64,
}

/// The bounds in floating point, around their first time.
struct Corridor {
    start_ns: i64,
    base_ns: i64,
    /// Time, lower and upper bound, in order of time.
    points: Vec<[f64; 3]>,
    /// For each point, the difference if both left at the same moment.
    ends: Vec<f64>,
}

/// Finds the line between two clocks. `None` if there are no bounds, or if no clocks with a
/// plausible drift satisfy them.
pub fn fit(bounds: &[Bounds]) -> Option<FittedLine> {
    let corridor = Corridor::of(bounds)?;
    let limits = corridor.limits_by_drift()?;
    let (at_start, slope) = corridor.best();
    Some(corridor.fitted(at_start, slope, &limits))
}

/// Returns the clocks as they were recorded, if no bounds contradict that, with the error.
pub fn as_recorded(bounds: &[Bounds]) -> Option<FittedLine> {
    let agrees =
        |of: &Bounds| of.least_ns as f64 <= RESOLUTION_NS && of.most_ns as f64 >= -RESOLUTION_NS;
    if !bounds.iter().all(agrees) {
        return None;
    }
    let corridor = Corridor::of(bounds)?;
    let limits = corridor.limits_by_drift()?;
    let FittedLine { error_ns, .. } = corridor.fitted(-corridor.base_ns as f64, 0.0, &limits);
    Some(FittedLine { line: ClockLine::default(), error_ns })
}

impl Corridor {
    fn of(bounds: &[Bounds]) -> Option<Corridor> {
        let mut bounds = bounds.to_vec();
        bounds.sort_unstable_by_key(|of| of.at_ns);
        let first = *bounds.first()?;
        // Subtracted first, because the clocks may be years apart, and doubles are exact only to
        // three months of nanoseconds.
        let (start_ns, base_ns) = (first.at_ns, first.least_ns);
        let point = |of: &Bounds| {
            [
                of.at_ns.wrapping_sub(start_ns) as f64,
                of.least_ns.wrapping_sub(base_ns) as f64,
                of.most_ns.wrapping_sub(base_ns) as f64,
            ]
        };
        let points = bounds.iter().map(point).collect();
        let ends = bounds.iter().map(|of| of.ends_ns.wrapping_sub(base_ns) as f64).collect();
        Some(Corridor { start_ns, base_ns, points, ends })
    }

    /// Returns the start and the slope of the line that is nearest to the common ends, by least
    /// squares, and that lies between all bounds; if none does, of the line that misses them least.
    fn best(&self) -> (f64, f64) {
        let widest = minimum(-MOST_DRIFT, MOST_DRIFT, |slope| self.overlap(slope));
        if self.overlap(widest) > 0.0 {
            return ((self.lowest(widest) + self.highest(widest)) / 2.0, widest);
        }
        let count = self.points.len() as f64;
        let mean_at = self.points.iter().map(|[at, ..]| at).sum::<f64>() / count;
        let mean_end = self.ends.iter().sum::<f64>() / count;
        let (mut spread, mut rise) = (0.0, 0.0);
        for ([at, ..], end) in self.points.iter().zip(&self.ends) {
            spread += (at - mean_at).powi(2);
            rise += (at - mean_at) * (end - mean_end);
        }
        let [from, to] = [-MOST_DRIFT, MOST_DRIFT].map(|end| self.last_within(widest, end));
        let nearest = if spread > 0.0 { rise / spread } else { widest };
        let slope = nearest.max(from).min(to);
        let at_start = mean_end - slope * mean_at;
        (at_start.min(self.highest(slope)).max(self.lowest(slope)), slope)
    }

    /// The least start of a line of this slope that is above all lower bounds.
    fn lowest(&self, slope: f64) -> f64 {
        let starts = self.points.iter().map(|[at, least, _]| least - slope * at);
        starts.fold(f64::NEG_INFINITY, f64::max)
    }

    /// The highest start of a line of this slope that is below all upper bounds.
    fn highest(&self, slope: f64) -> f64 {
        let starts = self.points.iter().map(|[at, _, most]| most - slope * at);
        starts.fold(f64::INFINITY, f64::min)
    }

    /// By how much lines of this slope miss the corridor; negative if some lie within it. The
    /// maximum of lines is convex, so this is, too.
    fn overlap(&self, slope: f64) -> f64 {
        self.lowest(slope) - self.highest(slope)
    }

    /// The range of the difference at each point, for clocks that may change their drift at any
    /// time, but never drift by more than is plausible. `None` if no such clocks exist.
    fn limits_by_drift(&self) -> Option<Vec<[f64; 2]>> {
        let mut limits: Vec<[f64; 2]> =
            self.points.iter().map(|[_, least, most]| [*least, *most]).collect();
        let mut tighten = |from: usize, to: usize| {
            let drift = (self.points[to][0] - self.points[from][0]).abs() * MOST_DRIFT;
            let [least, most] = limits[from];
            limits[to] = [limits[to][0].max(least - drift), limits[to][1].min(most + drift)];
        };
        (1..self.points.len()).for_each(|at| tighten(at - 1, at));
        (1..self.points.len()).rev().for_each(|at| tighten(at, at - 1));
        limits.iter().all(|[least, most]| least - most <= RESOLUTION_NS).then_some(limits)
    }

    /// Computes the error of a line. If lines lie between all bounds, the error is the largest
    /// distance to any of them. Otherwise, the clocks changed their drift, and the error is the
    /// largest distance to what their drift allows.
    fn fitted(&self, at_start: f64, slope: f64, limits: &[[f64; 2]]) -> FittedLine {
        let line = |at: f64| at_start + slope * at;
        let best = minimum(-MOST_DRIFT, MOST_DRIFT, |slope| self.overlap(slope));
        let error = if self.overlap(best) <= 0.0 {
            let [from, to] = [-MOST_DRIFT, MOST_DRIFT].map(|end| self.last_within(best, end));
            // The range of lines at a time is widest at one of the ends.
            let ends = [0.0, self.points[self.points.len() - 1][0]];
            ends.map(|at| {
                let above = |slope: f64| -(self.highest(slope) + slope * at);
                let below = |slope: f64| self.lowest(slope) + slope * at;
                let most = -above(minimum(from, to, above));
                let least = below(minimum(from, to, below));
                (most - line(at)).max(line(at) - least)
            })
            .into_iter()
            .fold(0.0, f64::max)
        } else {
            let away = |([at, ..], [least, most]): (&[f64; 3], &[f64; 2])| {
                (most - line(*at)).max(line(*at) - least)
            };
            self.points.iter().zip(limits).map(away).fold(0.0, f64::max)
        };
        let line = ClockLine {
            at_ns: self.start_ns,
            add_ns: self.base_ns.wrapping_add(at_start.round() as i64),
            drift_e15: (slope * 1e15).round() as i64,
        };
        FittedLine { line, error_ns: error.ceil() as u64 }
    }

    /// The last slope from `within`, whose lines lie in the corridor, towards `end` for which lines
    /// still do.
    fn last_within(&self, within: f64, end: f64) -> f64 {
        if self.overlap(end) <= 0.0 {
            return end;
        }
        let (mut inside, mut outside) = (within, end);
        for _ in 0..HALVINGS {
            let middle = (inside + outside) / 2.0;
            let is_inside = self.overlap(middle) <= 0.0;
            *(if is_inside { &mut inside } else { &mut outside }) = middle;
        }
        inside
    }
}

/// Returns where a convex function is smallest between two points.
fn minimum(mut from: f64, mut to: f64, of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..2 * HALVINGS {
        let third = (to - from) / 3.0;
        let (left, right) = (from + third, to - third);
        if of(left) <= of(right) { to = right } else { from = left }
    }
    (from + to) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn bounds(at_ns: i64, least_ns: i64, most_ns: i64) -> Bounds {
        Bounds { at_ns, least_ns, most_ns, ends_ns: (least_ns + most_ns) / 2 }
    }

    #[test]
    fn a_single_collective_gives_the_middle_and_half_of_its_width() {
        let far_ns = 1_700_000_000_000_000_000;
        let found = fit(&[bounds(7, far_ns - 100, far_ns + 300)]).unwrap();
        assert_eq!((found.line.add_at(7), found.error_ns), (far_ns + 100, 200));
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn where_one_side_is_close_the_common_ends_decide_and_the_error_spans_the_other() {
        let of = |at: i64| Bounds {
            at_ns: at * SECOND_NS / 100,
            least_ns: 7_000_000 - 5_000_000,
            most_ns: 7_000_000 + 20_000,
            ends_ns: 7_000_000 + at % 3 * 1_000,
        };
        let found = fit(&(0..200).map(of).collect::<Vec<_>>()).unwrap();
        assert!((found.line.add_at(SECOND_NS) - 7_000_000).abs() < 3_000, "{found:?}");
        assert!((4_900_000..5_500_000).contains(&found.error_ns), "{found:?}");
    }

    #[test]
    fn a_drift_is_found_between_bounds_of_both_sides() {
        // The true difference is 5 ms + 30 ppm of the time; bounds are 20 us away in turn.
        let of = |second: i64| {
            let true_ns = 5_000_000 + 30_000 * second;
            let wide_ns = 3_000_000;
            let of = match second % 2 {
                0 => bounds(second * SECOND_NS, true_ns - 20_000, true_ns + wide_ns),
                _ => bounds(second * SECOND_NS, true_ns - wide_ns, true_ns + 20_000),
            };
            Bounds { ends_ns: true_ns, ..of }
        };
        let all: Vec<Bounds> = (0..3_600).map(of).collect();
        let found = fit(&all).unwrap();
        assert!(found.error_ns < 25_000, "{found:?}");
        assert!((found.line.drift_ppm() - 30.0).abs() < 0.02, "{found:?}");
        for second in 0..3_600 {
            let off = found.line.add_at(second * SECOND_NS) - (5_000_000 + 30_000 * second);
            assert!(off.unsigned_abs() <= found.error_ns, "{second}: {off}");
        }
    }

    #[test]
    fn a_drift_that_changes_makes_the_error_larger_and_stays_within_it() {
        let true_ns = |second: i64| 40_000 * (second - 500).abs();
        let of = |second: i64| {
            bounds(second * SECOND_NS, true_ns(second) - 20_000, true_ns(second) + 20_000)
        };
        let all: Vec<Bounds> = (0..1_000).map(of).collect();
        let found = fit(&all).unwrap();
        assert!(found.error_ns > 10_000_000, "{found:?}");
        for second in 0..1_000 {
            let off = found.line.add_at(second * SECOND_NS) - true_ns(second);
            assert!(off.unsigned_abs() <= found.error_ns, "{second}: {off}");
        }
    }

    #[test]
    fn bounds_that_no_clocks_satisfy_give_no_line() {
        assert_eq!(fit(&[bounds(0, 0, 100), bounds(1_000, 50_000, 60_000)]), None);
        assert!(
            fit(&[bounds(0, 0, 100), bounds(1_000, 5_000, 6_000)]).is_some(),
            "within the resolution"
        );
    }

    #[test]
    fn clocks_that_agree_are_left_as_recorded() {
        let found = as_recorded(&[bounds(0, -300, 200), bounds(50, -10, 900)]).unwrap();
        assert_eq!(found.line, ClockLine::default());
        assert!((200..=201).contains(&found.error_ns), "{found:?}");
        assert_eq!(as_recorded(&[bounds(0, 30_000, 50_000)]), None);
    }
}

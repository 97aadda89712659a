//! Limits how often something is done within an hour.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The times of the last hour at which something was done.
pub struct Hourly {
    most: usize,
    times: VecDeque<Instant>,
}

impl Hourly {
    /// Allows it so many times within an hour.
    pub fn of(most: usize) -> Hourly {
        Hourly { most, times: VecDeque::new() }
    }

    /// Whether it may be done now.
    pub fn has_room(&mut self, now: Instant) -> bool {
        self.times.retain(|time| now.saturating_duration_since(*time) < HOUR);
        self.times.len() < self.most
    }

    /// Notes that it is done now.
    pub fn add(&mut self, now: Instant) {
        self.times.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_done_in_an_hour() {
        let (mut reports, began) = (Hourly::of(4), Instant::now());
        let at = |minutes: u64| began + Duration::from_secs(60 * minutes);
        for minute in 0..4 {
            assert!(reports.has_room(at(minute)));
            reports.add(at(minute));
        }
        assert!(!reports.has_room(at(5)) && !reports.has_room(at(59)) && reports.has_room(at(60)));
    }
}

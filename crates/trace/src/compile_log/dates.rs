//! Converts the times in glog's prefixes, which have no year and no time zone, to times since 1970.

/// Number of microseconds in a day.
const DAY_US: i64 = 86_400_000_000;
/// The offsets of all time zones are multiples of this.
const QUARTER_US: i64 = 15 * 60 * 1_000_000;

/// A time as it is written in a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrefixTime {
    pub month: u8,
    pub day: u8,
    /// Microseconds since midnight, local time.
    pub of_day_us: u64,
}

impl PrefixTime {
    /// Returns this time in the given year as microseconds since 1970, as if its zone were UTC.
    fn in_year(self, year: i64) -> i64 {
        days(year, self.month.into(), self.day.into()) * DAY_US + self.of_day_us as i64
    }

    /// Returns this time as microseconds since 1970, in the year in which it is closest to
    /// `unix_us`.
    fn nearest(self, unix_us: i64) -> i64 {
        let year = year_of(unix_us);
        let distance = |year: &i64| (self.in_year(*year) - unix_us).abs();
        let nearest = (year - 1..=year + 1).min_by_key(distance).unwrap_or(year);
        self.in_year(nearest)
    }
}

/// Converts the times in a log's prefixes to microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    /// A moment of the log, microseconds since 1970. It determines the year.
    near_us: i64,
    /// Local time minus UTC, microseconds.
    ahead_us: i64,
}

impl Zone {
    /// Derives the zone from a prefix and from the time since 1970 in the event behind it. Both
    /// must have been written within minutes of each other.
    pub(super) fn of(prefix: PrefixTime, unix_us: u64) -> Zone {
        let near_us = i64::try_from(unix_us).unwrap_or(i64::MAX / 4);
        let ahead_us = prefix.nearest(near_us) - near_us;
        let ahead_us = (ahead_us + QUARTER_US / 2).div_euclid(QUARTER_US) * QUARTER_US;
        Zone { near_us, ahead_us }
    }

    /// Converts a prefix to microseconds since 1970.
    pub(super) fn unix_us(self, prefix: PrefixTime) -> u64 {
        let local = prefix.nearest(self.near_us.saturating_add(self.ahead_us));
        u64::try_from(local - self.ahead_us).unwrap_or(0)
    }
}

/// Returns the number of days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the year of a moment; near New Year, possibly the year before or after.
fn year_of(unix_us: i64) -> i64 {
    1970 + unix_us.div_euclid(DAY_US) * 400 / 146_097
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(month: u8, day: u8, hour: u64, minute: u64) -> PrefixTime {
        PrefixTime { month, day, of_day_us: (hour * 60 + minute) * 60_000_000 }
    }

    /// 2026-01-01 00:00 UTC.
    const NEW_YEAR_US: u64 = 1_767_225_600_000_000;

    #[test]
    fn times_on_both_sides_of_new_year_get_the_right_year() {
        let before = Zone::of(at(12, 31, 23, 50), NEW_YEAR_US - 600_000_000);
        assert_eq!(before.ahead_us, 0);
        assert_eq!(before.unix_us(at(1, 1, 0, 10)), NEW_YEAR_US + 600_000_000);
        let after = Zone::of(at(1, 1, 0, 10), NEW_YEAR_US + 600_000_000);
        assert_eq!(after.unix_us(at(12, 31, 23, 50)), NEW_YEAR_US - 600_000_000);
    }

    #[test]
    fn zones_of_quarter_hours_are_found_across_midnight() {
        // Kathmandu is 5:45 ahead of UTC. The event's own clock was read 20 s before the prefix.
        let zone = Zone::of(at(1, 1, 5, 45), NEW_YEAR_US - 20_000_000);
        assert_eq!(zone.unix_us(at(1, 1, 6, 45)), NEW_YEAR_US + 3_600_000_000);
        // New York is 5:00 behind UTC.
        let zone = Zone::of(at(12, 31, 19, 0), NEW_YEAR_US);
        assert_eq!(zone.unix_us(at(12, 31, 20, 0)), NEW_YEAR_US + 3_600_000_000);
    }

    #[test]
    fn days_count_from_1970() {
        assert_eq!((days(1970, 1, 1), days(2000, 2, 29), days(2026, 1, 1)), (0, 11_016, 20_454));
    }
}

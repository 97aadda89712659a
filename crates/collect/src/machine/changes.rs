//! Finds changes of counters that the machine has counted since it booted. What they had counted
//! before the run is not the job's, so the first reading is the base.

use std::collections::BTreeMap;

/// Totals since the first reading.
#[derive(Debug, Default)]
pub struct Changes {
    /// Time of the last reading, ns; `None` before the first.
    read_ns: Option<u64>,
    counters: BTreeMap<String, Total>,
    tells_first: bool,
}

#[derive(Debug)]
struct Total {
    /// What was read last.
    read: u64,
    since_start: u64,
    /// Time of the last reading that was returned, ns.
    told_ns: u64,
}

/// The total of a counter at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct TotalAt {
    /// Time of the reading, ns.
    pub time_ns: u64,
    /// Name of the counter.
    pub name: String,
    /// How much was counted since the first reading.
    pub total: u64,
}

impl Changes {
    /// Also returns the first reading of each counter, as a total of 0, so that a counter that never
    /// changes is known to have been read.
    pub fn with_first() -> Changes {
        Changes { tells_first: true, ..Changes::default() }
    }

    /// Takes a reading, and returns the counters that changed since the last one. Each comes with
    /// its total at the last reading, so that a reader knows in which interval it changed.
    ///
    /// A counter that is new, such as that of an interface that was added, begins with its value at
    /// the first reading that has it. One that is lower than before was reset, and counts from 0.
    pub fn take(&mut self, now_ns: u64, reading: BTreeMap<String, u64>) -> Vec<TotalAt> {
        let before_ns = self.read_ns.replace(now_ns);
        let mut changed = Vec::new();
        for (name, read) in reading {
            let Some(total) = self.counters.get_mut(&name) else {
                let told_ns = if self.tells_first { now_ns } else { 0 };
                self.counters.insert(name.clone(), Total { read, since_start: 0, told_ns });
                if self.tells_first {
                    changed.push(TotalAt { time_ns: now_ns, name, total: 0 });
                }
                continue;
            };
            let more = read.checked_sub(total.read).unwrap_or(read);
            total.read = read;
            if more == 0 {
                continue;
            }
            let at = |time_ns, total| TotalAt { time_ns, name: name.clone(), total };
            let before_ns = before_ns.filter(|ns| *ns > total.told_ns);
            changed.extend(before_ns.map(|ns| at(ns, total.since_start)));
            total.since_start = total.since_start.saturating_add(more);
            total.told_ns = now_ns;
            changed.push(at(now_ns, total.since_start));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_before_the_first_reading_are_left_out() {
        let mut changes = Changes::default();
        let mut read = |now_ns, values: &[(&str, u64)]| -> Vec<(u64, String, u64)> {
            let reading = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let changed = changes.take(now_ns, reading).into_iter();
            changed.map(|at| (at.time_ns, at.name, at.total)).collect()
        };
        let row = |ns, name: &str, total| (ns, name.to_owned(), total);
        assert_eq!(read(10, &[("a", 7)]), []);
        assert_eq!(read(20, &[("a", 7)]), []);
        assert_eq!(read(30, &[("a", 9), ("new", 50)]), [row(20, "a", 0), row(30, "a", 2)]);
        // The total before it is known already.
        assert_eq!(read(40, &[("a", 10), ("new", 50)]), [row(40, "a", 3)]);
        // A reset: at least what it has counted since is known.
        assert_eq!(
            read(50, &[("a", 4), ("new", 51)]),
            [row(50, "a", 7), row(40, "new", 0), row(50, "new", 1)]
        );
        assert_eq!(read(60, &[]), []);
    }

    #[test]
    fn the_first_reading_is_told_on_request() {
        let mut changes = Changes::with_first();
        let mut read = |now_ns, value| -> Vec<(u64, u64)> {
            let changed = changes.take(now_ns, [("a".to_owned(), value)].into()).into_iter();
            changed.map(|at| (at.time_ns, at.total)).collect()
        };
        assert_eq!([read(10, 7), read(20, 8)], [[(10, 0)], [(20, 1)]]);
        assert_eq!([read(30, 8), read(40, 9)], [vec![], vec![(30, 1), (40, 2)]]);
    }
}

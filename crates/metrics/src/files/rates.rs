//! Measures how fast file systems read and wrote, for a whole rank.
//!
//! A rate is bytes per time in which at least one thread was in such a call, so that threads that
//! share a file system don't make it look slow. Reads from the page cache and small requests are
//! left out: they show the speed of memory and of calls. So are requests at random places.

use rustc_hash::FxHashMap;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileKind, FileOperation, NameId};

/// Mean bytes of a call from which on the rate is that of storage, not that of calls.
const LARGE: u64 = 64 << 10;
/// The rate below which reads can't be from memory, bytes a second, on file systems for which the
/// kernel doesn't count what was read from storage.
const SLOWER_THAN_MEMORY: u64 = 1_000_000_000;
/// The time for which one rate is measured, ns.
const PERIOD_NS: u64 = 1_000_000_000;
/// The best rate is one that was held for so long, ns, so that one lucky second isn't the measure.
const HELD_NS: u64 = 2_000_000_000;
/// Bytes that a period needs for a rate.
const LEAST_BYTES: u64 = 4 << 20;
/// Below this share of the best rate, a period is slow.
const SLOW: f64 = 0.5;

/// How fast a file system was in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// The file system, as in `nfs4 at /data (server:/export)`.
    pub file_system: String,
    /// Whether this is of writes, with the waits until they are on the disk; of reads otherwise.
    pub writes: bool,
    /// Bytes of large requests to storage.
    pub bytes: u64,
    /// Time in which at least one thread was in such a call, ns.
    pub ns: u64,
    /// The rate that it had or exceeded in two seconds of such calls, or in half of their time if that
    /// is less, bytes a second; `None` if too little was transferred, and of writes, which may end in
    /// memory.
    pub best: Option<f64>,
    /// Time in seconds with less than half of the best rate, ns.
    pub slow_ns: u64,
    /// Bytes that were transferred in those seconds.
    pub slow_bytes: u64,
    /// The slowest of those seconds, ns on the file's clock.
    pub slowest: Option<Interval>,
}

impl Rates {
    /// The mean rate, bytes a second.
    pub fn mean(&self) -> Option<f64> {
        (self.ns > 0).then(|| self.bytes as f64 * 1e9 / self.ns as f64)
    }

    /// The rate of the slow seconds, bytes a second.
    pub fn slow(&self) -> Option<f64> {
        (self.slow_ns > 0).then(|| self.slow_bytes as f64 * 1e9 / self.slow_ns as f64)
    }

    /// The share of the time that the best rate would save in the slow seconds.
    pub fn saved_share(&self) -> f64 {
        let needed = self.best.map_or(0.0, |best| self.slow_bytes as f64 * 1e9 / best);
        (self.slow_ns as f64 - needed).max(0.0) / self.ns.max(1) as f64
    }
}

/// Collects the rows for the rates.
#[derive(Default)]
pub(super) struct RateRows(FxHashMap<(NameId, bool), Vec<(Interval, u64)>>);

impl RateRows {
    pub fn add(&mut self, row: &FileCalls) {
        let writes = match row.operation {
            FileOperation::Read => false,
            FileOperation::Write | FileOperation::Sync => true,
            _ => return,
        };
        if row.kind == FileKind::File && row.file_system != NameId(0) && is_of_storage(row, writes)
        {
            // A row lasts from its first call to the end of its last, with other work between them.
            let time = Interval::new(row.start_ns, row.start_ns + row.busy_ns);
            self.0.entry((row.file_system, writes)).or_default().push((time, row.bytes));
        }
    }

    /// Returns the rates, those of most time first.
    pub fn finish(self, file: &TraceFile) -> Vec<Rates> {
        let rates = |((file_system, writes), rows): ((NameId, bool), Vec<(Interval, u64)>)| {
            of_rows(file.name(file_system), writes, &rows)
        };
        let mut rates: Vec<Rates> = self.0.into_iter().map(rates).collect();
        rates.retain(|rates| rates.bytes > 0);
        rates.sort_by(|a, b| {
            (b.ns, &a.file_system, a.writes).cmp(&(a.ns, &b.file_system, b.writes))
        });
        rates
    }
}

/// Whether a row transferred large requests from or to storage.
fn is_of_storage(row: &FileCalls, writes: bool) -> bool {
    if row.operation == FileOperation::Sync {
        return true;
    }
    let done = row.calls - row.failed.min(row.calls);
    // At random places, storage is slower than from the beginning of a file to its end.
    if row.bytes < LARGE * done.max(1) || row.jumps * 4 > done {
        return false;
    }
    match row.storage_bytes {
        _ if writes => true,
        Some(storage) => storage * 2 >= row.bytes,
        None => {
            row.bytes < (row.busy_ns as u128 * SLOWER_THAN_MEMORY as u128 / 1_000_000_000) as u64
        }
    }
}

fn of_rows(file_system: &str, writes: bool, rows: &[(Interval, u64)]) -> Rates {
    let busy = Cover::of(rows.iter().map(|(time, _)| *time));
    let mut periods: FxHashMap<u64, f64> = FxHashMap::default();
    for (time, bytes) in rows {
        for period in time.start / PERIOD_NS..=time.end.saturating_sub(1) / PERIOD_NS {
            let part = time.overlap(at(period)).length() as f64 / time.length().max(1) as f64;
            *periods.entry(period).or_default() += *bytes as f64 * part;
        }
    }
    let measure = busy.measure();
    let mut of_periods: Vec<(Interval, u64, f64)> = periods
        .into_iter()
        .map(|(period, bytes)| (at(period), measure.within(at(period)), bytes))
        .filter(|(_, ns, _)| *ns > 0)
        .collect();
    of_periods.sort_by_key(|(period, ..)| *period);
    let rate = |ns: u64, bytes: f64| bytes * 1e9 / ns as f64;
    let is_enough = |bytes: f64| bytes >= LEAST_BYTES as f64;
    let known = of_periods.iter().filter(|(_, _, bytes)| is_enough(*bytes));
    let mut known: Vec<(f64, u64)> =
        known.map(|(_, ns, bytes)| (rate(*ns, *bytes), *ns)).filter(|_| !writes).collect();
    known.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut held_ns = 0;
    let is_held = |(_, ns): &&(f64, u64)| {
        held_ns += ns;
        held_ns >= HELD_NS.min(busy.length() / 2)
    };
    let best = known.iter().find(is_held).map(|(rate, _)| *rate);
    let mut rates = Rates {
        file_system: file_system.to_owned(),
        writes,
        bytes: rows.iter().map(|(_, bytes)| bytes).sum(),
        ns: busy.length(),
        best,
        slow_ns: 0,
        slow_bytes: 0,
        slowest: None,
    };
    let Some(best) = best else { return rates };
    let mut slowest = f64::MAX;
    for (period, ns, bytes) in of_periods {
        // Of few bytes, a rate says little, unless they took most of a second.
        if (!is_enough(bytes) && ns * 2 < PERIOD_NS) || rate(ns, bytes) >= SLOW * best {
            continue;
        }
        rates.slow_ns += ns;
        rates.slow_bytes += bytes as u64;
        if rate(ns, bytes) < slowest {
            (slowest, rates.slowest) = (rate(ns, bytes), Some(period));
        }
    }
    rates
}

fn at(period: u64) -> Interval {
    Interval::new(period * PERIOD_NS, (period + 1) * PERIOD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MIB: u64 = 1 << 20;

    fn row(start_ms: u64, ms: u64, bytes: u64) -> (Interval, u64) {
        (Interval::new(start_ms * MS, (start_ms + ms) * MS), bytes)
    }

    #[test]
    fn threads_at_once_share_one_rate() {
        // Two threads read 100 MiB each in the same half second, as one reads 200 MiB.
        let rates = of_rows("ext4", false, &[row(0, 500, 100 * MIB), row(0, 500, 100 * MIB)]);
        assert_eq!((rates.ns, rates.bytes), (500 * MS, 200 * MIB));
        assert_eq!((rates.best, rates.mean()), (Some(400.0 * MIB as f64), rates.best));
        assert_eq!((rates.slow_ns, rates.slowest), (0, None));
    }

    #[test]
    fn seconds_with_less_than_half_of_the_best_rate_are_slow() {
        let fast = |second: u64| row(second * 1000, 500, 200 * MIB);
        let mut rows: Vec<_> = (0..6).map(fast).collect();
        rows.push(row(6000, 1000, 100 * MIB));
        // One fast second is not what the storage gives at best.
        rows.push(row(7000, 500, 2000 * MIB));
        let rates = of_rows("ext4", false, &rows);
        assert_eq!(rates.best, Some(400.0 * MIB as f64));
        assert_eq!((rates.slow_ns, rates.slow_bytes), (1000 * MS, 100 * MIB));
        assert_eq!(rates.slowest, Some(Interval::new(6000 * MS, 7000 * MS)));
        // At 400 MiB a second the 100 MiB would take a quarter of a second.
        assert!((rates.saved_share() - 750.0 / 4500.0).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn a_long_call_counts_in_each_of_its_seconds() {
        let rows = [row(0, 500, 150 * MIB), row(1500, 1000, 100 * MIB), row(3000, 500, 150 * MIB)];
        let rates = of_rows("ext4", false, &rows);
        assert_eq!((rates.slow_ns, rates.slow_bytes), (1000 * MS, 100 * MIB));
    }

    #[test]
    fn only_large_requests_to_storage_count() {
        let read = FileCalls {
            operation: FileOperation::Read,
            calls: 2,
            bytes: 256 << 10,
            busy_ns: MS,
            storage_bytes: Some(200 << 10),
            ..FileCalls::default()
        };
        assert!(is_of_storage(&read, false));
        assert!(!is_of_storage(&FileCalls { calls: 8, ..read }, false), "small requests");
        let of = |storage_bytes| FileCalls { storage_bytes, ..read };
        assert!(!is_of_storage(&of(Some(0)), false), "the page cache");
        // 256 KiB in 1 ms are 0.26 GB/s.
        assert!(is_of_storage(&of(None), false));
        assert!(!is_of_storage(&FileCalls { busy_ns: MS / 5, ..of(None) }, false));
    }
}

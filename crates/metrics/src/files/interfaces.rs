//! Measures what the interfaces and InfiniBand ports of a host transferred.
//!
//! The counters are the host's: they have the bytes of all programs in the collector's network
//! namespace, and are read a few times a second.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use tprof_facts::counters::{place, quantity};
use tprof_rank::{RankTrace, steps_of_one_process};
use tprof_trace::TraceFile;
use tprof_trace::model::{counter, property};

/// Readings of a counter by time, ns: totals since the recording began.
type Totals = BTreeMap<u64, f64>;

/// Bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes in the judged time.
    pub bytes: u64,
    /// Bytes of the judged steps; `None` without steps.
    pub of_steps: Option<u64>,
    /// The highest rate between two readings, bytes a second; `None` if there were no two.
    pub busiest: Option<f64>,
}

/// An interface or port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    /// What was received.
    pub received: Traffic,
    /// What was sent.
    pub sent: Traffic,
    /// Bytes a second that the link can carry in each direction; `None` if the host doesn't say.
    pub line_rate: Option<f64>,
    /// Errors, and dropped packets, since the recording began.
    pub errors: u64,
}

impl Interface {
    /// The highest rate of both directions, bytes a second.
    pub fn busiest(&self) -> Option<f64> {
        [self.received.busiest, self.sent.busiest].into_iter().flatten().max_by(f64::total_cmp)
    }
}

/// The interfaces of the host that a rank ran on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interfaces {
    /// Name of the host.
    pub host: String,
    /// Number of steps in the judged time.
    pub steps: u64,
    /// The interfaces by name: those that transferred anything.
    pub all: BTreeMap<String, Interface>,
}

impl Interfaces {
    /// Measures the interfaces in a range of times, ns on the file's clock.
    pub fn of(rank: &RankTrace<'_>, times: Range<u64>) -> Interfaces {
        let file = rank.file;
        let steps: Vec<(u64, u64)> = steps_of_one_process(rank)
            .iter()
            .map(|step| (step.interval.start, step.interval.end))
            .filter(|(start, _)| times.contains(start))
            .collect();
        let rates = line_rates(file);
        let mut all: BTreeMap<String, Interface> = BTreeMap::new();
        for (name, totals) in totals(file) {
            let Some(of) = place(&name) else { continue };
            let interface = all.entry(of.to_owned()).or_default();
            interface.line_rate = rates.get(of).copied();
            match quantity(&name) {
                counter::NETWORK_RECEIVED_BYTES | counter::INFINIBAND_RECEIVED_BYTES => {
                    interface.received = traffic(&totals, &times, &steps);
                }
                counter::NETWORK_SENT_BYTES | counter::INFINIBAND_SENT_BYTES => {
                    interface.sent = traffic(&totals, &times, &steps);
                }
                // The counters of errors of an interface.
                _ => interface.errors += totals.values().last().copied().unwrap_or(0.0) as u64,
            }
        }
        all.retain(|_, one| one.received.bytes + one.sent.bytes + one.errors > 0);
        Interfaces { host: file.header().host.clone(), steps: steps.len() as u64, all }
    }
}

/// Returns the totals of the host's counters that belong to an interface or port.
fn totals(file: &TraceFile) -> BTreeMap<String, Totals> {
    let mut all: BTreeMap<String, Totals> = BTreeMap::new();
    let of_host = file.counters().iter().filter(|row| (row.process, row.device) == (None, None));
    for row in of_host.filter(|row| row.value.is_finite() && file.holds(row.time_ns)) {
        let name = file.name(row.name);
        if place(name).is_some() {
            all.entry(name.to_owned()).or_default().insert(row.time_ns, row.value);
        }
    }
    all
}

fn line_rates(file: &TraceFile) -> BTreeMap<String, f64> {
    let facts = file.properties().filter(|(name, _)| *name == property::MACHINE).last();
    let facts: Option<Value> = facts.and_then(|(_, text)| serde_json::from_str(text).ok());
    let rates = facts.as_ref().and_then(|facts| facts["line_rates"].as_object());
    let rates = rates.into_iter().flatten();
    rates.filter_map(|(name, rate)| Some((name.clone(), rate.as_f64()?))).collect()
}

fn traffic(totals: &Totals, times: &Range<u64>, steps: &[(u64, u64)]) -> Traffic {
    let grown = |from: u64, to: u64| at(totals, to) - at(totals, from);
    let readings: Vec<(u64, f64)> = totals.iter().map(|(time, total)| (*time, *total)).collect();
    let rates = readings.windows(2).filter(|pair| times.contains(&pair[1].0)).map(|pair| {
        let [(from, before), (to, after)] = [pair[0], pair[1]];
        (after - before) * 1e9 / (to - from) as f64
    });
    let of_steps = steps.iter().map(|(start, end)| grown(*start, *end)).sum::<f64>();
    Traffic {
        bytes: grown(times.start, times.end) as u64,
        of_steps: (!steps.is_empty()).then_some(of_steps as u64),
        busiest: rates.max_by(f64::total_cmp),
    }
}

/// Returns a total at a time, as if it had grown evenly between two readings.
fn at(totals: &Totals, time_ns: u64) -> f64 {
    let before = totals.range(..=time_ns).next_back();
    let after = totals.range(time_ns..).next();
    match (before, after) {
        (Some((from, a)), Some((to, b))) if to > from => {
            a + (b - a) * (time_ns - from) as f64 / (to - from) as f64
        }
        (Some((_, total)), _) => *total,
        // The first row has the total before the first change.
        (None, Some((_, total))) => *total,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_evenly_between_readings_and_rates_are_those_of_readings() {
        let totals: Totals = [(1_000, 0.0), (2_000, 100.0), (3_000, 100.0), (4_000, 400.0)].into();
        assert_eq!(
            [500, 1_500, 2_500, 3_500, 9_000].map(|time| at(&totals, time)),
            [0.0, 50.0, 100.0, 250.0, 400.0]
        );
        let of = traffic(&totals, &(0..u64::MAX), &[(1_500, 2_000), (3_000, 3_500)]);
        assert_eq!((of.bytes, of.of_steps), (400, Some(50 + 150)));
        // 300 bytes in 1 us.
        assert_eq!(of.busiest, Some(300e6));
        assert_eq!(traffic(&totals, &(1_500..2_500), &[]).bytes, 50);
    }
}

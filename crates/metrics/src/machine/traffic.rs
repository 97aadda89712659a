//! What went over the network of a host: the bytes of each interface and InfiniBand port.
//!
//! Every file of a host has the readings of that host. They are of a network namespace and of all
//! programs in it, not of a process. Bytes between two readings count as spread evenly.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tprof_facts::counters::{is_traffic, place, quantity};
use tprof_rank::base::intervals::Cover;
use tprof_rank::{RankTrace, judged_window, steps_of_one_process};
use tprof_trace::model::{counter, property};

use super::errors::{MachineErrors, Totals};

/// A stretch between two readings that is shorter than this, in parts of the time between readings,
/// has no rate: few packets in it would make a high one.
const LEAST_PART: f64 = 0.5;

/// The readings that one file has, and the steps of its rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTraffic {
    /// The totals of each counter.
    pub(super) totals: BTreeMap<String, Totals>,
    /// Processes of the rank in other network namespaces, by the number of the namespace.
    pub(super) namespaces: BTreeSet<u64>,
    /// The time of the steps, and their number.
    pub(crate) steps: (Cover, usize),
    /// What was watched, as the collector wrote it last.
    pub(super) facts: Option<Value>,
}

impl FileTraffic {
    /// Reads a rank's file.
    pub(crate) fn of(rank: &RankTrace<'_>) -> FileTraffic {
        let file = rank.file;
        let mut found = FileTraffic::default();
        let pids: BTreeSet<u64> = file.processes().iter().map(|one| u64::from(one.pid)).collect();
        for (_, text) in file.properties().filter(|(name, _)| *name == property::MACHINE) {
            let Ok(facts) = serde_json::from_str::<Value>(text) else { continue };
            for (namespace, of) in facts["namespaces"].as_object().into_iter().flatten() {
                let mut of = of.as_array().into_iter().flatten().filter_map(Value::as_u64);
                if of.any(|pid| pids.contains(&pid)) {
                    found.namespaces.extend(namespace.parse::<u64>());
                }
            }
            found.facts = Some(facts);
        }
        let of_host = file.counters().iter().filter(|row| row.process.is_none());
        for row in of_host.filter(|row| row.value.is_finite() && file.holds(row.time_ns)) {
            let name = file.name(row.name);
            if is_traffic(name) {
                let totals = found.totals.entry(name.to_owned()).or_default();
                totals.insert(row.time_ns, row.value);
            }
        }
        let steps = steps_of_one_process(rank);
        if !steps.is_empty() {
            found.steps = (judged_window(rank, &steps), steps.len());
        }
        found
    }
}

/// How much of what an interface or port can carry it carried at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct LineUse {
    /// Name of the interface or port.
    pub place: String,
    /// Bytes a second in the direction with more bytes.
    pub bytes_per_s: f64,
    /// Bytes a second that it can carry in each direction.
    pub line_bytes_per_s: f64,
}

impl LineUse {
    /// Returns the used share of the line rate, about 1 for a full line.
    pub fn share(&self) -> f64 {
        self.bytes_per_s / self.line_bytes_per_s
    }
}

/// Returns the interface or port of a rank's host whose line rate was used most at some time, by all
/// programs. Returns `None` if no line rate is known, bytes were not read throughout that time, or
/// the rank is in a network namespace of its own, whose line rates aren't read.
pub fn fullest_line(rank: &RankTrace<'_>, time: &Cover) -> Option<LineUse> {
    let traffic = FileTraffic::of(rank);
    traffic.namespaces.is_empty().then(|| traffic.fullest_line(time)).flatten()
}

impl FileTraffic {
    fn fullest_line(&self, time: &Cover) -> Option<LineUse> {
        let span = time.span()?;
        let uses = self.totals.iter().filter_map(|(name, totals)| {
            let at_place = place(name)?;
            let line_bytes_per_s = self.facts.as_ref()?["line_rates"][at_place].as_f64()?;
            let is_bytes = [
                counter::NETWORK_RECEIVED_BYTES,
                counter::NETWORK_SENT_BYTES,
                counter::INFINIBAND_RECEIVED_BYTES,
                counter::INFINIBAND_SENT_BYTES,
            ]
            .contains(&quantity(name));
            // A counter that doesn't change any more has no further rows.
            let is_read = totals.first_key_value().is_some_and(|(first, _)| *first <= span.start);
            (is_bytes && is_read && line_bytes_per_s > 0.0).then(|| LineUse {
                place: at_place.to_owned(),
                bytes_per_s: within(totals, time) / time.length().max(1) as f64 * 1e9,
                line_bytes_per_s,
            })
        });
        uses.max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

/// The readings of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTraffic {
    totals: BTreeMap<String, Totals>,
    /// For each network namespace that is not the collector's, the ranks in it.
    namespaces: BTreeMap<u64, Vec<String>>,
    steps: Vec<(Cover, usize)>,
    facts: Option<Value>,
}

/// What one interface or port carried.
pub(crate) struct Carried<'a> {
    /// Number of the network namespace's inode, unless it is the collector's own.
    pub namespace: Option<u64>,
    /// The ranks in that namespace.
    pub ranks: &'a [String],
    /// Name of the interface or port.
    pub place: &'a str,
    /// Whether it is an InfiniBand port.
    pub is_port: bool,
    pub received: Result<Direction, &'static str>,
    pub sent: Result<Direction, &'static str>,
    /// Bytes a second that the interface or port can carry in each direction.
    pub line_rate: Option<f64>,
    pub errors: Option<u64>,
    pub drops: Option<u64>,
}

impl Carried<'_> {
    /// The kind in a word.
    pub(crate) fn kind(&self) -> &'static str {
        if self.is_port { "port" } else { "interface" }
    }
}

/// What went in one direction.
pub(crate) struct Direction {
    /// Bytes in the run.
    pub bytes: f64,
    /// Mean bytes of a step.
    pub of_step: Result<f64, &'static str>,
    /// The highest rate between two readings, bytes a second.
    pub peak: Option<f64>,
}

pub(super) const NOT_COUNTED: &str = "its counter of bytes could not be read";
pub(super) const NO_STEPS: &str = "no steps are known";
pub(super) const UNEQUAL: &str = "the host's ranks have different numbers of steps";
pub(super) const READ_LATE: &str = "it was first read after the first step began";

impl HostTraffic {
    /// Adds a file of the host.
    pub(crate) fn join(&mut self, label: &str, part: &FileTraffic) {
        for (name, totals) in &part.totals {
            self.totals.entry(name.clone()).or_default().extend(totals);
        }
        for namespace in &part.namespaces {
            self.namespaces.entry(*namespace).or_default().push(label.to_owned());
        }
        if part.steps.1 > 0 {
            self.steps.push(part.steps.clone());
        }
        self.facts = self.facts.take().or_else(|| part.facts.clone());
    }

    /// Whether bytes were read.
    pub(crate) fn was_read(&self) -> bool {
        !self.totals.is_empty()
    }

    /// Returns the time of the steps of all ranks, and their number, if all ranks have as many.
    pub(crate) fn steps(&self) -> Result<(Cover, usize), &'static str> {
        let count = self.steps.first().ok_or(NO_STEPS)?.1;
        if self.steps.iter().any(|(_, other)| *other != count) {
            return Err(UNEQUAL);
        }
        Ok((Cover::any(self.steps.iter().map(|(time, _)| time)), count))
    }

    /// Returns why bytes were not read, or not all, as sentences without a full stop.
    pub(crate) fn missing(&self) -> Vec<String> {
        let Some(facts) = &self.facts else { return Vec::new() };
        let mut why: Vec<String> =
            facts["traffic"].as_str().map(str::to_owned).into_iter().collect();
        for (key, what) in [
            ("places_left_out", "interfaces and ports"),
            ("namespaces_left_out", "network namespaces"),
        ] {
            let left_out = facts[key].as_u64().filter(|left_out| *left_out > 0);
            why.extend(left_out.map(|count| format!("{count} more {what} were not read")));
        }
        why
    }

    /// Returns what each interface and port carried. Those that carried nothing are left out, unless
    /// their line rate is known.
    pub(crate) fn carried<'a>(&'a self, errors: &MachineErrors) -> Vec<Carried<'a>> {
        let places: BTreeSet<(bool, &str)> = self
            .totals
            .keys()
            .filter_map(|name| Some((quantity(name).starts_with("infiniband"), place(name)?)))
            .collect();
        let all = places.into_iter().map(|(is_port, place)| self.of_place(is_port, place, errors));
        let is_shown = |one: &Carried<'_>| {
            let moved = |of: &Result<Direction, _>| of.as_ref().is_ok_and(|of| of.bytes > 0.0);
            moved(&one.received) || moved(&one.sent) || one.line_rate.is_some()
        };
        all.filter(is_shown).collect()
    }

    fn of_place<'a>(&'a self, is_port: bool, at: &'a str, errors: &MachineErrors) -> Carried<'a> {
        let named = |quantity: &str| format!("{quantity}{}{at}", counter::PLACE);
        let [received, sent] = if is_port {
            [counter::INFINIBAND_RECEIVED_BYTES, counter::INFINIBAND_SENT_BYTES]
        } else {
            [counter::NETWORK_RECEIVED_BYTES, counter::NETWORK_SENT_BYTES]
        }
        .map(|quantity| self.direction(&named(quantity)));
        // Counters of errors have rows only where they rise. Those of an interface are in the file
        // that has its bytes. Which ones a port has is not recorded.
        let sum = |quantities: &[&str]| {
            let totals = quantities.iter().filter_map(|quantity| errors.total(&named(quantity)));
            let known = totals.reduce(|a, b| a + b).or((!is_port).then_some(0.0));
            known.map(|count| count as u64)
        };
        let is_drop = |quantity: &&&str| **quantity == "infiniband_port_xmit_discards";
        let (drops, faults): (Vec<&str>, Vec<&str>) = if is_port {
            let drops = counter::INFINIBAND.iter().filter(is_drop).copied().collect();
            (drops, counter::INFINIBAND.iter().filter(|one| !is_drop(one)).copied().collect())
        } else {
            (
                vec![counter::NETWORK_RECEIVE_DROPS, counter::NETWORK_SEND_DROPS],
                vec![counter::NETWORK_RECEIVE_ERRORS, counter::NETWORK_SEND_ERRORS],
            )
        };
        let (namespace, place) = match at.split_once(counter::PLACE) {
            Some((namespace, place)) => (namespace.parse().ok(), place),
            None => (None, at),
        };
        let rate = self.facts.as_ref().map(|facts| &facts["line_rates"][at]);
        Carried {
            namespace,
            ranks: namespace.and_then(|one| self.namespaces.get(&one)).map_or(&[], Vec::as_slice),
            place,
            is_port,
            received,
            sent,
            line_rate: rate.and_then(Value::as_f64),
            errors: sum(&faults),
            drops: sum(&drops),
        }
    }

    fn direction(&self, name: &str) -> Result<Direction, &'static str> {
        let totals = self.totals.get(name).ok_or(NOT_COUNTED)?;
        let (first, last) = (totals.first_key_value(), totals.last_key_value());
        let ((&first_ns, first), (_, last)) = first.zip(last).ok_or(NOT_COUNTED)?;
        Ok(Direction {
            bytes: (last - first).max(0.0),
            of_step: self.of_step(totals, first_ns),
            peak: self.peak(totals),
        })
    }

    fn of_step(&self, totals: &Totals, first_ns: u64) -> Result<f64, &'static str> {
        let (time, steps) = self.steps()?;
        if time.span().is_none_or(|span| span.start < first_ns) {
            return Err(READ_LATE);
        }
        Ok(within(totals, &time) / steps as f64)
    }

    /// Returns the highest rate between readings.
    fn peak(&self, totals: &Totals) -> Option<f64> {
        let every_ms = self.facts.as_ref()?["traffic_every_ms"].as_f64()?;
        let least_ns = every_ms * 1e6 * LEAST_PART;
        // A counter that didn't change has no further rows.
        if totals.values().all(|total| *total == 0.0) {
            return Some(0.0);
        }
        let rows: Vec<(u64, f64)> = totals.iter().map(|(ns, total)| (*ns, *total)).collect();
        let mut to = 0;
        let mut peak: Option<f64> = None;
        for (start_ns, start) in &rows {
            while rows.get(to).is_some_and(|row| ((row.0 - start_ns) as f64) < least_ns) {
                to += 1;
            }
            let Some((end_ns, end)) = rows.get(to) else { break };
            let rate = (end - start).max(0.0) / (end_ns - start_ns) as f64 * 1e9;
            peak = Some(peak.map_or(rate, |peak| peak.max(rate)));
        }
        peak
    }
}

/// Returns how far a total rose within some time.
fn within(totals: &Totals, time: &Cover) -> f64 {
    time.parts().iter().map(|part| at(totals, part.end) - at(totals, part.start)).sum()
}

/// Returns the total at a time.
fn at(totals: &Totals, time_ns: u64) -> f64 {
    let before = totals.range(..=time_ns).next_back();
    let after = totals.range(time_ns..).next();
    match (before, after) {
        (Some((from_ns, from)), Some((to_ns, to))) if to_ns > from_ns => {
            from + (to - from) * (time_ns - from_ns) as f64 / (to_ns - from_ns) as f64
        }
        (Some((_, total)), _) | (None, Some((_, total))) => *total,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
impl FileTraffic {
    /// Readings of an interface that received 100 bytes in the first tenth of a second and 900 in
    /// the second one, and sent nothing.
    pub(crate) fn example(line_rate: f64) -> FileTraffic {
        let totals = [(0, 0.0), (100_000_000, 100.0), (200_000_000, 1000.0)];
        let facts = serde_json::json!({
            "traffic_every_ms": 100, "line_rates": { "eth0": line_rate }
        });
        FileTraffic {
            totals: [
                ("network_received_bytes/eth0".to_owned(), totals.into()),
                ("network_sent_bytes/eth0".to_owned(), [(0, 0.0)].into()),
            ]
            .into(),
            facts: Some(facts),
            ..FileTraffic::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_rank::base::intervals::Interval;

    #[test]
    fn the_line_that_is_used_most_is_found_for_the_time_in_question() {
        let traffic = FileTraffic::example(18_000.0);
        let between = |from, to| traffic.fullest_line(&Cover::of([Interval::new(from, to)]));
        let of_second_tenth = between(100_000_000, 200_000_000).unwrap();
        assert_eq!(of_second_tenth.place, "eth0");
        assert!((of_second_tenth.bytes_per_s - 9000.0).abs() < 1e-6);
        assert!((of_second_tenth.share() - 0.5).abs() < 1e-9);
        assert!((between(0, 100_000_000).unwrap().share() - 1000.0 / 18_000.0).abs() < 1e-9);
        assert_eq!(traffic.fullest_line(&Cover::default()), None);
        let unknown = FileTraffic { facts: None, ..traffic.clone() };
        assert_eq!(unknown.fullest_line(&Cover::of([Interval::new(0, 1)])), None);
    }
}

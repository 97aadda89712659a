//! Sums the events that were counted besides time: cycles, instructions, cache misses, page faults.
//!
//! A sample has the number of events of one kind on its thread since the previous sample, and the
//! code in which the last of these events happened. Sums over samples are estimates for a thread, a
//! function or a step. A function's sum covers only its own code, since these samples have no
//! callers.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_rank::RankTrace;
use tprof_rank::samples::{FrameFunctions, Func, FunctionTable};
use tprof_trace::TraceFile;
use tprof_trace::model::{EventSample, ProcessIndex, ThreadIndex, property};

use super::filter::SampleFilter;
use super::steps::{Label, StepLookup};

/// The reason for missing counts in files that were recorded without any.
const NO_REASON: &str = "the file has no reason: it was imported, or recorded by an older tprof";
const NOT_ASKED: &str = "--counters does not name it";
const NO_TURN: &str = "the processor had no counter free for it";
const NO_SAMPLE: &str = "no sample of this event: too few events";

/// A count of events of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventCount {
    /// Estimated number of events.
    pub count: f64,
    /// Number of samples behind the estimate.
    pub samples: u64,
}

impl EventCount {
    /// Half the width of the 95 % interval, as a share of the count. If the counts cover whole
    /// threads, `counters` is the number of their counters, and only the events after each
    /// counter's last sample are missing. In a part of the threads' code or time, the number of
    /// samples itself varies by chance.
    pub fn relative_error(self, counters: Option<u64>) -> f64 {
        let samples = self.samples as f64;
        let chance = 1.96 / samples.sqrt();
        counters.map_or(chance, |counters| chance.min(counters as f64 / samples))
    }
}

/// Counts of events, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    events: BTreeMap<String, EventCount>,
    /// If these counts cover whole threads, the number of counters, one for each thread and
    /// processor. `None` if that number is not known, or if the counts are of a part of the
    /// threads' code or time.
    pub counters: Option<u64>,
}

impl Counts {
    fn add_one(&mut self, event: &str, count: u64) {
        let tally = match self.events.get_mut(event) {
            Some(tally) => tally,
            None => self.events.entry(event.to_owned()).or_default(),
        };
        tally.count += count as f64;
        tally.samples += 1;
    }

    /// Adds another set of counts.
    pub fn add(&mut self, other: &Counts) {
        for (event, more) in &other.events {
            let tally = self.events.entry(event.clone()).or_default();
            tally.count += more.count;
            tally.samples += more.samples;
        }
    }

    fn scale(&mut self, shares: &BTreeMap<String, f64>) {
        for (event, tally) in &mut self.events {
            if let Some(share) = shares.get(event).filter(|share| **share > 0.0) {
                tally.count /= share;
            }
        }
    }

    /// Whether nothing was sampled.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Events of a kind, if any was sampled.
    pub fn get(&self, event: &str) -> Option<EventCount> {
        self.events.get(event).copied()
    }
}

/// The events that the user requested, and which of them the run counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestedEvents {
    /// The reason why each event was not counted; `None` if it was.
    events: BTreeMap<String, Option<String>>,
    /// Whether the file has the property `events`.
    recorded: bool,
    /// The share of the time for which each event was counted; `None` if the run was cut off.
    shares: Option<BTreeMap<String, f64>>,
}

impl RequestedEvents {
    /// Reads which events the run of a file was asked to count.
    pub fn of(file: &TraceFile) -> RequestedEvents {
        let events = file.property(property::EVENTS);
        let shares = file.property(property::EVENT_SHARES);
        RequestedEvents {
            recorded: events.is_some(),
            events: events.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default(),
            shares: shares.and_then(|json| serde_json::from_str(json).ok()),
        }
    }

    /// Names of the events that were counted.
    pub fn counted(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter(|(_, why)| why.is_none()).map(|(event, _)| event.as_str())
    }

    /// Names of all events that were asked for.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.events.keys().map(String::as_str)
    }

    /// Whether the user chose events, and this one is not among them.
    pub fn leaves_out(&self, event: &str) -> bool {
        self.recorded && !self.events.is_empty() && !self.events.contains_key(event)
    }

    /// Returns the reason why an event has no count.
    pub fn why_missing(&self, event: &str) -> String {
        let share = self.shares.as_ref().and_then(|shares| shares.get(event));
        match self.events.get(event) {
            None if self.recorded => NOT_ASKED.to_owned(),
            None => NO_REASON.to_owned(),
            Some(Some(why)) => why.clone(),
            Some(None) if share == Some(&0.0) => NO_TURN.to_owned(),
            Some(None) => NO_SAMPLE.to_owned(),
        }
    }

    /// Returns notes on events that had a counter for only a part of the time, or on the missing
    /// record of these times.
    pub fn notes(&self) -> Vec<String> {
        let Some(shares) = &self.shares else {
            let unsure = "the run was cut off: the time in which each event had a counter is \
                          unknown, so counts may be too low";
            return self.counted().next().map(|_| unsure.to_owned()).into_iter().collect();
        };
        let turns = shares.iter().filter(|(_, share)| **share > 0.0 && **share < 0.99);
        turns
            .map(|(event, share)| {
                format!(
                    "{event} had a processor counter for {:.0}% of the time: its counts are scaled \
                     up",
                    share * 100.0
                )
            })
            .collect()
    }
}

/// The events that were counted in a rank.
#[derive(Debug, Default)]
pub struct RankCounts {
    /// The events that the rank was asked to count.
    pub asked: RequestedEvents,
    /// Counts over the whole rank.
    pub total: Counts,
    /// Counts by the function whose code the event happened in.
    pub functions: FxHashMap<Func, Counts>,
    /// Counts by thread.
    pub threads: FxHashMap<(ProcessIndex, ThreadIndex), Counts>,
    /// Counts by training step; empty if there are none. The key `None` is for events outside of
    /// all steps.
    pub steps: BTreeMap<Option<Label>, Counts>,
}

impl RankCounts {
    /// Adds up the rows that `kept` selects; `None` selects all rows. With `by_step`, adds them up
    /// by step too, for which the rank's steps must have been read.
    pub(super) fn of(
        rank: &RankTrace<'_>,
        by_step: bool,
        kept: Option<&SampleFilter>,
    ) -> RankCounts {
        let whole = kept.is_none();
        let file = rank.file;
        let mut counted = RankCounts { asked: RequestedEvents::of(file), ..RankCounts::default() };
        if counted.asked.counted().next().is_none() {
            return counted;
        }
        let steps = by_step.then(|| StepLookup::of(rank)).filter(|steps| !steps.is_empty());
        let mut stacks: FxHashMap<_, Counts> = FxHashMap::default();
        for row in file.blocks::<EventSample>().flatten() {
            if kept.is_some_and(|kept| !kept.holds_at(row.process, row.thread, row.time_ns)) {
                continue;
            }
            let event = file.name(row.event);
            let thread = counted.threads.entry((row.process, row.thread)).or_default();
            thread.add_one(event, row.count);
            stacks.entry((row.process, row.stack)).or_default().add_one(event, row.count);
            if let Some(steps) = &steps {
                let label = steps.label_at(row.process, row.time_ns);
                counted.steps.entry(label).or_default().add_one(event, row.count);
            }
        }
        let (mut frames, mut names) = (FrameFunctions::new(file), FunctionTable::default());
        for ((process, stack), counts) in stacks {
            counted.total.add(&counts);
            let stack = frames.stack(process, stack, &mut names);
            if let Some(function) = stack.functions.first() {
                let func = names.get(*function).clone();
                counted.functions.entry(func).or_default().add(&counts);
            }
        }
        let of_each = file.property(property::COUNTERS_PER_THREAD);
        let of_each: Option<u64> = of_each.filter(|_| whole).and_then(|json| json.parse().ok());
        counted.total.counters = of_each.map(|of_each| of_each * counted.threads.len() as u64);
        for counts in counted.threads.values_mut() {
            counts.counters = of_each;
        }
        counted.scale();
        counted
    }

    fn scale(&mut self) {
        let Some(shares) = &self.asked.shares else { return };
        let groups = self.functions.values_mut().chain(self.threads.values_mut());
        for counts in groups.chain(self.steps.values_mut()).chain([&mut self.total]) {
            counts.scale(shares);
        }
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;
    use tprof_trace::model::{Property, Span, SpanKind};

    use super::*;

    fn fact(made: &mut Fixture, key: &str, value: &str) {
        let (key, value) = (made.name(key), made.name(value));
        made.writer.property(Property { key, value });
    }

    fn of(made: Fixture) -> RankCounts {
        let file = made.finish();
        let rank = RankTrace::load(&file, Needs::STEPS | Needs::spans(SpanKind::Nvtx));
        RankCounts::of(&rank, true, None)
    }

    #[test]
    fn events_add_up_by_thread_and_step() {
        let mut made = Fixture::new();
        fact(&mut made, property::EVENTS, r#"{"cycles":null,"branches":"no such"}"#);
        fact(&mut made, property::EVENT_SHARES, r#"{"cycles":0.5}"#);
        fact(&mut made, property::COUNTERS_PER_THREAD, "4");
        let kind = SpanKind::Nvtx;
        let step = Span { start_ns: 100, duration_ns: 100, kind, ..Span::default() };
        made.span(step, "ProfilerStep#3");
        let event = made.name("cycles");
        let row = |time_ns, thread, count| EventSample {
            time_ns,
            thread,
            count,
            event,
            ..EventSample::default()
        };
        let mut rows = vec![row(50, 0, 10), row(150, 0, 20), row(160, 1, 30)];
        made.writer.write(&mut rows).unwrap();
        let counted = of(made);
        let cycles = |counts: &Counts| counts.get("cycles").map(|of| (of.count, of.samples));
        assert_eq!(
            cycles(&counted.total),
            Some((120.0, 3)),
            "the counter ran half the time, so the count is doubled"
        );
        assert_eq!(cycles(&counted.threads[&(0, 1)]), Some((60.0, 1)));
        let counters = (counted.total.counters, counted.threads[&(0, 1)].counters);
        assert_eq!(counters, (Some(8), Some(4)));
        let steps: Vec<_> = counted.steps.values().map(cycles).collect();
        assert_eq!(steps, [Some((20.0, 1)), Some((100.0, 2))]);
        assert_eq!(counted.asked.why_missing("branches"), "no such");
        assert_eq!(counted.asked.why_missing("instructions"), NOT_ASKED);
        let notes = counted.asked.notes();
        assert_eq!(
            notes,
            ["cycles had a processor counter for 50% of the time: its counts are scaled up"]
        );
    }

    #[test]
    fn a_complete_count_has_a_smaller_error_than_a_part() {
        let tally = EventCount { count: 1e6, samples: 100 };
        assert_eq!(tally.relative_error(None), 0.196);
        assert_eq!(tally.relative_error(Some(2)), 0.02);
        assert_eq!(tally.relative_error(Some(1000)), 0.196);
    }

    #[test]
    fn the_reason_for_missing_counts_comes_from_the_file() {
        let old = of(Fixture::new());
        assert_eq!(old.asked.why_missing("cycles"), NO_REASON);
        assert!(old.asked.notes().is_empty());
        let mut made = Fixture::new();
        fact(&mut made, property::EVENTS, r#"{"cycles":null}"#);
        fact(&mut made, property::EVENT_SHARES, r#"{"cycles":0.0}"#);
        assert_eq!(of(made).asked.why_missing("cycles"), NO_TURN);
        let mut made = Fixture::new();
        fact(&mut made, property::EVENTS, r#"{"cycles":null}"#);
        let cut = of(made);
        assert_eq!(cut.asked.why_missing("cycles"), NO_SAMPLE);
        assert!(cut.asked.notes()[0].starts_with("the run was cut off"));
    }
}

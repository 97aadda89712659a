//! Makes the tables of cycles, instructions and cache misses, and of all other events that the user
//! requested.

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, RankContext, Table, Unit, View};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Func;

use super::cells::{WHERE, place_cells};
use super::counted::{Counts, EventCount, RankCounts, RequestedEvents};
use super::steps::Label;

const CYCLES: &str = "cycles";
const INSTRUCTIONS: &str = "instructions";
const REFERENCES: &str = "cache-references";
const MISSES: &str = "cache-misses";
/// The events that have columns of their own.
const STANDARD: [&str; 4] = [CYCLES, INSTRUCTIONS, REFERENCES, MISSES];

const COLUMNS: [Column; 6] = [
    Column::new("cycles", "cycles", Unit::Count),
    Column::data("instructions", Unit::Count),
    Column::new("instructions_per_cycle", "instr/cycle", Unit::Number),
    Column::data("cache_references", Unit::Count),
    Column::new("cache_misses", "cache misses", Unit::Count),
    Column::new("cache_hit_share", "cache hits", Unit::Share),
];

/// Rows of a table: the cells that name a row, and its counts.
pub(super) type CountedRows<'a> = Vec<(Vec<Cell>, &'a Counts)>;

/// The events that several ranks were asked to count.
pub(super) struct RequestedByRanks<'a>(pub Vec<&'a RequestedEvents>);

impl RequestedByRanks<'_> {
    /// Whether any event that passes was counted in any rank.
    fn has(&self, wanted: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|asked| asked.counted().any(&wanted))
    }

    fn has_standard(&self) -> bool {
        self.has(|event| STANDARD.contains(&event))
    }

    /// Events without columns of their own, counted or not.
    fn others(&self) -> Vec<&str> {
        let mut others: Vec<&str> = self.0.iter().flat_map(|asked| asked.all()).collect();
        others.retain(|event| !STANDARD.contains(event));
        others.sort_unstable();
        others.dedup();
        others
    }

    fn why_missing(&self, event: &str) -> String {
        let counts = |asked: &&&RequestedEvents| asked.counted().any(|counted| counted == event);
        let asked = self.0.iter().find(counts).or(self.0.first());
        asked.map_or_else(String::new, |asked| asked.why_missing(event))
    }

    /// Notes on events: which are missing and why, and which were scaled.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut missing: Vec<(String, Vec<&str>)> = Vec::new();
        for asked in &self.0 {
            let standard = STANDARD.iter().copied();
            for event in standard.chain(asked.all().filter(|event| !STANDARD.contains(event))) {
                let is_counted = asked.counted().any(|counted| counted == event);
                if is_counted || asked.leaves_out(event) {
                    continue;
                }
                let why = asked.why_missing(event);
                match missing.iter_mut().find(|(of, _)| *of == why) {
                    Some((_, events)) if events.contains(&event) => {}
                    Some((_, events)) => events.push(event),
                    None => missing.push((why, vec![event])),
                }
            }
            notes.extend(asked.notes());
        }
        notes.sort_unstable();
        notes.dedup();
        let note = |(why, events): (String, Vec<&str>)| format!("no {}: {why}", events.join(", "));
        notes.extend(missing.into_iter().map(note));
        notes
    }
}

/// Returns the cell of a count, with the error that follows from the number of samples.
fn count(counts: &Counts, event: &str, why: &str) -> Cell {
    let Some(tally) = counts.get(event) else { return Cell::missing(why) };
    let error = tally.count * tally.relative_error(counts.counters);
    Cell::Estimate {
        value: (tally.count.round() as u64).into(),
        error: (error.round() as u64).into(),
    }
}

/// Returns the ratio of two counts with its error; `None` if one of them is unknown.
fn ratio(counts: &Counts, above: &str, below: &str) -> Option<(f64, f64)> {
    let (above, below) = (counts.get(above)?, counts.get(below)?);
    let relative = |tally: EventCount| tally.relative_error(counts.counters);
    let ratio = above.count / below.count;
    let error = ratio * relative(above).hypot(relative(below));
    ratio.is_finite().then_some((ratio, error))
}

fn cells(counts: &Counts, all: &RequestedByRanks<'_>) -> Vec<Cell> {
    let of = |event| count(counts, event, &all.why_missing(event));
    let estimate = |found: Option<(f64, f64)>, needs: [&str; 2]| match found {
        Some((value, error)) => Cell::Estimate { value: value.into(), error: error.into() },
        None => {
            let lacks = needs.into_iter().find(|event| counts.get(event).is_none());
            Cell::missing(all.why_missing(lacks.unwrap_or(needs[0])))
        }
    };
    // If there are few samples, the estimate of misses may exceed that of references.
    let missed = ratio(counts, MISSES, REFERENCES);
    let hits = missed.map(|(share, error)| ((1.0 - share).clamp(0.0, 1.0), error));
    vec![
        of(CYCLES),
        of(INSTRUCTIONS),
        estimate(ratio(counts, INSTRUCTIONS, CYCLES), [INSTRUCTIONS, CYCLES]),
        of(REFERENCES),
        of(MISSES),
        estimate(hits, [MISSES, REFERENCES]),
    ]
}

/// Returns the rows with counts, the largest count of an event first. Rows with equal counts keep
/// their order.
fn sorted<'a>(mut rows: CountedRows<'a>, event: &str) -> CountedRows<'a> {
    rows.retain(|(_, counts)| !counts.is_empty());
    let of = |counts: &Counts| counts.get(event).map_or(0.0, |tally| tally.count);
    rows.sort_rows_by(|a, b| of(b.1).total_cmp(&of(a.1)));
    rows
}

/// Adds rows of cycles, instructions and cache misses to a table.
fn standard(table: Table, rows: CountedRows<'_>, all: &RequestedByRanks<'_>) -> Table {
    rows.into_iter().fold(table, |mut table, (names, counts)| {
        let mut row = cells(counts, all);
        row.extend(names);
        table.row(row);
        table
    })
}

/// Returns a table of the standard events and a table of all others, each only if such events were
/// requested. `keys` are the keys of both tables; `names` are the columns that identify rows.
fn both(
    keys: [&'static str; 2],
    by: &str,
    names: &[Column],
    rows: CountedRows<'_>,
    all: &RequestedByRanks<'_>,
    in_order: bool,
) -> Vec<Table> {
    let mut tables = Vec::new();
    if all.has_standard() {
        let columns = [&COLUMNS[..], names].concat();
        let rows = if in_order { rows.clone() } else { sorted(rows.clone(), CYCLES) };
        let title = format!("Cycles, instructions and cache misses{by}");
        tables.push(standard(Table::new(keys[0], title, columns), rows, all));
    }
    let others = all.others();
    if !others.is_empty() {
        let events = [
            Column::new("count", "count", Unit::Count),
            Column::data("samples", Unit::Count),
            Column::new("event", "event", Unit::Text),
        ];
        let mut table = Table::new(keys[1], format!("Events{by}"), [&events[..], names].concat());
        for event in others {
            let rows = if in_order { rows.clone() } else { sorted(rows.clone(), event) };
            for (names, counts) in rows {
                let tally = counts.get(event);
                if tally.is_none() && !in_order {
                    continue;
                }
                let samples = tally.map_or(0, |tally| tally.samples);
                let mut row = vec![
                    count(counts, event, &all.why_missing(event)),
                    samples.into(),
                    event.into(),
                ];
                row.extend(names);
                table.row(row);
            }
        }
        tables.push(table);
    }
    tables
}

/// The tables by rank. The first table exists even if nothing was counted.
pub(super) fn of_ranks<'a>(
    ranks: impl Iterator<Item = (&'a RankContext, &'a RankCounts)> + Clone,
) -> Vec<Table> {
    let all = RequestedByRanks(ranks.clone().map(|(_, counted)| &counted.asked).collect());
    let names = [Column::data("rank", Unit::Id), Column::new("label", "rank", Unit::Name)];
    let row = |(at, counted): (&RankContext, &'a RankCounts)| {
        (vec![Cell::applies(at.rank), at.label.as_str().into()], &counted.total)
    };
    let rows: CountedRows<'_> = ranks.clone().map(row).collect();
    let mut tables = both(["hardware_counters", "events"], "", &names, rows, &all, true);
    if !all.has_standard() {
        let columns = [&COLUMNS[..], &names].concat();
        let table = Table::new("hardware_counters", "Hardware counters", columns).view(View::Data);
        // The reason for a missing count differs by rank, so each row uses its own rank's reasons.
        let table = ranks.fold(table, |mut table, (at, counted)| {
            let mut row = cells(&counted.total, &RequestedByRanks(vec![&counted.asked]));
            row.extend([Cell::applies(at.rank), at.label.as_str().into()]);
            table.row(row);
            table
        });
        tables.insert(0, table);
    }
    tables
}

/// The tables of functions and steps.
pub(super) fn of_places<'a>(counted: impl Iterator<Item = &'a RankCounts> + Clone) -> Vec<Table> {
    let all = RequestedByRanks(counted.clone().map(|counted| &counted.asked).collect());
    let mut functions: FxHashMap<&Func, Counts> = FxHashMap::default();
    let mut steps = std::collections::BTreeMap::<_, Counts>::new();
    for counted in counted {
        for (func, counts) in &counted.functions {
            functions.entry(func).or_default().add(counts);
        }
        for (label, counts) in &counted.steps {
            steps.entry(label).or_default().add(counts);
        }
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions
        .sort_rows_by(|a, b| a.0.name.cmp(&b.0.name).then_with(|| a.0.module.cmp(&b.0.module)));
    let rows = functions.iter().map(|(func, counts)| (place_cells(func), counts)).collect();
    let keys = ["hardware_by_function", "events_by_function"];
    let mut tables = both(keys, " in functions' own code", &WHERE, rows, &all, false);
    if !steps.is_empty() {
        let name = |label: &Option<Label>| match label {
            Some((_, name)) => name.clone(),
            None => "(outside any step)".to_owned(),
        };
        let rows = steps.iter().map(|(label, counts)| (vec![name(label).into()], counts));
        let names = [Column::new("step", "step", Unit::Name)];
        let keys = ["hardware_by_step", "events_by_step"];
        tables.extend(both(keys, " by step", &names, rows.collect(), &all, true));
    }
    tables
}

/// The tables of threads. Each row has the cells that name the thread, and its counts.
pub(super) fn of_threads(rows: CountedRows<'_>, all: &RequestedByRanks<'_>) -> Vec<Table> {
    let names = [
        Column::data("pid", Unit::Id),
        Column::new("tid", "tid", Unit::Id),
        Column::new("thread", "thread", Unit::Name),
    ];
    both(["hardware_by_thread", "events_by_thread"], " of threads", &names, rows, all, false)
}

//! Sums up the samples of the instructions of GPU kernels: why their warps waited, and where.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tprof_document::{Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::stalls::{StallGroup, StallReason};
use tprof_facts::units::count;
use tprof_rank::base::names::short;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{RankTrace, WorkKind};
use tprof_trace::TraceFile;
use tprof_trace::model::{KernelStall, NameId, property};

/// The reason for missing samples where nothing was asked for.
const NOT_ASKED: &str =
    "no samples of GPU instructions were recorded: they need `--gpu-stalls` and kernels on a GPU";

/// Samples by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ByReason(BTreeMap<String, Counted>);

/// Samples of one reason, and those in whose cycle nothing was issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    samples: u64,
    not_issued: u64,
}

impl ByReason {
    fn add(&mut self, reason: &StallReason<'_>, samples: u64) {
        let counted = self.0.entry(reason.name.to_owned()).or_default();
        match reason.is_not_issued {
            true => counted.not_issued += samples,
            false => counted.samples += samples,
        }
    }

    fn samples(&self) -> u64 {
        self.0.values().map(|counted| counted.samples).sum()
    }

    fn of_group(&self, group: StallGroup) -> u64 {
        let of = self.0.iter().filter(|(name, _)| StallReason::of(name).group == group);
        of.map(|(_, counted)| counted.samples).sum()
    }

    /// The most frequent reason for which warps were held up.
    fn dominant(&self) -> Option<(&str, u64)> {
        let stalls = self.0.iter().filter(|(name, _)| StallReason::of(name).group.is_stall());
        let most = stalls.max_by_key(|(name, counted)| (counted.samples, Reverse(*name)))?;
        Some((most.0.as_str(), most.1.samples)).filter(|most| most.1 > 0)
    }
}

/// Where samples were taken: a line if it is known, else a module and an offset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Line(String, u32),
    Offset(u64, u64),
}

/// What CUPTI says about the samples of one context.
#[derive(Clone, Debug, PartialEq)]
struct SampledContext {
    device: u64,
    period_cycles: u64,
    total: u64,
    dropped: u64,
    other: u64,
    recorded: u64,
    buffer_full: u64,
}

/// The samples of a rank's kernels, of the whole recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankStalls {
    kernels: BTreeMap<String, ByReason>,
    places: BTreeMap<(String, Place), ByReason>,
    contexts: Vec<SampledContext>,
    /// Why there are none, or none from some time on.
    whys: BTreeSet<String>,
    /// Names of all kernels that were recorded, sampled or not.
    ran: BTreeSet<String>,
}

impl RankStalls {
    /// Whether nothing was sampled, and nothing says why.
    pub fn is_none(&self) -> bool {
        self.kernels.is_empty() && self.contexts.is_empty() && self.whys.is_empty()
    }
}

/// Sums up a rank's samples.
pub fn of_rank(rank: &RankTrace<'_>) -> RankStalls {
    let mut found = RankStalls::default();
    read_properties(rank.file, &mut found);
    let kernels = rank.work.iter().filter(|work| matches!(work.kind, WorkKind::Kernel));
    let names: BTreeSet<NameId> = kernels.map(|work| work.name).collect();
    found.ran = names.into_iter().map(|name| rank.name(name).to_owned()).collect();
    let mut reasons: BTreeMap<NameId, StallReason<'_>> = BTreeMap::new();
    for row in rank.file.blocks::<KernelStall>().flatten() {
        let reason =
            *reasons.entry(row.reason).or_insert_with(|| StallReason::of(rank.name(row.reason)));
        let kernel = rank.name(row.kernel);
        match found.kernels.get_mut(kernel) {
            Some(known) => known.add(&reason, row.samples),
            None => found.kernels.entry(kernel.to_owned()).or_default().add(&reason, row.samples),
        }
        let place = match row.line {
            0 => Place::Offset(row.module, row.offset),
            line => Place::Line(rank.name(row.file).to_owned(), line),
        };
        found.places.entry((kernel.to_owned(), place)).or_default().add(&reason, row.samples);
    }
    found
}

fn read_properties(file: &TraceFile, found: &mut RankStalls) {
    for (_, text) in file.properties().filter(|(key, _)| *key == property::PC_SAMPLING) {
        let Ok(facts) = serde_json::from_str::<Value>(text) else { continue };
        if let Some(why) = facts["why"].as_str() {
            found.whys.insert(why.to_owned());
            continue;
        }
        let number = |key: &str| facts[key].as_u64().unwrap_or(0);
        found.contexts.push(SampledContext {
            device: number("device"),
            period_cycles: number("period_cycles"),
            total: number("total"),
            dropped: number("dropped"),
            other: number("other"),
            recorded: number("recorded"),
            buffer_full: number("buffer_full"),
        });
    }
}

/// Makes the tables: kernels, their reasons, their places, and what was sampled.
pub fn tables(parts: &[(&RankContext, &RankStalls)]) -> Vec<Table> {
    let why = why_none(parts);
    vec![
        of_kernels(parts, &why),
        of_places(parts, &why),
        of_reasons(parts, &why),
        sampled(parts, &why),
    ]
}

/// Why there are no samples.
fn why_none(parts: &[(&RankContext, &RankStalls)]) -> String {
    let whys: BTreeSet<&str> =
        parts.iter().flat_map(|(_, part)| &part.whys).map(String::as_str).collect();
    match whys.is_empty() {
        true => NOT_ASKED.to_owned(),
        false => {
            let all: Vec<&str> = whys.into_iter().collect();
            format!("GPU instructions were not sampled: {}", all.join("; "))
        }
    }
}

/// Returns the notes: what the samples are of, and what they lack.
pub fn notes(parts: &[(&RankContext, &RankStalls)], is_of_part: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let has_samples = parts.iter().any(|(_, part)| !part.kernels.is_empty());
    let sum = |of: fn(&SampledContext) -> u64| -> u64 {
        parts.iter().flat_map(|(_, part)| &part.contexts).map(of).sum()
    };
    let (total, dropped, other) = (sum(|of| of.total), sum(|of| of.dropped), sum(|of| of.other));
    if has_samples && is_of_part {
        notes.push("samples of GPU instructions are of the whole recording".to_owned());
    }
    if dropped > 0 {
        notes.push(format!(
            "the device dropped {} of {} samples of GPU instructions; shares are of the others",
            count(dropped),
            count(total)
        ));
    }
    if other > 0 {
        notes.push(format!(
            "{} samples are of kernels that are not the program's, which have no rows",
            count(other)
        ));
    }
    let full = sum(|of| of.buffer_full);
    if full > 0 {
        notes.push(format!(
            "the device's buffer for samples was full {full} times, which cost an unknown number"
        ));
    }
    // A kernel of another name than its function's, such as a whole graph, has samples under the
    // names of the functions.
    let ran: BTreeSet<&String> = parts.iter().flat_map(|(_, part)| &part.ran).collect();
    let is_sampled =
        |name: &&&String| parts.iter().any(|(_, part)| part.kernels.contains_key(name.as_str()));
    let without = ran.len() - ran.iter().filter(is_sampled).count();
    if has_samples && without > 0 {
        notes.push(format!(
            "{} of {} recorded kernels have no samples: too short, run before sampling began, within \
             a graph that is recorded as a whole, or in a context that is not sampled",
            count(without as u64),
            count(ran.len() as u64)
        ));
    }
    if has_samples {
        let whys: BTreeSet<&String> = parts.iter().flat_map(|(_, part)| &part.whys).collect();
        notes.extend(whys.into_iter().map(|why| format!("not all was sampled: {why}")));
    }
    notes
}

/// The columns of groups in the table of kernels, in order.
const GROUPS: [(StallGroup, &str); 9] = [
    (StallGroup::Issued, "issued_share"),
    (StallGroup::Ready, "ready_share"),
    (StallGroup::Memory, "memory_share"),
    (StallGroup::Dependency, "dependency_share"),
    (StallGroup::Barrier, "barrier_share"),
    (StallGroup::Math, "math_share"),
    (StallGroup::Instruction, "instruction_share"),
    (StallGroup::Sleep, "sleep_share"),
    (StallGroup::Other, "other_share"),
];

fn of_kernels(parts: &[(&RankContext, &RankStalls)], why: &str) -> Table {
    // A group without samples has no column for people.
    let heading = |group: StallGroup| {
        let mut kernels = parts.iter().flat_map(|(_, part)| part.kernels.values());
        if kernels.any(|found| found.of_group(group) > 0) { group.name() } else { "" }
    };
    let mut columns = vec![
        rank_column(parts),
        Column::new("samples", "samples", Unit::Count),
        Column::new("share", "of rank", Unit::Share),
    ];
    columns.extend(GROUPS.map(|(group, key)| Column::new(key, heading(group), Unit::Share)));
    columns.extend([
        Column::new("reason", "most stalls", Unit::Text),
        Column::data("reason_share", Unit::Share),
        Column::data("name", Unit::Name),
        Column::new("short_name", "kernel", Unit::Name),
    ]);
    let mut table = Table::new("stall_kernels", "Why warps of kernels waited", columns)
        .about(
            "shares of a kernel's samples: each is one warp at one moment; \"ready\" warps could \
             have issued an instruction, and another warp did",
        )
        .empty(why);
    let mut rows = Vec::new();
    for (at, part) in parts {
        let all: u64 = part.kernels.values().map(ByReason::samples).sum();
        rows.extend(part.kernels.iter().map(|(name, found)| (*at, all, name, found)));
    }
    rows.sort_rows_by_key(|row| Reverse(row.3.samples()));
    for (at, all, name, found) in rows {
        let samples = found.samples();
        let mut cells = vec![at.label.as_str().into(), samples.into(), share(samples, all)];
        cells.extend(GROUPS.map(|(group, _)| share(found.of_group(group), samples)));
        let dominant = found.dominant();
        cells.push(Cell::applies(dominant.map(|most| most.0)));
        cells.push(dominant.map_or(Cell::Empty, |most| share(most.1, samples)));
        cells.push(name.as_str().into());
        cells.push(short(name).into());
        table.row(cells);
    }
    table
}

/// The rank of each row, which people need only if there are several.
fn rank_column(parts: &[(&RankContext, &RankStalls)]) -> Column {
    Column::new("rank", if parts.len() > 1 { "rank" } else { "" }, Unit::Text)
}

fn share(part: u64, all: u64) -> Cell {
    Cell::applies((all > 0).then(|| part as f64 / all as f64))
}

fn of_reasons(parts: &[(&RankContext, &RankStalls)], why: &str) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("samples", "samples", Unit::Count),
        Column::new("share", "of kernel", Unit::Share),
        Column::new("not_issued", "nothing issued", Unit::Count),
        Column::new("reason", "reason", Unit::Text),
        Column::new("group", "group", Unit::Text),
        Column::new("waits_for", "waits for", Unit::Text),
        Column::new("kernel", "kernel", Unit::Name),
    ];
    let mut table = Table::new("stalls", "Reasons by kernel", columns).view(View::Data).empty(why);
    for (at, part) in parts {
        let mut kernels: Vec<_> = part.kernels.iter().collect();
        kernels.sort_rows_by_key(|row| Reverse(row.1.samples()));
        for (name, found) in kernels {
            let all = found.samples();
            let mut reasons: Vec<_> = found.0.iter().collect();
            reasons.sort_rows_by_key(|row| Reverse(row.1.samples));
            for (reason, counted) in reasons {
                let known = StallReason::of(reason);
                table.row(vec![
                    at.label.as_str().into(),
                    counted.samples.into(),
                    share(counted.samples, all),
                    counted.not_issued.into(),
                    reason.as_str().into(),
                    known.group.name().into(),
                    Cell::known(known.waits_for, "this tprof does not know the reason"),
                    name.as_str().into(),
                ]);
            }
        }
    }
    table
}

fn of_places(parts: &[(&RankContext, &RankStalls)], why: &str) -> Table {
    const NO_LINE: &str = "the module has no line information (nvcc -lineinfo, Triton), or it was loaded before sampling began";
    let columns = vec![
        rank_column(parts),
        Column::new("samples", "samples", Unit::Count),
        Column::new("share", "of kernel", Unit::Share),
        Column::new("stalled_share", "stalled", Unit::Share),
        Column::new("reason", "most stalls", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::data("module", Unit::Id),
        Column::data("offset_bytes", Unit::Bytes),
        Column::new("place", "place", Unit::Text),
        Column::data("kernel", Unit::Name),
        Column::new("short_name", "kernel", Unit::Name),
    ];
    let mut table = Table::new("stall_places", "Where warps waited", columns)
        .about(
            "the instruction that a warp was to issue next, by source line, or by its distance from \
             the function's beginning (bytes)",
        )
        .empty(why);
    let mut rows = Vec::new();
    for (at, part) in parts {
        rows.extend(part.places.iter().map(|((kernel, place), found)| {
            let all = part.kernels.get(kernel).map_or(0, ByReason::samples);
            (*at, all, kernel, place, found)
        }));
    }
    rows.sort_rows_by_key(|row| Reverse(row.4.samples()));
    for (at, all, kernel, place, found) in rows {
        let samples = found.samples();
        let stalled: u64 = StallGroup::ALL
            .into_iter()
            .filter(|group| group.is_stall())
            .map(|group| found.of_group(group))
            .sum();
        let share =
            |part: u64, all: u64| Cell::applies((all > 0).then(|| part as f64 / all as f64));
        let (file, line, module, offset, shown) = match place {
            Place::Line(file, line) => {
                let name = file.rsplit('/').next().unwrap_or(file);
                let shown = format!("{name}:{line}");
                (file.as_str().into(), u64::from(*line).into(), Cell::Empty, Cell::Empty, shown)
            }
            Place::Offset(module, offset) => (
                Cell::missing(NO_LINE),
                Cell::missing(NO_LINE),
                (*module).into(),
                (*offset).into(),
                format!("+{offset:#x}"),
            ),
        };
        table.row(vec![
            at.label.as_str().into(),
            samples.into(),
            share(samples, all),
            share(stalled, samples),
            Cell::applies(found.dominant().map(|most| most.0)),
            file,
            line,
            module,
            offset,
            shown.into(),
            kernel.as_str().into(),
            short(kernel).into(),
        ]);
    }
    table
}

fn sampled(parts: &[(&RankContext, &RankStalls)], why: &str) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("device", "device", Unit::Id),
        Column::new("period_cycles", "period", Unit::Count),
        Column::new("samples", "samples", Unit::Count),
        Column::new("dropped", "dropped", Unit::Count),
        Column::new("other", "of other kernels", Unit::Count),
        Column::new("recorded", "recorded", Unit::Count),
        Column::new("buffer_full", "buffer full", Unit::Count),
    ];
    let mut table = Table::new("stall_sampling", "Sampled devices", columns)
        .view(View::Data)
        .about("numbers as CUPTI counts them; its samples include dropped ones")
        .empty(why);
    for (at, part) in parts {
        for of in &part.contexts {
            table.row(vec![
                at.label.as_str().into(),
                of.device.into(),
                of.period_cycles.into(),
                of.total.into(),
                of.dropped.into(),
                of.other.into(),
                of.recorded.into(),
                of.buffer_full.into(),
            ]);
        }
    }
    table
}

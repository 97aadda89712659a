//! Makes the tables of `roofline`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use tprof_rank::base::sort_rows::SortRows;

use tprof_document::{Body, Cell, Column, Options, RankContext, Table, Unit, View};
use tprof_facts::flops::peaks::{Peaks, is_tf32};

use super::figures::{NO_BYTES, NO_PEAKS, per_second, shape_text, tera, why_nothing_counts};
use super::roof::RoofBound;
use super::sums::{CollectiveSums, RankFlops, Row, SizesKey};
use super::tables::{joined, notes};
use crate::gpu::measured::join;

const NO_TIME: &str = "no time was recorded for it";
const ON_HOST: &str = "it ran on the host, which has no peaks here (--peaks fp32=1T,memory=50G)";
const CROSSES: &str = "its bytes cross the bus between host and device: see `report bandwidth`";
const NO_LEAST: &str = "the least time of a collective is not known";
const NO_OPERATIONS: &str = "it has no operations of its own";

/// Makes all tables of the report.
pub(super) fn body(parts: &[(RankContext, RankFlops)], options: &Options) -> Body {
    let rows = joined(parts);
    let mut all_notes = notes(parts);
    if let Some(note) = unknown_devices(parts) {
        all_notes.push(note);
    }
    let all = join(parts.iter().map(|(at, part)| (at, &part.measured)));
    let mut tables = vec![points(parts, &rows), bounds(parts, &rows), peaks(parts)];
    if all.is_sampled {
        tables.push(super::measured::table(parts, &all));
    } else if options.data {
        tables.push(super::measured::table(parts, &all).view(View::Data));
    }
    all_notes.extend(all.shared);
    Body { tables, notes: all_notes }
}

/// Returns a note on devices without known peaks.
fn unknown_devices(parts: &[(RankContext, RankFlops)]) -> Option<String> {
    let without =
        |(_, part): &&(RankContext, RankFlops)| part.peaks.is_none() && !part.rows.is_empty();
    let mut names: Vec<&str> = parts
        .iter()
        .filter(without)
        .map(|(_, part)| match part.has_work {
            true if part.device.is_empty() => "a device without a name",
            true => part.device.as_str(),
            false => "the host",
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!(
            "no peaks are known of {}: no share of a roof is given; --peaks \
             bf16=989T,memory=3.35T states them",
            names.join(", ")
        )
    })
}

/// Returns the reason why the distance to the roof isn't known.
fn why(row: &Row, has_peaks: bool, has_work: bool) -> &'static str {
    match row {
        _ if row.crosses => CROSSES,
        _ if row.launched == 0 && has_work => ON_HOST,
        _ if !has_peaks => NO_PEAKS,
        _ if row.work.bytes().is_none() => NO_BYTES,
        _ => NO_PEAKS,
    }
}

/// Makes the table with one row for each operator and sizes.
fn points(parts: &[(RankContext, RankFlops)], rows: &[(SizesKey, Row)]) -> Table {
    let columns = vec![
        Column::new("time_ns", "time", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("runs", "runs", Unit::Count),
        Column::new("intensity", "FLOP/B", Unit::Number),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("bytes_per_s", "bytes/s", Unit::BytesPerSecond),
        Column::new("bound", "bound", Unit::Text),
        Column::new("of_roof", "of roof", Unit::Share),
        Column::new("beyond_ns", "beyond", Unit::Duration),
        Column::data("least_ns", Unit::Duration),
        Column::data("host_ns", Unit::Duration),
        Column::data("needed_flops", Unit::Count),
        Column::data("bytes", Unit::Bytes),
        Column::data("peak", Unit::Text),
        Column::data("on", Unit::Text),
        Column::data("family", Unit::Text),
        Column::data("type", Unit::Text),
        Column::data("kernel", Unit::Text),
        Column::data("slowest_start_ns", Unit::Time),
        Column::data("slowest_ns", Unit::Duration),
        Column::data("operator", Unit::Text),
        Column::data("input_shapes", Unit::Text),
        Column::data("input_types", Unit::Text),
        Column::new("what", "operator and sizes", Unit::Name),
    ];
    let mut table = Table::new("roofline", "Distance to the roof", columns)
        .about(
            "over all ranks. bound: modelled from sizes and peaks, but for launch (the host's own \
             time is longer than the device's), bus and communication. of roof: least time over \
             time; beyond: time above it",
        )
        .empty(why_nothing_counts(parts));
    let has_peaks = parts.iter().any(|(_, part)| part.peaks.is_some());
    let has_work = parts.iter().any(|(_, part)| part.has_work);
    let collectives = collectives(parts);
    let of_operators = rows.iter().map(|(_, row)| row.timed().0);
    let of_collectives = collectives.iter().map(|(_, sums)| sums.time_ns);
    // If there is device work, operators that launched nothing are listed last and excluded from
    // the shares.
    let is_shown = |row: &Row| row.launched > 0 || !has_work;
    let all: u64 = of_operators
        .zip(rows)
        .filter(|(_, (_, row))| is_shown(row))
        .map(|(time, _)| time)
        .chain(of_collectives)
        .sum();
    let share = |time: u64| Cell::applies((all > 0).then(|| time as f64 / all as f64));
    let mut lines: Vec<(bool, u64, Vec<Cell>)> = Vec::new();
    for (key, row) in rows {
        let (time_ns, runs) = row.timed();
        let needed = row.work.needed.saturating_mul(runs);
        let bytes = row.work.bytes().and_then(|one| one.checked_mul(runs));
        let rate = per_second(needed, time_ns);
        let intensity = row.work.bytes().filter(|bytes| *bytes > 0);
        let intensity = intensity.map(|bytes| row.work.needed as f64 / bytes as f64);
        let on_host = row.launched == 0 && has_work;
        let least = row.least.both().filter(|_| !row.crosses && !on_host && time_ns > 0);
        let why = why(row, has_peaks, has_work);
        let cells = vec![
            time_ns.into(),
            if on_host { Cell::Empty } else { share(time_ns) },
            runs.into(),
            Cell::known(intensity, NO_BYTES),
            Cell::known(rate, NO_TIME),
            tera(rate, NO_TIME),
            Cell::known(bytes.and_then(|all| per_second(all, time_ns)), NO_BYTES),
            Cell::known(row.bound().filter(|_| !on_host).map(RoofBound::word), why),
            Cell::known(least.map(|least| least / time_ns as f64), why),
            Cell::known(least.map(|least| time_ns.saturating_sub(least as u64)), why),
            Cell::known(least.map(|least| least as u64), why),
            row.host_ns.into(),
            needed.into(),
            Cell::known(bytes, NO_BYTES),
            Cell::known((!row.least.peak.is_empty()).then_some(row.least.peak), NO_PEAKS),
            if row.launched > 0 { "device" } else { "host" }.into(),
            row.work.family.name().into(),
            Cell::known(row.work.of.map(|of| of.name()), "the trace has no types"),
            Cell::known(row.longest.as_ref().map(|(_, name)| name.as_str()), NO_KERNEL),
            row.slowest.0.into(),
            row.slowest.1.into(),
            key.operator.as_str().into(),
            key.dims.as_str().into(),
            key.types.as_str().into(),
            shape_text(key, row).into(),
        ];
        lines.push((on_host, time_ns, cells));
    }
    for (what, sums) in &collectives {
        lines.push((false, sums.time_ns, collective(what, sums, share(sums.time_ns))));
    }
    lines.sort_rows_by_key(|(on_host, time, _)| (*on_host, Reverse(*time)));
    lines.into_iter().for_each(|(.., cells)| table.row(cells));
    table
}

const NO_KERNEL: &str = "no kernel of it was recorded";

/// A collective: operation, type of elements, bytes, number of ranks.
type Collective = (String, String, Option<u64>, Option<u32>);

fn collectives(parts: &[(RankContext, RankFlops)]) -> Vec<(Collective, CollectiveSums)> {
    let mut all: BTreeMap<&Collective, CollectiveSums> = BTreeMap::new();
    for (what, sums) in parts.iter().flat_map(|(_, part)| &part.collectives) {
        all.entry(what).or_default().add(sums);
    }
    // Without operators, this report has no collectives either; `report comm` shows them.
    let any = parts.iter().any(|(_, part)| !part.rows.is_empty());
    all.into_iter().filter(|_| any).map(|(what, sums)| (what.clone(), sums)).collect()
}

fn collective(what: &Collective, sums: &CollectiveSums, share: Cell) -> Vec<Cell> {
    let (operation, of, bytes, ranks) = what;
    let all = bytes.and_then(|bytes| bytes.checked_mul(sums.runs));
    let (time_ns, least) = (sums.time_ns, sums.least_ns.ok());
    let why = sums.least_ns.err().unwrap_or(NO_TIME);
    let mut text = operation.clone();
    if !of.is_empty() {
        text += &format!(" {of}");
    }
    if let Some(bytes) = bytes {
        text += &format!(" {}", tprof_facts::units::bytes(*bytes));
    }
    if let Some(ranks) = ranks {
        text += &format!(" over {ranks} ranks");
    }
    const NO_SIZE: &str = "the size of its message was not recorded";
    vec![
        sums.time_ns.into(),
        share,
        sums.runs.into(),
        Cell::Empty,
        Cell::missing(NO_OPERATIONS),
        Cell::missing(NO_OPERATIONS),
        Cell::known(all.and_then(|all| per_second(all, sums.time_ns)), NO_SIZE),
        RoofBound::Communication.word().into(),
        Cell::known(least.filter(|_| time_ns > 0).map(|least| least / time_ns as f64), why),
        Cell::known(least.map(|least| time_ns.saturating_sub(least as u64)), why),
        Cell::known(least.map(|least| least as u64), why),
        Cell::Empty,
        Cell::missing(NO_OPERATIONS),
        Cell::known(all, NO_SIZE),
        Cell::known(least.map(|_| "link"), why),
        "device".into(),
        "collective".into(),
        of.as_str().into(),
        Cell::missing("see `report comm`"),
        Cell::Empty,
        Cell::Empty,
        operation.as_str().into(),
        "".into(),
        "".into(),
        text.into(),
    ]
}

/// Makes the table of time by bound.
fn bounds(parts: &[(RankContext, RankFlops)], rows: &[(SizesKey, Row)]) -> Table {
    let columns = vec![
        Column::new("bound", "bound", Unit::Text),
        Column::new("time_ns", "time", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("least_ns", "least", Unit::Duration),
        Column::new("of_roof", "of roof", Unit::Share),
    ];
    let mut table = Table::new("bounds", "Time by bound", columns).empty(why_nothing_counts(parts));
    let has_work = parts.iter().any(|(_, part)| part.has_work);
    let mut sums: BTreeMap<&'static str, (u64, Option<f64>)> = BTreeMap::new();
    for (_, row) in rows.iter().filter(|(_, row)| row.launched > 0 || !has_work) {
        let word = row.bound().map_or("unknown", RoofBound::word);
        let sum = sums.entry(word).or_insert((0, Some(0.0)));
        sum.0 += row.timed().0;
        let least = row.least.both().filter(|_| !row.crosses);
        sum.1 = sum.1.zip(least).map(|(a, b)| a + b);
    }
    for (_, of) in collectives(parts) {
        let sum = sums.entry(RoofBound::Communication.word()).or_insert((0, Some(0.0)));
        sum.0 += of.time_ns;
        sum.1 = sum.1.zip(of.least_ns.ok()).map(|(a, b)| a + b);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_rows_by_key(|(_, (time, _))| Reverse(*time));
    let all: u64 = sums.iter().map(|(_, (time, _))| time).sum();
    for (word, (time, least)) in sums {
        let why = match word {
            "communication" => NO_LEAST,
            "bus" => CROSSES,
            _ => "the least time of an operator is not known",
        };
        table.row(vec![
            word.into(),
            time.into(),
            Cell::applies((all > 0).then(|| time as f64 / all as f64)),
            Cell::known(least.map(|least| least as u64), why),
            Cell::known(least.filter(|_| time > 0).map(|least| least / time as f64), why),
        ]);
    }
    table
}

/// Makes the table of the roofs: one for each device and each type that its operators use.
fn peaks(parts: &[(RankContext, RankFlops)]) -> Table {
    let columns = vec![
        Column::new("device", "device", Unit::Text),
        Column::new("peak", "type", Unit::Text),
        Column::data("flops_per_s", Unit::Number),
        Column::new("rate", "TFLOP/s", Unit::Text),
        Column::new("bytes_per_s", "bytes/s", Unit::BytesPerSecond),
        Column::new("ridge", "ridge FLOP/B", Unit::Number),
        Column::new("source", "source", Unit::Name),
    ];
    let mut table = Table::new("peaks", "Peaks", columns)
        .about("of dense matrices; ridge: the intensity above which operations take longer")
        .empty(match parts.iter().all(|(_, part)| part.rows.is_empty()) {
            true => why_nothing_counts(parts),
            false => NO_PEAKS,
        });
    let mut known: Vec<(String, Peaks)> = Vec::new();
    for (_, part) in parts.iter().filter(|(_, part)| !part.rows.is_empty()) {
        let Some(peaks) = part.peaks else { continue };
        let name = match part.device.as_str() {
            "" if !part.has_work => "host",
            name => name,
        };
        if !known.iter().any(|(device, of)| device == name && *of == peaks) {
            known.push((name.to_owned(), peaks));
        }
    }
    for (device, peaks) in known {
        let mut used: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, row) in parts.iter().flat_map(|(_, part)| &part.rows) {
            let kernel = row.longest.as_ref().is_some_and(|(_, name)| is_tf32(name));
            if let Some((value, name)) = peaks.compute(&row.work, kernel) {
                let known = used.entry(name).or_insert(value);
                *known = known.max(value);
            }
        }
        for (name, value) in used {
            table.row(vec![
                device.as_str().into(),
                name.into(),
                value.into(),
                tera(Some(value), ""),
                Cell::known(peaks.memory, NO_PEAKS),
                Cell::known(peaks.memory.map(|memory| value / memory), NO_PEAKS),
                peaks.source.into(),
            ]);
        }
    }
    table
}

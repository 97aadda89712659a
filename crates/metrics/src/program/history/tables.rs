//! Makes the tables of the report `history`.

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::history::{Energy, EnergySources, word};
use tprof_facts::units;
use tprof_trace::model::HistoryRow;

use super::cells::{Cell as Stretch, Cells, Part, quantile};
use super::figures::{Figure, FigureUnit};
use super::ranks::{JointChange, joint_changes, late_rank};
use super::summary::RankHistory;

/// About how many rows the table over time has.
const STRETCHES: u64 = 40;

const NO_ROWS: &str = "the run has no rank with steps, readings or device work";
const NO_CHANGE: &str = "no figure changed for good, and no step was extreme";
const ALL_ROWS: &str = "all rows of a rank: --json with --rank N";
const NO_STEPS: &str = "no steps are known";
const NO_DEVICE: &str = "no work of a device was recorded";
const NO_OPERATION: &str = "no operation between ranks was recorded";
const NO_BYTES: &str = "the bytes of some of these operations are not known";
const NO_CPU: &str = "the CPU time of the processes was not read";
const NO_READING: &str = "it was not read in this time";
const NO_MEANS: &str = "the devices did not tell it in this time: `tprof report gpu` says why";
const NO_OTHERS: &str = "it needs two ranks with operations between ranks";

pub(super) fn body(parts: &[(RankContext, RankHistory)]) -> Body {
    let changes = joint_changes(parts);
    let tables = vec![
        ranks_table(parts, &changes),
        over_time(parts),
        changes_table(&changes),
        rows_table(parts),
    ];
    Body { tables, notes: notes(parts) }
}

fn notes(parts: &[(RankContext, RankHistory)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (at, part) in parts.iter().filter(|(_, part)| part.count > 0) {
        if part.computed == part.count {
            notes.push(format!(
                "{}: the recording kept no figures of steps, so they are computed from its events; \
                 CPU time is not known",
                at.label
            ));
        } else if part.computed > 0 {
            notes.push(format!(
                "{}: the last {} were not written when the recording was cut off, and are computed \
                 from its events",
                at.label,
                units::counted(part.computed as u64, "row", "rows")
            ));
        }
        if part.late_ns > 0 {
            notes.push(format!(
                "{}: {} of device work came after its rows were written, and are in none",
                at.label,
                units::duration(part.late_ns)
            ));
        }
        if part.steps == 0 {
            notes.push(format!(
                "{}: no steps are known; rows are stretches of time. A mark, an NVTX range `step N` \
                 or torch.profiler's steps name them",
                at.label
            ));
        }
        if part.sources.len() > 1 {
            let words: Vec<&str> = part.sources.iter().map(|of| word(*of)).collect();
            notes.push(format!(
                "{}: steps come from {}: their numbers and times do not compare",
                at.label,
                words.join(", then ")
            ));
        }
    }
    notes
}

fn ranks_table(parts: &[(RankContext, RankHistory)], changes: &[JointChange<'_>]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("steps", "steps", Unit::Count),
        Column::new("median_ns", "median", Unit::Duration),
        Column::new("most_ns", "95 %", Unit::Duration),
        Column::new("longest_ns", "slowest", Unit::Duration),
        Column::new("longest_step", "its step", Unit::Id),
        Column::data("longest_at_ns", Unit::Time),
        Column::data("energy_joules", Unit::Number),
        Column::data("energy_source", Unit::Text),
        Column::data("step_energy_joules", Unit::Number),
        Column::new("changes", "changes", Unit::Count),
        Column::data("from_ns", Unit::Time),
        Column::data("until_ns", Unit::Time),
        Column::data("rows", Unit::Count),
        Column::data("computed_rows", Unit::Count),
        Column::new("source", "steps from", Unit::Name),
    ];
    let mut table = Table::new("history", "The whole job, by rank", columns)
        .about("changes: those that are listed below")
        .empty(NO_ROWS);
    for (at, part) in parts.iter().filter(|(_, part)| part.count > 0) {
        let energy = part.cells.each().filter_map(|(_, cell)| cell.energy).reduce(Energy::plus);
        let of_step =
            part.step_energy.map(|energy| energy.joules / part.energy_steps.max(1) as f64);
        let of_rank = changes.iter().filter(|change| change.ranks.contains(&&*at.label));
        let (from_ns, until_ns) = part.extent_ns.unwrap_or_default();
        let last = part.sources.last().copied().unwrap_or_default();
        table.row(vec![
            at.label.as_str().into(),
            part.steps.into(),
            Cell::known(part.median_ns, NO_STEPS),
            Cell::known(part.most_ns, NO_STEPS),
            Cell::known(part.slowest.map(|slowest| slowest.0), NO_STEPS),
            Cell::known(part.slowest.map(|slowest| slowest.1), NO_STEPS),
            Cell::known(part.slowest.map(|slowest| slowest.2), NO_STEPS),
            Cell::known(energy.map(|energy| energy.joules), NO_READING),
            source(energy),
            Cell::known(of_step, if part.steps == 0 { NO_STEPS } else { NO_READING }),
            of_rank.count().into(),
            from_ns.into(),
            until_ns.into(),
            part.count.into(),
            part.computed.into(),
            word(last).into(),
        ]);
    }
    table
}

/// Returns what an energy comes from, as a cell.
fn source(energy: Option<Energy>) -> Cell {
    let sources = energy.map_or(EnergySources::default(), |energy| energy.sources);
    Cell::known(sources.words(), NO_READING)
}

/// A stretch of time of all ranks.
struct Row<'a> {
    cells: Vec<&'a Stretch>,
}

impl Row<'_> {
    /// Returns the share that a part of the stretch has in all ranks together.
    fn share(&self, of: fn(&Stretch) -> Part) -> Option<f64> {
        self.part(of).share()
    }

    fn part(&self, of: fn(&Stretch) -> Part) -> Part {
        self.cells.iter().fold(Part::default(), |sum, cell| sum.plus(of(cell)))
    }

    /// Returns the sum over the ranks in which it is known.
    fn sum(&self, of: fn(&Stretch) -> Option<u64>) -> Option<u64> {
        self.cells.iter().filter_map(|cell| of(cell)).reduce(u64::saturating_add)
    }

    /// Returns the sum over ranks of a part's share of the time.
    fn sum_of_shares(&self, of: fn(&Stretch) -> Part) -> Option<f64> {
        self.cells.iter().filter_map(|cell| of(cell).share()).reduce(|a, b| a + b)
    }
}

fn over_time(parts: &[(RankContext, RankHistory)]) -> Table {
    let width_ns = parts.iter().map(|(_, part)| part.cells.width_ns()).max().unwrap_or(1);
    let places = |all: &[Cells]| {
        let places = all.iter().filter_map(Cells::places);
        places.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    };
    let widened = |width_ns: u64| -> Vec<Cells> {
        parts.iter().map(|(_, part)| part.cells.widened(width_ns)).collect()
    };
    let all = widened(width_ns);
    let (first, last) = places(&all).unwrap_or((0, 0));
    let width_ns = width_ns * ((last + 1 - first).div_ceil(STRETCHES)).max(1);
    let all = widened(width_ns);
    let (first, last) = places(&all).unwrap_or((1, 0));
    let mut rows = Vec::new();
    for place in first..=last {
        let cells: Vec<&Stretch> = all.iter().filter_map(|of| of.at(place)).collect();
        if !cells.is_empty() {
            rows.push(stretch(&Row { cells }, parts, (&all, place)));
        }
    }
    let columns = [
        Column::coarse_time("time_ns", "from"),
        Column::data("length_ns", Unit::Duration),
        Column::new("steps", "steps", Unit::Count),
        Column::new("median_ns", "median", Unit::Duration),
        Column::new("longest_ns", "slowest", Unit::Duration),
        Column::new("busy_share", "busy", Unit::Share),
        Column::data("compute_share", Unit::Share),
        Column::new("exposed_share", "exposed", Unit::Share),
        Column::data("copies_share", Unit::Share),
        Column::data("meeting_share", Unit::Share),
        Column::new("cpu_cores", "CPUs", Unit::Number),
        Column::new("heap_bytes", "heap", Unit::Bytes),
        Column::new("resident_bytes", "RSS", Unit::Bytes),
        Column::data("read_bytes", Unit::Bytes),
        Column::data("written_bytes", Unit::Bytes),
        Column::new("device_memory_bytes", "device", Unit::Bytes),
        Column::new("temperature_celsius", "max C", Unit::Number),
        Column::new("power_watts", "W", Unit::Number),
        Column::data("energy_joules", Unit::Number),
        Column::data("energy_source", Unit::Text),
        Column::data("sm_active", Unit::Share),
        Column::data("tensor_active", Unit::Share),
        Column::data("dram_bandwidth_utilization", Unit::Share),
        Column::data("throttle_reasons", Unit::Id),
        Column::data("throttled_ns", Unit::Duration),
        Column::new("late_share", "late by", Unit::Share),
        Column::new("late_rank", "late rank", Unit::Name),
    ];
    // What no row has takes no room in the text.
    let is_known = |at: usize| rows.iter().any(|row: &Vec<Cell>| row[at].value().is_some());
    let columns = columns.into_iter().enumerate();
    let columns = columns.map(|(at, column)| match is_known(at) {
        true => column,
        false => Column { heading: "", ..column },
    });
    let mut table = Table::new("over_time", "Over time", columns.collect())
        .about(
            "all ranks together; busy, exposed: shares of the steps in which devices work, and in \
             which they only communicate; late rank: the one that the others wait for",
        )
        .empty(NO_ROWS)
        .least_shown(STRETCHES as usize + 1);
    rows.into_iter().for_each(|row| table.row(row));
    table
}

fn stretch(
    row: &Row<'_>,
    parts: &[(RankContext, RankHistory)],
    (all, place): (&[Cells], u64),
) -> Vec<Cell> {
    let mut medians: Vec<(u64, u64)> =
        row.cells.iter().flat_map(|cell| cell.medians.iter().copied()).collect();
    let steps = row.cells.iter().map(|cell| cell.steps).max().unwrap_or(0);
    let longest = row.cells.iter().map(|cell| cell.longest_ns).max().filter(|_| steps > 0);
    let late = late_rank(all, place);
    let several = all.iter().filter_map(|of| of.at(place)?.meeting.share()).count() > 1;
    let late_cell = |cell: Option<Cell>| match (cell, several) {
        (Some(cell), _) => cell,
        (None, true) => Cell::Empty,
        (None, false) => Cell::missing(NO_OTHERS),
    };
    let reasons = row.cells.iter().filter_map(|cell| cell.throttle_reasons).reduce(|a, b| a | b);
    let energy = row.cells.iter().filter_map(|cell| cell.energy).reduce(Energy::plus);
    let millionths = |value: Option<f64>| Cell::known(value.map(|value| value / 1e6), NO_MEANS);
    let temperature = row.cells.iter().filter_map(|cell| cell.temperature_celsius).max();
    let bytes = |part: Part| part.sum().map(|sum| sum as u64);
    let extents = || row.cells.iter().filter_map(|cell| cell.extent_ns);
    let from_ns = extents().map(|(from_ns, _)| from_ns).min().unwrap_or(0);
    let until_ns = extents().map(|(_, until_ns)| until_ns).max().unwrap_or(from_ns);
    vec![
        from_ns.into(),
        (until_ns - from_ns).into(),
        steps.into(),
        Cell::known(quantile(&mut medians, 0.5), NO_STEPS),
        Cell::known(longest, NO_STEPS),
        Cell::known(row.share(|cell| cell.busy), NO_DEVICE),
        Cell::known(row.share(|cell| cell.compute), NO_DEVICE),
        Cell::known(row.share(|cell| cell.exposed), NO_DEVICE),
        Cell::known(row.share(|cell| cell.copies), NO_DEVICE),
        Cell::known(row.share(|cell| cell.meeting), NO_OPERATION),
        Cell::known(row.sum_of_shares(|cell| cell.cpu), NO_CPU),
        Cell::known(row.sum(|cell| cell.heap_bytes), NO_READING),
        Cell::known(row.sum(|cell| cell.resident_bytes), NO_READING),
        Cell::known(bytes(row.part(|cell| cell.read)), NO_READING),
        Cell::known(bytes(row.part(|cell| cell.written)), NO_READING),
        Cell::known(row.sum(|cell| cell.device_memory_bytes), NO_READING),
        Cell::known(temperature, NO_READING),
        Cell::known(row.sum_of_shares(|cell| cell.power).map(|power| power / 1e3), NO_READING),
        Cell::known(energy.map(|energy| energy.joules), NO_READING),
        source(energy),
        millionths(row.share(|cell| cell.sm_active)),
        millionths(row.share(|cell| cell.tensor_active)),
        millionths(row.share(|cell| cell.dram_bandwidth)),
        Cell::known(reasons, NO_READING),
        Cell::known(bytes(row.part(|cell| cell.throttled)), NO_READING),
        late_cell(late.map(|late| late.share.into())),
        late_cell(late.map(|late| parts[late.part].0.label.as_str().into())),
    ]
}

fn changes_table(changes: &[JointChange<'_>]) -> Table {
    let columns = vec![
        Column::coarse_time("from_ns", "from"),
        Column::coarse_time("until_ns", "until"),
        Column::new("step", "step", Unit::Id),
        Column::new("kind", "change", Unit::Text),
        Column::data("figure", Unit::Text),
        Column::new("figure_words", "figure", Unit::Text),
        Column::data("unit", Unit::Text),
        Column::data("before", Unit::Number),
        Column::data("spread", Unit::Number),
        Column::data("value", Unit::Number),
        Column::new("was", "was", Unit::Text),
        Column::new("is", "is", Unit::Text),
        Column::new("ranks", "ranks", Unit::Count),
        Column::new("rank", "rank", Unit::Name),
    ];
    let mut table = Table::new("changes", "What changed", columns)
        .about(
            "shift: the figure went to another level, and came back if there is a time under `until`; \
             drift: it moved slowly over the whole job; spike: one extreme step; was: the median \
             before, and its spread; of several ranks that changed at one time the first is named",
        )
        .empty(NO_CHANGE);
    for JointChange { ranks, most } in changes {
        let (figure, change) = (most.figure, &most.change);
        table.row(vec![
            most.from_ns.into(),
            Cell::applies(most.until_ns),
            Cell::applies(most.step),
            change.kind.word().into(),
            figure.key().into(),
            figure.words().into(),
            unit(figure).into(),
            change.before.into(),
            change.spread.into(),
            change.value.into(),
            format!("{} ± {}", figure.shown(change.before), figure.shown(change.spread)).into(),
            figure.shown(change.value).into(),
            ranks.len().into(),
            ranks[0].into(),
        ]);
    }
    table
}

fn unit(figure: Figure) -> &'static str {
    match figure.unit() {
        FigureUnit::Nanoseconds => "ns",
        FigureUnit::Share => "share",
        FigureUnit::Cores => "processors",
        FigureUnit::Bytes => "bytes",
        FigureUnit::Celsius => "celsius",
        FigureUnit::Watts => "watts",
        FigureUnit::Hertz => "hertz",
    }
}

fn rows_table(parts: &[(RankContext, RankHistory)]) -> Table {
    let columns = vec![
        Column::data("rank", Unit::Text),
        Column::data("start_ns", Unit::Time),
        Column::data("duration_ns", Unit::Duration),
        Column::data("source", Unit::Text),
        Column::data("first_step", Unit::Id),
        Column::data("steps", Unit::Count),
        Column::data("steps_ns", Unit::Duration),
        Column::data("shortest_ns", Unit::Duration),
        Column::data("median_ns", Unit::Duration),
        Column::data("longest_ns", Unit::Duration),
        Column::data("longest_step", Unit::Id),
        Column::data("devices", Unit::Count),
        Column::data("busy_ns", Unit::Duration),
        Column::data("compute_ns", Unit::Duration),
        Column::data("communication_ns", Unit::Duration),
        Column::data("exposed_communication_ns", Unit::Duration),
        Column::data("copied_bytes", Unit::Bytes),
        Column::data("collectives", Unit::Count),
        Column::data("collective_bytes", Unit::Bytes),
        Column::data("collective_ns", Unit::Duration),
        Column::data("cpu_ns", Unit::Duration),
        Column::data("heap_bytes", Unit::Bytes),
        Column::data("resident_bytes", Unit::Bytes),
        Column::data("read_bytes", Unit::Bytes),
        Column::data("written_bytes", Unit::Bytes),
        Column::data("storage_read_bytes", Unit::Bytes),
        Column::data("storage_written_bytes", Unit::Bytes),
        Column::data("device_memory_bytes", Unit::Bytes),
        Column::data("temperature_celsius", Unit::Number),
        Column::data("power_watts", Unit::Number),
        Column::data("sm_clock_hz", Unit::Number),
        Column::data("throttle_reasons", Unit::Id),
        Column::data("throttled_ns", Unit::Duration),
        Column::data("energy_joules", Unit::Number),
        Column::data("energy_source", Unit::Text),
        Column::data("sm_active", Unit::Share),
        Column::data("tensor_active", Unit::Share),
        Column::data("dram_bandwidth_utilization", Unit::Share),
    ];
    let mut table = Table::new("rows", "Rows", columns).view(View::Data).empty(ALL_ROWS);
    for (at, part) in parts {
        for (time_ns, row) in &part.rows {
            table.row(cells_of(&at.label, *time_ns, row));
        }
    }
    table
}

fn cells_of(label: &str, time_ns: u64, row: &HistoryRow) -> Vec<Cell> {
    let of_steps = |value: u64| Cell::applies((row.steps > 0).then_some(value));
    let device = |value: Option<u64>| Cell::known(value, NO_DEVICE);
    let read = |value: Option<u64>| Cell::known(value, NO_READING);
    let energy = Energy::of(row);
    let millionths =
        |value: Option<u64>| Cell::known(value.map(|value| value as f64 / 1e6), NO_MEANS);
    let bytes = match row.collectives {
        Some(_) => Cell::known(row.collective_bytes, NO_BYTES),
        None => Cell::missing(NO_OPERATION),
    };
    vec![
        label.into(),
        time_ns.into(),
        row.duration_ns.into(),
        word(row.source).into(),
        of_steps(row.first_step),
        row.steps.into(),
        row.steps_ns.into(),
        of_steps(row.shortest_ns),
        of_steps(row.median_ns),
        of_steps(row.longest_ns),
        of_steps(row.longest_step),
        device(row.devices.map(u64::from)),
        device(row.busy_ns),
        device(row.compute_ns),
        device(row.communication_ns),
        device(row.exposed_communication_ns),
        device(row.copied_bytes),
        Cell::known(row.collectives, NO_OPERATION),
        bytes,
        Cell::known(row.collective_ns, NO_OPERATION),
        Cell::known(row.cpu_ns, NO_CPU),
        read(row.heap_bytes),
        read(row.resident_bytes),
        read(row.read_bytes),
        read(row.written_bytes),
        read(row.storage_read_bytes),
        read(row.storage_written_bytes),
        read(row.device_memory_bytes),
        read(row.temperature_celsius),
        Cell::known(row.power_milliwatts.map(|power| power as f64 / 1e3), NO_READING),
        read(row.sm_clock_hz),
        read(row.throttle_reasons),
        read(row.throttled_ns),
        Cell::known(energy.map(|energy| energy.joules), NO_READING),
        source(energy),
        millionths(row.sm_active_millionths),
        millionths(row.tensor_active_millionths),
        millionths(row.dram_bandwidth_millionths),
    ]
}

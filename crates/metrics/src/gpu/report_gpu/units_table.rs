//! Makes the tables of what the units and links of devices did, over the whole run and in the steps.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_facts::history::EnergySources;
use tprof_rank::RankTrace;
use tprof_rank::base::intervals::Cover;
use tprof_trace::model::counter::*;

use super::activity::{Activity, uuid_of};
use super::device::DeviceSamples;
use super::samples::HostSamples;

const NO_STEPS: &str = "no steps are known";
const TOO_FEW: &str = "the energy is known for less than half of the steps";

/// The judged time of a device that a rank uses.
pub struct JudgedDevice {
    uuid: String,
    steps: usize,
    judged: Cover,
}

impl JudgedDevice {
    /// Returns the judged time of each device of a rank whose UUID is known.
    pub(super) fn of(rank: &RankTrace<'_>) -> Vec<JudgedDevice> {
        let of_window = |window: tprof_rank::DeviceWindow| {
            let uuid = uuid_of(rank.file, window.device?)?.to_owned();
            Some(JudgedDevice { uuid, steps: window.steps, judged: window.judged })
        };
        rank.device_windows().into_iter().filter_map(of_window).collect()
    }
}

/// The judged time of the devices of a rank.
pub(super) struct JudgedRank {
    pub(super) rank: String,
    pub(super) host: String,
    pub(super) devices: Vec<JudgedDevice>,
}

/// A part of the time of a device.
struct Part<'a> {
    words: &'static str,
    rank: Option<&'a str>,
    steps: Option<usize>,
    activity: Activity,
}

/// A part of the time of a device, with its place in the tables.
struct PlacedPart<'a> {
    host: &'a str,
    gpu: u32,
    part: Part<'a>,
}

/// Makes the tables of units and of links, and notes on devices that don't tell what their units do.
pub(super) fn units_tables(
    hosts: &BTreeMap<&str, HostSamples<'_>>,
    judged: &[JudgedRank],
    why: &str,
) -> ([Table; 2], Vec<String>) {
    let mut parts = Vec::new();
    let mut notes: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (host, read) in hosts {
        for facts in read.devices() {
            let device = DeviceSamples { host: read, facts };
            let Some(readings) = device.readings_of_units() else { continue };
            if let Some(why) = facts["no_means"].as_str() {
                notes.entry((*host, why)).or_default().push(device.index().to_string());
            }
            let whole = readings.within(&readings.extent());
            let whole = Part { words: "run", rank: None, steps: None, activity: whole };
            let of_ranks = judged.iter().filter(|of| of.host == *host).flat_map(|rank| {
                let same = rank.devices.iter().filter(|of| facts["uuid"] == *of.uuid);
                same.map(|of| Part {
                    words: if of.steps > 0 { "steps" } else { "work" },
                    rank: Some(&rank.rank),
                    steps: Some(of.steps),
                    activity: readings.within(&of.judged),
                })
            });
            let all = [whole].into_iter().chain(of_ranks);
            let known = all.filter(|part| part.activity.is_known());
            parts.extend(known.map(|part| PlacedPart { host, gpu: device.index(), part }));
        }
    }
    let has_devices = hosts.values().any(|host| host.devices().next().is_some());
    let why = if has_devices {
        "the devices told neither what their units do nor their energy"
    } else {
        why
    };
    let units = table(
        Table::new("units", "What the GPUs' units did", unit_columns()).about(
            "by the GPUs, as means over samples in the whole run and within the steps; SMs: with any \
             work; warps: of the most possible; DRAM: of the highest bandwidth; J: energy",
        ),
        parts.iter().map(unit_cells).collect(),
        why,
    );
    let links = table(
        Table::new("links", "What went over the GPUs' links", link_columns())
            .about("a second, by the GPUs, as means over the same samples"),
        parts.iter().filter(|of| has_links(&of.part.activity)).map(link_cells).collect(),
        why,
    );
    let note = |((host, why), gpus): ((&str, &str), Vec<String>)| {
        let word = if gpus.len() > 1 { "GPUs" } else { "GPU" };
        format!("{host}: what the units of {word} {} did is not known: {why}", gpus.join(", "))
    };
    ([units, links], notes.into_iter().map(note).collect())
}

/// Adds rows to a table. What no row has takes no room in the text.
fn table(mut table: Table, rows: Vec<Vec<Cell>>, why: &str) -> Table {
    for (at, column) in table.columns.iter_mut().enumerate() {
        if !rows.iter().any(|row| row[at].value().is_some()) {
            column.heading = "";
        }
    }
    rows.into_iter().for_each(|row| table.row(row));
    table.empty(why)
}

/// The means that belong to links.
const LINKS: [&str; 4] = [GPU_PCIE_RECEIVED, GPU_PCIE_SENT, GPU_NVLINK_RECEIVED, GPU_NVLINK_SENT];

fn has_links(activity: &Activity) -> bool {
    LINKS.iter().any(|name| activity.mean(name).is_some())
}

fn means<'a>(
    activity: &'a Activity,
    names: impl IntoIterator<Item = &'static str> + 'a,
) -> impl Iterator<Item = Cell> + 'a {
    names.into_iter().map(|name| match &activity.means[name] {
        Ok(mean) => Cell::from(*mean),
        Err(why) => Cell::missing(why),
    })
}

fn unit_columns() -> Vec<Column> {
    vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("part", "in", Unit::Text),
        Column::data("window_ns", Unit::Duration),
        Column::new("sampled_ns", "sampled", Unit::Duration),
        Column::new("sm_active", "SMs", Unit::Share),
        Column::new("sm_occupancy", "warps", Unit::Share),
        Column::new("tensor_active", "tensor", Unit::Share),
        Column::data("tensor_hmma_active", Unit::Share),
        Column::data("tensor_imma_active", Unit::Share),
        Column::data("tensor_dfma_active", Unit::Share),
        Column::new("dram_bandwidth_utilization", "DRAM", Unit::Share),
        Column::data("fp64_active", Unit::Share),
        Column::data("fp32_active", Unit::Share),
        Column::data("fp16_active", Unit::Share),
        Column::data("integer_active", Unit::Share),
        Column::new("dram_read_bytes_per_second", "DRAM read", Unit::BytesPerSecond),
        Column::new("dram_written_bytes_per_second", "DRAM written", Unit::BytesPerSecond),
        Column::data("energy_joules", Unit::Number),
        Column::data("energy_source", Unit::Text),
        Column::data("energy_known_ns", Unit::Duration),
        Column::data("steps", Unit::Count),
        Column::new("step_energy_joules", "J/step", Unit::Number),
        Column::new("rank", "rank", Unit::Name),
    ]
}

fn link_columns() -> Vec<Column> {
    vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("part", "in", Unit::Text),
        Column::new("pcie_rx_bytes_per_second", "PCIe in", Unit::BytesPerSecond),
        Column::new("pcie_tx_bytes_per_second", "PCIe out", Unit::BytesPerSecond),
        Column::new("nvlink_rx_bytes_per_second", "NVLink in", Unit::BytesPerSecond),
        Column::new("nvlink_tx_bytes_per_second", "NVLink out", Unit::BytesPerSecond),
        Column::new("rank", "rank", Unit::Name),
    ]
}

fn link_cells(PlacedPart { host, gpu, part }: &PlacedPart<'_>) -> Vec<Cell> {
    let mut cells = vec![(*host).into(), (*gpu).into(), part.words.into()];
    cells.extend(means(&part.activity, LINKS));
    cells.push(Cell::applies(part.rank));
    cells
}

fn unit_cells(PlacedPart { host, gpu, part }: &PlacedPart<'_>) -> Vec<Cell> {
    let activity = &part.activity;
    let energy = activity.energy.map(|(energy, _)| energy);
    let source = energy.map_or(EnergySources::default(), |energy| energy.sources).words();
    let mut cells = vec![
        (*host).into(),
        (*gpu).into(),
        part.words.into(),
        activity.window_ns.into(),
        activity.sampled_ns.into(),
    ];
    cells.extend(means(activity, GPU_MEANS.into_iter().filter(|name| !LINKS.contains(name))));
    cells.extend(means(activity, GPU_DRAM_BYTES));
    let no_energy = &activity.no_energy;
    let of_step = match part.steps {
        None => Cell::Empty,
        Some(0) => Cell::missing(NO_STEPS),
        Some(_) if energy.is_none() => Cell::missing(no_energy),
        Some(steps) => Cell::known(activity.of_step(steps), TOO_FEW),
    };
    cells.extend([
        Cell::known(energy.map(|energy| energy.joules), no_energy),
        Cell::known(source, no_energy),
        activity.energy.map_or(0, |(_, time_ns)| time_ns).into(),
        Cell::applies(part.steps),
        of_step,
        Cell::applies(part.rank),
    ]);
    cells
}

//! Divides a device's time: compute, communication, copies, idle.
//!
//! Five parts add up to the time of the device's steps, or without steps, to the time from the
//! first work's start to the last work's end. Communication and copies cost no extra time while the
//! device computes. So communication counts as exposed only while nothing computes, and a copy
//! counts only while nothing computes or communicates.

use tprof_document::over_ranks::{RankShare, over_ranks};
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Busy, DeviceWindow, Needs, RankTrace, WINDOW_NEEDS};

use crate::gpu::host_overlap::{self, HostDeviceOverlap};
use crate::gpu::outside::{self, OutsidePart};

/// The reason that reports give when there is no device work.
pub const NO_WORK: &str = "no kernel, copy or memset was recorded; `tprof doctor` checks \
                                  whether a GPU can be recorded here";

/// The report `breakdown`.
pub const KIND: DocumentKind = DocumentKind {
    name: "breakdown",
    about: "GPU time: compute, communication, copies, idle",
    analysis: || boxed(Breakdown),
};

/// The time of one device, by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTime {
    /// The device; `None` if all devices of the rank count as one.
    pub device: Option<u32>,
    /// Number of the device's steps in the window; 0 if there are none.
    pub steps: usize,
    /// Length of the device's steps, ns; without steps, from the first work's start to the last
    /// work's end.
    pub window_ns: u64,
    /// Time with compute and without communication, ns.
    pub compute_ns: u64,
    /// Time with compute and communication at once, ns.
    pub overlapped_ns: u64,
    /// Time in which communication runs without compute, ns.
    pub exposed_ns: u64,
    /// Time in which copies and memsets run, without compute and communication, ns.
    pub copies_ns: u64,
    /// Time of work without a class, ns; only Holistic Trace Analysis's reading has such work.
    pub other_ns: u64,
    /// Time in which nothing runs, ns.
    pub idle_ns: u64,
}

impl DeviceTime {
    /// Time in which something computed, ns.
    pub fn computing_ns(&self) -> u64 {
        self.compute_ns + self.overlapped_ns
    }

    /// Returns a part as a share of the window.
    fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.window_ns.max(1) as f64
    }
}

/// Divides the time of each of a rank's devices.
pub fn of_rank(rank: &RankTrace<'_>) -> Vec<DeviceTime> {
    let of_device = |(busy, window): (Busy, DeviceWindow)| {
        let kernels = busy.compute.union(&busy.communication);
        let classed = kernels.union(&busy.memory);
        let window_ns = window.length();
        let overlapped_ns = busy.compute.shared(&busy.communication);
        DeviceTime {
            device: busy.device,
            steps: window.steps,
            window_ns,
            compute_ns: busy.compute.length() - overlapped_ns,
            overlapped_ns,
            exposed_ns: busy.communication.length() - overlapped_ns,
            copies_ns: classed.length() - kernels.length(),
            other_ns: busy.any.length() - classed.length(),
            idle_ns: window_ns - busy.any.length(),
        }
    };
    rank.judged_devices().into_iter().map(of_device).collect()
}

/// Returns the time of a rank's devices outside of their steps, by part.
fn outside(rank: &RankTrace<'_>) -> Vec<(Option<u32>, OutsidePart)> {
    let devices = rank.devices().iter().filter(|busy| busy.window().is_some());
    let parts = devices.zip(rank.device_windows()).map(|(busy, window)| {
        let parts = outside::parts(busy, &window);
        parts.into_iter().map(move |part| (window.device, part))
    });
    parts.flatten().collect()
}

/// The data that the report shows of one rank.
struct RankTime {
    devices: Vec<DeviceTime>,
    outside: Vec<(Option<u32>, OutsidePart)>,
    at_once: Option<HostDeviceOverlap>,
}

/// Use of device time: `tprof report breakdown`.
struct Breakdown;

impl Analysis for Breakdown {
    const KIND: &'static str = KIND.name;
    type Part = RankTime;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS | host_overlap::NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        let (devices, outside) = (of_rank(rank), outside(rank));
        RankTime { devices, outside, at_once: host_overlap::of_rank(rank) }
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let mut rows: Vec<(&RankContext, DeviceTime)> = parts
            .iter()
            .flat_map(|(at, part)| part.devices.iter().map(move |row| (at, *row)))
            .collect();
        rows.sort_rows_by(|a, b| b.1.share(b.1.idle_ns).total_cmp(&a.1.share(a.1.idle_ns)));
        let mut tables = vec![table(&rows)];
        if rows.len() > 1 {
            tables.insert(0, parts_over_ranks(&rows));
        }
        let outside = parts.iter().flat_map(|(at, part)| {
            part.outside.iter().map(move |(device, part)| (at, *device, *part))
        });
        tables.push(outside::table(&outside.collect::<Vec<_>>()));
        let at_once = parts.iter().filter_map(|(at, part)| Some((at, part.at_once?)));
        tables.push(host_overlap::table(at_once, NO_WORK));
        Body { tables, notes: Vec::new() }
    }
}

fn table(rows: &[(&RankContext, DeviceTime)]) -> Table {
    let has_steps = rows.iter().any(|(_, row)| row.steps > 0);
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::device(rows.iter().map(|(_, row)| row.device)),
        Column::new("steps", if has_steps { "steps" } else { "" }, Unit::Count),
        Column::new("window_ns", "time", Unit::Duration),
        Column::new("compute_share", "compute", Unit::Share),
        Column::new("overlapped_share", "overlapped", Unit::Share),
        Column::new("exposed_share", "exposed", Unit::Share),
        Column::new("copies_share", "copies", Unit::Share),
        Column::new("idle_share", "idle", Unit::Share),
        Column::data("compute_ns", Unit::Duration),
        Column::data("overlapped_ns", Unit::Duration),
        Column::data("exposed_ns", Unit::Duration),
        Column::data("copies_ns", Unit::Duration),
        Column::data("other_ns", Unit::Duration),
        Column::data("idle_ns", Unit::Duration),
    ];
    let time = match has_steps {
        true => "in the steps, as devices did them",
        false => "from the first kernel or copy to the last",
    };
    let mut table = Table::new("breakdown", "GPU time by rank", columns)
        .about(format!(
            "{time}; overlapped: communication with compute; exposed: communication without compute; \
             copies: with neither"
        ))
        .empty(NO_WORK);
    for (at, row) in rows {
        let share = |part_ns| Cell::from(row.share(part_ns));
        table.row(vec![
            at.label.as_str().into(),
            Cell::applies(row.device),
            row.steps.into(),
            row.window_ns.into(),
            share(row.compute_ns),
            share(row.overlapped_ns),
            share(row.exposed_ns),
            share(row.copies_ns),
            share(row.idle_ns),
            row.compute_ns.into(),
            row.overlapped_ns.into(),
            row.exposed_ns.into(),
            row.copies_ns.into(),
            row.other_ns.into(),
            row.idle_ns.into(),
        ]);
    }
    table
}

fn parts_over_ranks(rows: &[(&RankContext, DeviceTime)]) -> Table {
    let part = |name, of: fn(&DeviceTime) -> u64| RankShare {
        name,
        shares: rows.iter().map(|(at, row)| (row.share(of(row)), at.label.as_str())).collect(),
    };
    over_ranks(
        "over_ranks",
        "GPU time over ranks",
        &[
            part("compute", |row| row.compute_ns),
            part("overlapped", |row| row.overlapped_ns),
            part("exposed", |row| row.exposed_ns),
            part("copies", |row| row.copies_ns),
            part("idle", |row| row.idle_ns),
        ],
    )
}

//! Measures how much of the communication is hidden by compute.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_document::over_ranks::{RankShare, over_ranks};
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_rank::base::names::{Names, short};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Busy, Class, DeviceWindow, Needs, RankTrace, WINDOW_NEEDS};

use crate::gpu::breakdown::NO_WORK;
use crate::gpu::outside::{self, OutsideWork};

/// The report `overlap`.
pub const KIND: DocumentKind = DocumentKind {
    name: "overlap",
    about: "communication hidden by compute, and the rest",
    analysis: || boxed(Overlap::default()),
};

/// The reason that the report gives for an unknown share of hidden communication.
const NO_KERNEL: &str = "no communication kernel was recorded";
/// The reason that the report gives if a rank communicates only outside of its steps.
pub const ONLY_OUTSIDE: &str = "no communication kernel lies in the steps, only outside";
const NO_COMMUNICATION: &str = "that device ran no communication kernel in its window";

/// The communication of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOverlap {
    /// The device; `None` if all devices of the rank count as one.
    pub device: Option<u32>,
    /// Time in which something communicated, ns.
    pub communication_ns: u64,
    /// The part of `communication_ns` in which something computed too, ns.
    pub hidden_ns: u64,
    /// Length of the device's steps, ns; without steps, from the first work's start to the last
    /// work's end.
    pub window_ns: u64,
    /// The kernels, most exposed first.
    pub kernels: Vec<KernelOverlap>,
}

impl DeviceOverlap {
    /// The share of communication that compute hides; `None` without communication.
    pub fn hidden_share(&self) -> Option<f64> {
        (self.communication_ns > 0).then(|| self.hidden_ns as f64 / self.communication_ns as f64)
    }

    fn exposed_ns(&self) -> u64 {
        self.communication_ns - self.hidden_ns
    }
}

/// Runs of one communication kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelOverlap {
    /// Name of the kernel.
    pub name: Arc<str>,
    /// Number of runs.
    pub count: u64,
    /// Sum of the durations, ns.
    pub total_ns: u64,
    /// Sum of the time in which no compute ran, ns. If several kernels communicate at once, the
    /// time counts for each of them.
    pub exposed_ns: u64,
}

/// Computes the overlap of each of a rank's devices.
pub fn of_rank(rank: &RankTrace<'_>, names: &Names) -> Vec<DeviceOverlap> {
    let (is_judged, work) = (rank.is_judged(), rank.work_by_device());
    let of_device = |(busy, window): (Busy, DeviceWindow)| {
        let computed = busy.compute.measure();
        let mut computed = computed.walk();
        let mut kernels: FxHashMap<_, KernelOverlap> = FxHashMap::default();
        let work = work.get(&busy.device).into_iter().flatten().map(|at| *at as usize);
        let judged = work.filter(|at| is_judged[*at]).map(|at| &rank.work[at]);
        for row in judged.filter(|row| row.class == Class::Communication) {
            let kernel = kernels.entry(row.name).or_insert_with(|| KernelOverlap {
                name: names.get(&rank.work_name(row)),
                count: 0,
                total_ns: 0,
                exposed_ns: 0,
            });
            kernel.count += 1;
            kernel.total_ns += row.duration_ns;
            kernel.exposed_ns += row.duration_ns - computed.within(row.interval());
        }
        DeviceOverlap {
            device: busy.device,
            communication_ns: busy.communication.length(),
            hidden_ns: busy.communication.shared(&busy.compute),
            window_ns: window.length(),
            kernels: kernels.into_values().collect(),
        }
    };
    rank.judged_devices().into_iter().map(of_device).collect()
}

/// Hidden communication: `tprof report overlap`.
#[derive(Default)]
struct Overlap {
    names: Names,
}

impl Analysis for Overlap {
    const KIND: &'static str = KIND.name;
    type Part = (Vec<DeviceOverlap>, OutsideWork);

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, _: &Options) -> Self::Part {
        (of_rank(rank, &self.names), OutsideWork::of(rank))
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, _: &Options) -> Body {
        let mut rows: Vec<(&RankContext, &DeviceOverlap)> = parts
            .iter()
            .flat_map(|(at, (part, _))| part.iter().map(move |row| (at, row)))
            .collect();
        rows.sort_rows_by_key(|(_, row)| std::cmp::Reverse(row.exposed_ns()));
        let any_outside = parts.iter().any(|(_, (_, outside))| outside.communicates);
        let mut tables = vec![table(&rows), by_kernel(&rows, any_outside)];
        let shares: Vec<(f64, &str)> = rows
            .iter()
            .filter_map(|(at, row)| Some((row.hidden_share()?, at.label.as_str())))
            .collect();
        if shares.len() > 1 {
            let part = RankShare { name: "hidden", shares };
            tables.insert(0, over_ranks("over_ranks", "Hidden communication over ranks", &[part]));
        }
        Body { tables, notes: outside::note(parts.iter().map(|(_, (_, outside))| *outside)) }
    }
}

fn table(rows: &[(&RankContext, &DeviceOverlap)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::device(rows.iter().map(|(_, row)| row.device)),
        Column::new("communication_ns", "communicates", Unit::Duration),
        Column::new("hidden_ns", "hidden", Unit::Duration),
        Column::new("exposed_ns", "exposed", Unit::Duration),
        Column::new("hidden_share", "hidden", Unit::Share),
        Column::new("exposed_of_window", "exposed of all", Unit::Share),
    ];
    let mut table = Table::new("overlap", "Communication hidden by compute", columns)
        .about("exposed of all: of the steps' time, else of that from the first kernel or copy to the last")
        .empty(NO_WORK);
    for (at, row) in rows {
        table.row(vec![
            at.label.as_str().into(),
            Cell::applies(row.device),
            row.communication_ns.into(),
            row.hidden_ns.into(),
            row.exposed_ns().into(),
            Cell::known(row.hidden_share(), NO_COMMUNICATION),
            (row.exposed_ns() as f64 / row.window_ns.max(1) as f64).into(),
        ]);
    }
    table
}

fn by_kernel(rows: &[(&RankContext, &DeviceOverlap)], any_outside: bool) -> Table {
    let columns = vec![
        Column::new("exposed_ns", "exposed", Unit::Duration),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("count", "runs", Unit::Count),
        Column::data("name", Unit::Name),
        Column::new("short_name", "kernel", Unit::Name),
    ];
    let mut kernels: FxHashMap<&Arc<str>, (u64, u64, u64)> = FxHashMap::default();
    for kernel in rows.iter().flat_map(|(_, row)| &row.kernels) {
        let sums = kernels.entry(&kernel.name).or_default();
        *sums = (sums.0 + kernel.exposed_ns, sums.1 + kernel.total_ns, sums.2 + kernel.count);
    }
    let mut kernels: Vec<_> = kernels.into_iter().collect();
    kernels.sort_rows_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let mut table = Table::new("by_kernel", "Exposed communication by kernel, all ranks", columns)
        .about("sums of durations: kernels that run at once each count")
        .empty(if any_outside { ONLY_OUTSIDE } else { NO_KERNEL });
    for (name, (exposed_ns, total_ns, count)) in kernels {
        table.row(vec![
            exposed_ns.into(),
            total_ns.into(),
            count.into(),
            (&**name).into(),
            short(name).into(),
        ]);
    }
    table
}

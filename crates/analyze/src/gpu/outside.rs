//! What devices did outside of the steps: reports on devices are of the steps where there are any, and say
//! what they leave out.

use tprof_facts::units::{count, duration};

use crate::base::intervals::Interval;
use crate::document::{Cell, Column, RankAt, Table, Unit};
use crate::rank::{Busy, DeviceWindow, RankTrace};

/// Kernels, copies and memsets of a rank that began outside of its devices' steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideWork {
    /// Whether the rank has steps: only then is anything left out.
    pub has_steps: bool,
    /// All that were recorded.
    pub all: u64,
    /// Those outside.
    pub outside: u64,
    /// The sum of their durations.
    pub outside_ns: u64,
}

impl OutsideWork {
    /// Of a rank.
    pub fn of(rank: &RankTrace<'_>) -> OutsideWork {
        let has_steps = rank.device_windows().iter().any(|window| window.steps > 0);
        let mut found =
            OutsideWork { has_steps, all: rank.work.len() as u64, ..OutsideWork::default() };
        let outside = rank.work.iter().zip(rank.is_judged()).filter(|(_, is_judged)| !is_judged);
        for (row, _) in outside {
            found.outside += 1;
            found.outside_ns += row.duration_ns;
        }
        found
    }
}

/// What reports say that leave out what ran outside of the steps; nothing where no rank has steps.
pub fn note(ranks: impl IntoIterator<Item = OutsideWork>) -> Vec<String> {
    let mut sum = OutsideWork::default();
    for of in ranks {
        sum.has_steps |= of.has_steps;
        sum.all += of.all;
        sum.outside += of.outside;
        sum.outside_ns += of.outside_ns;
    }
    let left_out = || {
        format!(
            "of the steps: {} of {} kernels and copies, {} in all, ran before, between or after them (`tprof \
             report breakdown` has their time)",
            count(sum.outside),
            count(sum.all),
            duration(sum.outside_ns)
        )
    };
    match (sum.has_steps, sum.outside) {
        (false, _) => Vec::new(),
        (true, 0) => vec!["of the steps; no kernel or copy ran outside of them".to_owned()],
        (true, _) => vec![left_out()],
    }
}

/// A part of a device's time outside of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePart {
    /// Which.
    pub name: &'static str,
    /// How long.
    pub window_ns: u64,
    /// Of it, when the device did anything.
    pub busy_ns: u64,
}

/// The parts of a device's time outside of its steps; nothing where all its time is judged.
pub fn parts(busy: &Busy, window: &DeviceWindow) -> Vec<OutsidePart> {
    if window.steps == 0 && window.span() == window.all {
        return Vec::new();
    }
    let within = |interval| busy.any.length_within(interval);
    let part = |name, interval: Interval| OutsidePart {
        name,
        window_ns: interval.length(),
        busy_ns: within(interval),
    };
    let between = window.between();
    let between = OutsidePart {
        name: "between steps",
        window_ns: between.length(),
        busy_ns: between.shared(&busy.any),
    };
    let [before, after] = [window.before(), window.after()];
    let all =
        [part("before the first step", before), between, part("after the last step", after)];
    all.into_iter().filter(|part| part.window_ns > 0).collect()
}

/// These parts of all devices.
pub fn table(rows: &[(&RankAt, Option<u32>, OutsidePart)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::device(rows.iter().map(|(_, device, _)| *device)),
        Column::new("part", "part", Unit::Text),
        Column::new("window_ns", "time", Unit::Duration),
        Column::new("busy_ns", "GPU busy", Unit::Duration),
        Column::new("busy_share", "busy", Unit::Share),
    ];
    let mut table = Table::new("outside_of_steps", "GPU time outside of the steps", columns)
        .about("from the first kernel or copy to the last, without the steps")
        .empty("devices did nothing before, between or after the steps, or there are none");
    for (at, device, part) in rows {
        table.row(vec![
            at.label.as_str().into(),
            Cell::applies(*device),
            part.name.into(),
            part.window_ns.into(),
            part.busy_ns.into(),
            (part.busy_ns as f64 / part.window_ns.max(1) as f64).into(),
        ]);
    }
    table
}

//! Makes the tables of the waterfall.

use rustc_hash::FxHashMap;
use tprof_document::{Body, Cell, Column, RankContext, Table, Unit};
use tprof_facts::copies::direction;
use tprof_facts::labels::base_name;
use tprof_facts::units::{duration, percent};
use tprof_rank::base::stats::median;
use tprof_rank::{DeviceWindow, RankTrace};
use tprof_trace::model::NameId;
use tprof_trace::model::counter::{
    GPU_DRAM_BANDWIDTH, GPU_SM_ACTIVE, GPU_SM_OCCUPANCY, GPU_TENSOR_ACTIVE,
};

use super::cause::IdleCause;
use super::threads::Threads;
use super::waterfall::{Waterfall, main_line};
use crate::gpu::breakdown::NO_WORK;
use crate::gpu::report_gpu::Activity;
use crate::host::Place;

const NO_DEVICE: &str = "the GPU's management library was not read for this device";

/// The data that the tables show of one device.
pub(super) struct WaterfallRows {
    device: Option<u32>,
    window_ns: u64,
    steps: usize,
    parts: Vec<PartRow>,
    /// What the device's units did in the window; `None` if it isn't known which device it is.
    activity: Option<Activity>,
}

/// A part of a device's time.
struct PartRow {
    part: &'static str,
    cause: Option<IdleCause>,
    ns: u64,
    /// The displayed name of the part.
    words: &'static str,
    /// The call or code, if it is known.
    what: String,
    line: Option<Place>,
}

impl WaterfallRows {
    pub fn of(
        rank: &RankTrace<'_>,
        threads: &Threads,
        waterfall: &Waterfall,
        window: &DeviceWindow,
        activity: Option<Activity>,
    ) -> WaterfallRows {
        let work = |part, ns, words| PartRow {
            part,
            cause: None,
            ns,
            words,
            what: String::new(),
            line: None,
        };
        let mut parts = vec![
            work("compute", waterfall.compute_ns, "compute"),
            work("communication", waterfall.communication_ns, "communication"),
        ];
        for (kind, ns) in &waterfall.copies {
            parts.push(work("copies", *ns, direction(*kind)));
        }
        parts.retain(|row| row.ns > 0);
        for (cause, ns) in waterfall.causes() {
            parts.push(PartRow {
                part: "idle",
                cause: Some(cause),
                ns,
                words: cause.short(),
                what: what(rank, threads, waterfall, cause),
                line: match cause.explains() {
                    true => main_line(&waterfall.places(rank, threads, cause)).cloned(),
                    false => None,
                },
            });
        }
        WaterfallRows {
            device: window.device,
            window_ns: waterfall.window_ns,
            steps: window.steps,
            parts,
            activity,
        }
    }

    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// Says what the device's units did, beside the compute; `None` if it isn't known.
    fn units(&self, rank: &str) -> Option<String> {
        let activity = self.activity.as_ref()?;
        let active = activity.mean(GPU_SM_ACTIVE)?;
        let compute = self.parts.iter().find(|part| part.part == "compute");
        let more = [(GPU_TENSOR_ACTIVE, "tensor cores"), (GPU_DRAM_BANDWIDTH, "memory bandwidth")];
        let more = more.into_iter().filter_map(|(name, words)| {
            Some(format!(", {words} {}", percent(activity.mean(name)?)))
        });
        let device = self.device.map_or(String::new(), |device| format!(", GPU {device}"));
        Some(format!(
            "{rank}{device}: compute takes {} of the window; in the samples within it, which cover {} \
             of it, the GPU's units were active: SMs {}{}",
            percent(self.share(compute.map_or(0, |part| part.ns))),
            percent(self.share(activity.sampled_ns)),
            percent(active),
            more.collect::<String>(),
        ))
    }
}

impl PartRow {
    /// Returns the place as `a.py:3`, or the function if the file isn't known.
    fn at(&self) -> Option<String> {
        let place = self.line.as_ref()?;
        Some(match (place.file.is_empty(), place.line) {
            (true, _) => place.function.clone(),
            (false, 0) => base_name(&place.file).to_owned(),
            (false, line) => format!("{}:{line}", base_name(&place.file)),
        })
    }
}

/// Describes what a part's time was spent in. For launches, this is their frequency; for other
/// code, the operator that computes on the host. For any other cause it is the call with most of
/// the time, and the operator that made it.
fn what(
    rank: &RankTrace<'_>,
    threads: &Threads,
    waterfall: &Waterfall,
    cause: IdleCause,
) -> String {
    if cause == IdleCause::Launch {
        return launches(rank).unwrap_or_default();
    }
    if cause == IdleCause::Python {
        return computes(rank, threads, waterfall).unwrap_or_default();
    }
    let mut sums: Vec<(NameId, u64, usize)> = Vec::new();
    for (call, ns) in waterfall.calls(cause) {
        let name = rank.calls[call].name;
        match sums.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, sum, _)) => *sum += ns,
            None => sums.push((name, ns, call)),
        }
    }
    let Some((name, _, call)) = sums.into_iter().max_by_key(|(_, ns, _)| *ns) else {
        return String::new();
    };
    let name = rank.name(name);
    match operator(rank, call) {
        Some(operator) => format!("{name} of {operator}"),
        None => name.to_owned(),
    }
}

/// Returns a text such as `aten::sort on the host` if that operator takes most of the time in other
/// code.
pub(super) fn computes(
    rank: &RankTrace<'_>,
    threads: &Threads,
    waterfall: &Waterfall,
) -> Option<String> {
    let mut sums: FxHashMap<NameId, u64> = FxHashMap::default();
    let mut all_ns = 0;
    for one in waterfall.of_cause(IdleCause::Python) {
        all_ns += one.interval.length();
        for (name, ns) in threads.computing(one.thread, one.interval) {
            *sums.entry(name).or_default() += ns;
        }
    }
    let (name, ns) = sums.into_iter().max_by_key(|(name, ns)| (*ns, *name))?;
    (ns * 2 >= all_ns).then(|| format!("{} on the host", rank.name(name)))
}

/// Returns the outermost operator around a call, ignoring ranges of autograd.
fn operator<'a>(rank: &RankTrace<'a>, call: usize) -> Option<&'a str> {
    let tree = rank.operator_tree();
    let mut at = tree.of_call(call)?;
    let mut found = None;
    while let Some(caller) = tree.caller(at) {
        let name = rank.name(tree.spans[caller as usize].name);
        if name.contains("::") && !name.starts_with("autograd::") {
            found = Some(name);
        }
        at = caller;
    }
    found
}

/// Returns a text such as `a launch every 10.4 us, kernels of 960 ns`; both times are medians.
fn launches(rank: &RankTrace<'_>) -> Option<String> {
    let mut last: Option<(u32, u64)> = None;
    let mut between = Vec::new();
    for (at, call) in rank.calls.iter().enumerate() {
        if rank.launches.work_of(at).is_empty() {
            continue;
        }
        if let Some((thread, start_ns)) = last
            && thread == call.thread
        {
            between.push(call.start_ns - start_ns);
        }
        last = Some((call.thread, call.start_ns));
    }
    let kernels = rank.work.iter().filter(|work| work.is_kernel());
    let kernels: Vec<u64> = kernels.map(|work| work.duration_ns).collect();
    (!between.is_empty() && !kernels.is_empty()).then(|| {
        let [between, kernels] = [between, kernels].map(|times| duration(median(times)));
        format!("a launch every {between}, kernels of {kernels}")
    })
}

/// Makes the tables `parts` and `windows` of all devices of all ranks.
pub(super) fn body(ranks: &[(RankContext, Vec<WaterfallRows>)]) -> Body {
    let rows = || ranks.iter().flat_map(|(at, rows)| rows.iter().map(move |row| (at, row)));
    let device = || Column::device(rows().map(|(_, row)| row.device));
    let columns = vec![
        Column::new("rank", if ranks.len() > 1 { "rank" } else { "" }, Unit::Text),
        device(),
        Column::data("cause", Unit::Text),
        Column::new("ns", "time", Unit::Duration),
        Column::new("step_ns", "a step", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::data("part", Unit::Text),
        Column::new("words", "went to", Unit::Text),
        Column::new("at", "at", Unit::Text),
        Column::new("call", "call", Unit::Name),
    ];
    let mut parts = Table::new("parts", "Where the GPU's time went", columns)
        .about(
            "each nanosecond of the window once: first the device's work, then its idle time by what \
             it waited for; lines are from CPU samples",
        )
        .empty(NO_WORK);
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        device(),
        Column::new("window_ns", "time", Unit::Duration),
        Column::new("steps", "steps", Unit::Count),
        Column::new("working_share", "working", Unit::Share),
        Column::new("idle_share", "idle", Unit::Share),
        Column::data("sampled_share", Unit::Share),
        Column::data("sm_active", Unit::Share),
        Column::data("sm_occupancy", Unit::Share),
        Column::data("tensor_active", Unit::Share),
        Column::data("dram_bandwidth_utilization", Unit::Share),
    ];
    let mut windows = Table::new("windows", "Judged time", columns)
        .about("the steps; without steps, from the first work on the device to the last")
        .empty(NO_WORK);
    for (at, row) in rows() {
        let share = |ns: u64| row.share(ns);
        let device = Cell::applies(row.device);
        let rank = || Cell::from(at.label.as_str());
        for part in &row.parts {
            let line = part.line.as_ref();
            let text = |text: Option<&str>| match text.filter(|text| !text.is_empty()) {
                Some(text) => Cell::from(text),
                None => Cell::Empty,
            };
            let a_step = (row.steps > 0).then(|| part.ns / row.steps as u64);
            parts.row(vec![
                rank(),
                device.clone(),
                text(part.cause.map(IdleCause::key)),
                part.ns.into(),
                Cell::applies(a_step),
                share(part.ns).into(),
                text(line.map(|line| &*line.function)),
                text(line.map(|line| &*line.file)),
                Cell::applies(line.map(|line| line.line).filter(|line| *line > 0)),
                part.part.into(),
                part.words.into(),
                text(part.at().as_deref()),
                text(Some(&part.what)),
            ]);
        }
        let sum = |is_idle: bool| -> u64 {
            let parts = row.parts.iter().filter(|part| part.cause.is_some() == is_idle);
            parts.map(|part| part.ns).sum()
        };
        let unit = |name: &str| match row.activity.as_ref().map(|activity| &activity.means[name]) {
            Some(Ok(mean)) => Cell::from(*mean),
            Some(Err(why)) => Cell::missing(why),
            None => Cell::missing(NO_DEVICE),
        };
        windows.row(vec![
            rank(),
            device,
            row.window_ns.into(),
            row.steps.into(),
            share(sum(false)).into(),
            share(sum(true)).into(),
            match &row.activity {
                Some(activity) => share(activity.sampled_ns).into(),
                None => Cell::missing(NO_DEVICE),
            },
            unit(GPU_SM_ACTIVE),
            unit(GPU_SM_OCCUPANCY),
            unit(GPU_TENSOR_ACTIVE),
            unit(GPU_DRAM_BANDWIDTH),
        ]);
    }
    let notes = rows().filter_map(|(at, row)| row.units(&at.label)).collect();
    Body { tables: vec![parts, windows], notes }
}

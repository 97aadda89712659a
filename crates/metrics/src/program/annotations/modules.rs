//! Measures the time in PyTorch's modules, by their paths.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_document::{Cell, Column, RankContext, Table, Unit};
use tprof_facts::modules::ModuleName;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{HostSpan, RankTrace};
use tprof_trace::model::NameId;

use super::host::caused_by;
use crate::gpu::breakdown::NO_WORK;

const NO_MODULES: &str =
    "no calls of modules were recorded (tprof run --modules; torch.profiler: with_modules)";

/// The calls of one module, with their effects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleTime {
    pub(super) runs: u64,
    /// Time in calls, excluding calls within a call of the same module, ns.
    pub(super) total_ns: u64,
    /// Time in calls without the module calls directly within them, ns.
    pub(super) self_ns: u64,
    /// Time in which work that the calls launched ran on a device, ns.
    pub(super) busy_ns: u64,
}

/// Times by path and class. A module that `torch.compile` wraps has its wrapper's path.
pub type TimeByModule = BTreeMap<(String, String), ModuleTime>;

/// The end and the name of each module call that is open on a thread.
type OpenCalls = Vec<(u64, NameId)>;

/// Measures the modules of a rank.
pub(super) fn times(rank: &RankTrace<'_>) -> TimeByModule {
    let calls = rank.module_calls();
    let mut sums: FxHashMap<NameId, ModuleTime> = FxHashMap::default();
    let mut threads: FxHashMap<(u32, u32), OpenCalls> = FxHashMap::default();
    for call in &calls {
        let open = threads.entry((call.process, call.thread)).or_default();
        while open.pop_if(|(end_ns, _)| *end_ns <= call.start_ns).is_some() {}
        if let Some((_, caller)) = open.last() {
            let caller = sums.entry(*caller).or_default();
            caller.self_ns = caller.self_ns.saturating_sub(call.duration_ns);
        }
        let is_inner = open.iter().any(|(_, name)| *name == call.name);
        let sum = sums.entry(call.name).or_default();
        sum.runs += 1;
        sum.self_ns += call.duration_ns;
        sum.total_ns += if is_inner { 0 } else { call.duration_ns };
        open.push((call.end_ns(), call.name));
    }
    let refs: Vec<&HostSpan> = calls.iter().collect();
    for (name, caused) in caused_by(rank, refs, |call| call.name.0) {
        sums.entry(NameId(name)).or_default().busy_ns = caused.busy_ns;
    }
    let mut by_path = TimeByModule::default();
    for (name, sum) in sums {
        let Some(name) = ModuleName::of(rank.name(name)) else { continue };
        by_path.insert((name.path.to_owned(), name.class.to_owned()), sum);
    }
    by_path
}

/// The modules of a rank.
pub(super) struct ModulesOfRank<'a> {
    pub at: &'a RankContext,
    pub modules: &'a TimeByModule,
    /// Whether any device work was recorded.
    pub has_work: bool,
}

/// Makes the table with one row for each module and rank.
pub(super) fn table<'a>(parts: impl Iterator<Item = ModulesOfRank<'a>>) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("runs", "runs", Unit::Count),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("busy_ns", "on GPU", Unit::Duration),
        Column::data("class", Unit::Text),
        Column::new("path", "module", Unit::Name),
    ];
    let mut table = Table::new("modules", "PyTorch modules", columns)
        .about("host time of calls; self: without called modules; share: of Σ self")
        .empty(NO_MODULES);
    let parts: Vec<(ModulesOfRank<'a>, u64)> = parts
        .map(|part| {
            let all = part.modules.values().map(|module| module.self_ns).sum();
            (part, all)
        })
        .collect();
    let mut rows: Vec<_> = parts
        .iter()
        .flat_map(|(part, all)| part.modules.iter().map(move |row| (part, *all, row)))
        .collect();
    rows.sort_rows_by_key(|(_, _, (_, module))| Reverse((module.self_ns, module.total_ns)));
    for (part, all, ((path, class), module)) in rows {
        table.row(vec![
            part.at.label.as_str().into(),
            module.runs.into(),
            module.total_ns.into(),
            module.self_ns.into(),
            Cell::applies((all > 0).then(|| module.self_ns as f64 / all as f64)),
            Cell::known(part.has_work.then_some(module.busy_ns), NO_WORK),
            class.as_str().into(),
            path.as_str().into(),
        ]);
    }
    table
}

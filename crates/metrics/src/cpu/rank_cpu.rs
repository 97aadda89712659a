//! Collects the data that `report cpu` keeps of a rank, and adds up ranks.

use tprof_document::{LineTables, Options, RankContext};
use tprof_facts::sources::Sources;
use tprof_rank::RankTrace;
use tprof_rank::samples::CpuTrace;
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, ThreadState, property};

use super::counted::RankCounts;
use super::filter::SampleFilter;
use super::functions::Functions;
use super::lines::Lines;
use super::loading::Loading;
use super::split::Split;
use super::tree::FunctionTree;
use super::waits::WaitsByPlace;
use crate::host::RankHost;

/// Number of callers above the innermost function that the bottom-up tree keeps.
const CALLERS: usize = 12;

/// CPU time of a rank, by function, thread, wait, line and step.
#[derive(Default)]
pub struct RankCpu {
    pub(super) functions: Functions,
    pub(super) lines: Lines,
    pub(super) sources: Sources,
    pub(super) top_down: FunctionTree,
    pub(super) bottom_up: FunctionTree,
    pub(super) waits: WaitsByPlace,
    pub(super) loading: Loading,
    pub(super) split: Split,
    /// Number of ranges that `--within` chose.
    pub(super) ranges_within: usize,
    /// Number of samples in the file, including those that the options leave out.
    pub(super) rows: u64,
    /// Events counted in one rank. These counts are not added up over ranks.
    pub(super) counted: RankCounts,
    /// The reason why the kernel's functions have no names.
    pub(super) hidden: Option<String>,
}

impl RankCpu {
    /// Reads the part of a rank that the options keep.
    pub(super) fn of(rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankCpu {
        let kept = SampleFilter::of(rank, options);
        let keep = |row: &Sample| kept.holds(row);
        // Errors are ignored here, since unreadable parts were reported when the whole file was
        // read.
        let cut = kept.is_cut().then(|| CpuTrace::load_where(rank.file, keep));
        let cpu = cut.as_ref().unwrap_or(&rank.cpu);
        // A launcher has no driving thread, and waits are not divided by range.
        let has_host = at.rank.is_some() && options.within_text().is_none();
        let host = has_host.then(|| RankHost::of(rank)).flatten();
        let host = host.filter(|of| kept.holds_thread(of.driver.process, of.driver.thread));
        let mut part = RankCpu {
            waits: WaitsByPlace::of(cpu, rank.file, options.mine),
            loading: Loading::of(cpu, host.as_ref()),
            split: Split::of(rank, cpu, keep, options.data),
            ranges_within: kept.ranges(),
            rows: rank.cpu.rows,
            counted: RankCounts::of(rank, true, kept.is_cut().then_some(&kept)),
            hidden: why_hidden(rank.file),
            ..RankCpu::default()
        };
        part.functions.add_file(cpu);
        if options.lines != LineTables::No {
            part.lines.add_file(cpu, options.mine);
            part.sources = Sources::of(rank.file);
        }
        part.add_trees(cpu, options.mine);
        part
    }

    fn add_trees(&mut self, cpu: &CpuTrace, mine: bool) {
        let in_tree = cpu.names.which(|func| !func.is_import() && (!mine || func.is_own()));
        let is_running = |state| state == ThreadState::Running;
        for stretch in cpu.stretches.iter().filter(|stretch| is_running(stretch.state)) {
            if stretch.stack.is_empty() {
                continue;
            }
            let kept = |id: &&u32| in_tree[**id as usize];
            let named = |id: &u32| cpu.names.get(*id);
            let down = stretch.stack.iter().rev().filter(kept).map(named);
            self.top_down.add(down, stretch.weight_ns);
            let up = stretch.stack.iter().filter(kept).map(named);
            self.bottom_up.add(up.take(CALLERS), stretch.weight_ns);
        }
    }

    /// Adds another rank, except for its counted events.
    pub(super) fn add(&mut self, other: RankCpu) {
        self.hidden = self.hidden.take().or(other.hidden);
        self.functions.add(&other.functions);
        self.lines.add(other.lines);
        self.sources.add(other.sources);
        self.top_down.merge(&other.top_down);
        self.bottom_up.merge(&other.bottom_up);
        self.waits.add(other.waits);
        self.loading.add(&other.loading);
        self.split.add(other.split);
        self.rows += other.rows;
        self.ranges_within += other.ranges_within;
    }
}

/// Returns the reason why the kernel's functions have no names in a file.
fn why_hidden(file: &TraceFile) -> Option<String> {
    let json = file.property(property::KERNEL_NAMES_HIDDEN)?;
    Some(format!("hidden: {}", serde_json::from_str::<String>(json).ok()?))
}

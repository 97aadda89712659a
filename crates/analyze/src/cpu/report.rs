//! `tprof report cpu`: in which functions the time of running threads went, and
//! where threads waited.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_facts::sources::Sources;
use tprof_facts::units::{duration, percent};
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, SpanKind, ThreadState, property};

use super::counted::Counted;
use super::counted_tables::{self, All};
use super::functions::Functions;
use super::kept::{self, Kept};
use super::lines::Lines;
use super::ranges::range_name;
use super::split::Split;
use super::tables::{self, Waited};
use super::tree::FunctionTree;
use super::{NO_SAMPLES, line_tables, loading, split_tables};
use crate::document::{
    Analysis, Body, DocumentKind, LineTables, Named, Options, RankAt, boxed, text_and_number,
};
use crate::rank::samples::CpuTrace;
use crate::rank::samples::{Func, Layer};
use crate::rank::{HostSpan, Needs, RankTrace};

/// The kind of report.
pub const KIND: DocumentKind = DocumentKind {
    name: "cpu",
    about: "where the CPU time went, by function",
    analysis: || boxed(CpuReport),
};

/// Callers kept above the innermost function, bottom up.
const CALLERS: usize = 12;

/// See the module.
pub struct CpuReport;

/// What is kept of a rank.
pub struct RankCpu {
    functions: Functions,
    lines: Lines,
    sources: Sources,
    top_down: FunctionTree,
    bottom_up: FunctionTree,
    waits: FxHashMap<(ThreadState, Option<Func>), Waited>,
    loading: loading::Loading,
    split: Split,
    /// Ranges that `--within` chose.
    ranges_within: usize,
    rows: u64,
    counted: Counted,
    /// Why the kernel's functions have no names.
    hidden: Option<String>,
}

impl Analysis for CpuReport {
    const HTA: bool = false;
    const TAKES: &'static [&'static str] = &["--within", "--lines", "--sort", "--mine", "--thread"];
    const KIND: &'static str = "cpu";
    type Part = RankCpu;

    fn needs(&self, _: &Options) -> Needs {
        Needs::SAMPLES | Needs::ANNOTATIONS | Needs::spans(SpanKind::Nvtx)
    }

    fn named(&self, rank: &RankTrace<'_>, options: &Options) -> Vec<Named> {
        let mut named = Vec::new();
        if let Some(within) = options.within.as_deref().filter(|text| !text.is_empty()) {
            let name = |span: &HostSpan| range_name(rank, span.category, span.name);
            let spans = rank.spans(SpanKind::Nvtx).iter();
            let option = ("--within", "NVTX ranges");
            named.push(Named::of(option, text_and_number(within), spans, name));
        }
        if let Some(thread) = options.thread.as_deref() {
            named.push(kept::named(rank, thread));
        }
        if options.mine && rank.cpu.rows > 0 {
            named.push(own_files(&rank.cpu));
        }
        named
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, options: &Options) -> RankCpu {
        let kept = Kept::of(rank, options);
        let keep = |row: &Sample| kept.holds(row);
        // What cannot be read was noted when all of it was read.
        let cut = kept.is_cut().then(|| CpuTrace::load_where(rank.file, &mut Vec::new(), keep));
        let cpu = cut.as_ref().unwrap_or(&rank.cpu);
        let mut part = RankCpu {
            functions: Functions::default(),
            lines: Lines::default(),
            sources: Sources::default(),
            top_down: FunctionTree::default(),
            bottom_up: FunctionTree::default(),
            waits: FxHashMap::default(),
            loading: loading::Loading::of(cpu),
            split: Split::of(rank, cpu, keep, options.data),
            ranges_within: kept.ranges(),
            rows: rank.cpu.rows,
            counted: Counted::of(rank, true, kept.is_cut().then_some(&kept)),
            hidden: why_hidden(rank.file),
        };
        part.functions.add_file(cpu);
        if options.lines != LineTables::No {
            part.lines.add_file(cpu, options.mine);
            part.sources = Sources::of(rank.file);
        }
        let in_tree = cpu.names.which(|func| !func.is_import() && (!options.mine || func.is_own()));
        for stretch in &cpu.stretches {
            let funcs = || stretch.stack.iter().map(|id| cpu.names.get(*id));
            match stretch.state {
                ThreadState::Running if !stretch.stack.is_empty() => {
                    let kept = || stretch.stack.iter().filter(|id| in_tree[**id as usize]);
                    let named = |id: &u32| cpu.names.get(*id);
                    part.top_down.add(kept().rev().map(named), stretch.weight_ns);
                    part.bottom_up.add(kept().take(CALLERS).map(named), stretch.weight_ns);
                }
                ThreadState::Running | ThreadState::Runnable => {}
                state => {
                    let place = place_of_wait(funcs());
                    let sum = part.waits.entry((state, place)).or_default();
                    sum.ns += stretch.weight_ns;
                    sum.rows += stretch.samples;
                    sum.variance += stretch.variance;
                }
            }
        }
        part
    }

    fn join(&self, parts: Vec<(RankAt, RankCpu)>, options: &Options) -> Body {
        let mut all = Functions::default();
        let (mut lines, mut sources) = (Lines::default(), Sources::default());
        let (mut top_down, mut bottom_up) = (FunctionTree::default(), FunctionTree::default());
        let mut waits: FxHashMap<(ThreadState, Option<Func>), Waited> = FxHashMap::default();
        let mut loading = loading::Loading::default();
        let mut split = Split::default();
        let (mut rows, mut ranges_within) = (0, 0);
        let ranks = parts.len();
        let of_ranks = counted_tables::of_ranks(parts.iter().map(|(at, part)| (at, &part.counted)));
        let of_places = counted_tables::of_places(parts.iter().map(|(_, part)| &part.counted));
        let of_counts = All(parts.iter().map(|(_, part)| &part.counted.asked).collect()).notes();
        let mut hidden = None;
        for (_, part) in parts {
            hidden = hidden.or(part.hidden);
            all.add(&part.functions);
            lines.add(part.lines);
            sources.add(part.sources);
            top_down.merge(&part.top_down);
            bottom_up.merge(&part.bottom_up);
            for (key, sum) in part.waits {
                let into = waits.entry(key).or_default();
                into.ns += sum.ns;
                into.rows += sum.rows;
                into.variance += sum.variance;
            }
            loading.add(&part.loading);
            split.add(part.split);
            rows += part.rows;
            ranges_within += part.ranges_within;
        }
        let mut notes = Vec::new();
        let within = options.within.as_deref().filter(|text| !text.is_empty());
        if let Some(text) = within {
            notes.push(format!(
                "within {ranges_within} NVTX ranges named like `{text}`, on their own threads; \
                 waits are not divided by range"
            ));
        }
        if all.samples > 0 {
            let of_ranks = if ranks > 1 { format!(" of {ranks} files") } else { String::new() };
            notes.push(format!(
                "{}{of_ranks} on a core, from {} samples; shares are of this time",
                duration(all.running_ns),
                all.samples
            ));
        }
        let share = |part: u64| part as f64 / all.running_ns.max(1) as f64;
        if share(all.unknown_ns) >= 0.01 {
            notes.push(format!(
                "{} of CPU time has no sample (threads shorter than one period, or native code \
                 without perf events)",
                percent(share(all.unknown_ns))
            ));
        }
        let nameless = all.all.iter().filter(|(func, _)| func.is_nameless_kernel());
        let nameless = share(nameless.map(|(_, sum)| sum.self_ns).sum());
        if nameless >= 0.01 {
            notes.push(format!(
                "{} of CPU time is in kernel functions, shown as one: their names are {}",
                percent(nameless),
                hidden.as_deref().unwrap_or("not read for a run of less than a second")
            ));
        }
        if share(all.cut_ns) >= 0.01 {
            notes.push(format!(
                "{} of CPU time has stacks that end early: totals of outer functions may lack it",
                percent(share(all.cut_ns))
            ));
        }
        if rows > 0 {
            notes.extend(of_counts);
        }
        let why = match within {
            _ if rows == 0 => NO_SAMPLES,
            Some(_) if ranges_within == 0 => {
                "no NVTX range has such a name: `report nvtx` lists them"
            }
            Some(_) => "no sample lies within these ranges",
            None => "no running thread was sampled",
        };
        let mut made = Vec::new();
        if options.lines != LineTables::No {
            made.push(line_tables::by_function(&lines, options.sort, &mut sources, why));
            made.push(line_tables::flat(&lines, options.sort, &mut sources, why));
            notes.extend(line_tables::without_source(&lines, &mut sources));
        }
        if options.mine {
            let rest = all.running_ns.saturating_sub(lines.listed_ns);
            if options.lines != LineTables::No && rest > 0 {
                notes.push(format!(
                    "only files outside of site-packages and the standard library; {} of CPU \
                     time has none of them on its stack",
                    percent(share(rest))
                ));
            }
        }
        if options.lines == LineTables::Only {
            if within.is_none() {
                made.push(tables::waiting(&waits, rows));
            }
            return Body { tables: made, notes };
        }
        made.push(tables::functions(&all, options, why));
        made.extend(tables::python(&all, options));
        if options.data {
            made.extend(tables::python_modules(&all));
        }
        made.push(tables::modules(&all, why));
        made.extend(split_tables::tables(&split, options.data));
        if within.is_none() {
            made.push(tables::waiting(&waits, rows));
            made.extend(loading.table());
        }
        made.extend(of_places);
        made.push(tables::tree("top_down", "Top down: callers above callees", &top_down, why));
        made.push(tables::tree(
            "bottom_up",
            "Bottom up: functions above their callers",
            &bottom_up,
            why,
        ));
        made.extend(of_ranks);
        Body { tables: made, notes }
    }
}

/// Why a file's functions of the kernel have no names.
fn why_hidden(file: &TraceFile) -> Option<String> {
    let json = file.property(property::KERNEL_NAMES_HIDDEN)?;
    Some(format!("hidden: {}", serde_json::from_str::<String>(json).ok()?))
}

/// The innermost function that explains a wait best: not the kernel's, and
/// not the C library's, if another is there.
fn place_of_wait<'a>(stack: impl Iterator<Item = &'a Func> + Clone) -> Option<Func> {
    let own = |func: &&Func| func.layer == Layer::Python || !func.is_system();
    let user = |func: &&Func| func.layer != Layer::Kernel;
    stack
        .clone()
        .find(own)
        .or_else(|| stack.clone().find(user))
        .or_else(|| stack.clone().next())
        .cloned()
}

/// Files of the functions on sampled stacks: `--mine` chooses those of a person's own.
fn own_files(cpu: &CpuTrace) -> Named {
    let mut there: BTreeMap<String, u64> = BTreeMap::new();
    let mut chosen = false;
    for func in cpu.names.all() {
        chosen |= func.is_own();
        if !func.file.is_empty() && func.layer == Layer::Python {
            *there.entry(func.file.to_string()).or_default() += 1;
        }
    }
    let (option, what) = ("--mine", "files");
    Named { option, what, text: String::new(), chosen, matching: 0, there }
}

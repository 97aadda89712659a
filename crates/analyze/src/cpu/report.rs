//! `tprof report cpu`: in which functions the time of running threads went, and
//! where threads waited.

use rustc_hash::FxHashMap;
use tprof_facts::units::{duration, percent};
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, SpanKind, ThreadState, property};

use super::counted::Counted;
use super::counted_tables::{self, All};
use super::functions::Functions;
use super::ranges::range_name;
use super::split::Split;
use super::tables::{self, Waited};
use super::tree::FunctionTree;
use super::windows::Windows;
use super::{NO_SAMPLES, loading, split_tables};
use crate::document::{
    Analysis, Body, DocumentKind, Named, Options, RankAt, boxed, text_and_number,
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
    const TAKES: &'static [&'static str] = &["--within"];
    const KIND: &'static str = "cpu";
    type Part = RankCpu;

    fn needs(&self, _: &Options) -> Needs {
        Needs::SAMPLES | Needs::ANNOTATIONS | Needs::spans(SpanKind::Nvtx)
    }

    fn named(&self, rank: &RankTrace<'_>, options: &Options) -> Option<Named> {
        let within = options.within.as_deref().filter(|text| !text.is_empty())?;
        let name = |span: &HostSpan| range_name(rank, span.category, span.name);
        let spans = rank.spans(SpanKind::Nvtx).iter();
        let option = ("--within", "NVTX ranges");
        Some(Named::of(option, text_and_number(within), spans, name))
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, options: &Options) -> RankCpu {
        let within = options.within.as_deref().filter(|text| !text.is_empty());
        let windows = within.map(|text| Windows::of(rank, text));
        let keep = |row: &Sample| windows.as_ref().is_none_or(|windows| windows.hold(row));
        // What cannot be read was noted when all of it was read.
        let cut = windows.as_ref().map(|_| CpuTrace::load_where(rank.file, &mut Vec::new(), keep));
        let cpu = cut.as_ref().unwrap_or(&rank.cpu);
        let mut part = RankCpu {
            functions: Functions::default(),
            top_down: FunctionTree::default(),
            bottom_up: FunctionTree::default(),
            waits: FxHashMap::default(),
            loading: loading::Loading::of(cpu),
            split: Split::of(rank, cpu, keep, options.data),
            ranges_within: windows.as_ref().map_or(0, |windows| windows.count),
            rows: rank.cpu.rows,
            counted: Counted::of(rank, true, windows.as_ref()),
            hidden: why_hidden(rank.file),
        };
        part.functions.add_file(cpu);
        for stretch in &cpu.stretches {
            let funcs = || stretch.stack.iter().map(|id| cpu.names.get(*id));
            match stretch.state {
                ThreadState::Running if !stretch.stack.is_empty() => {
                    part.top_down.add(funcs().rev(), stretch.weight_ns);
                    part.bottom_up.add(funcs().take(CALLERS), stretch.weight_ns);
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
        let mut made = vec![tables::functions(&all, why)];
        made.extend(tables::python(&all));
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
    let own = |func: &&Func| func.layer == Layer::Python || !is_system(func);
    let user = |func: &&Func| func.layer != Layer::Kernel;
    stack
        .clone()
        .find(own)
        .or_else(|| stack.clone().find(user))
        .or_else(|| stack.clone().next())
        .cloned()
}

fn is_system(func: &Func) -> bool {
    let starts =
        ["libc.so", "libpthread", "ld-linux", "libpython", "python3", "[vdso]", "libtprof"];
    func.layer == Layer::Kernel || starts.iter().any(|start| func.module.starts_with(start))
}

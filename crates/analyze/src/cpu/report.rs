//! `tprof report cpu`: in which functions the time of running threads went, and
//! where threads waited.

use rustc_hash::FxHashMap;
use tprof_facts::frames::NO_STACK;
use tprof_facts::units::{duration, percent};
use tprof_trace::TraceFile;
use tprof_trace::model::{Sample, SpanKind, ThreadState, property};

use super::counted::Counted;
use super::counted_tables::{self, All};
use super::functions::{Functions, Sum};
use super::split::{Split, Windows, range_name};
use super::tree::Tree;
use super::{NO_SAMPLES, loading, split_tables};
use crate::document::{
    Analysis, Body, Cell, Column, DocumentKind, Named, Options, RankAt, Table, Unit, boxed,
    text_and_number,
};
use crate::rank::samples::CpuTrace;
use crate::rank::samples::word;
use crate::rank::samples::{Func, Layer};
use crate::rank::{HostSpan, Needs, RankTrace};

/// The kind of report.
pub const KIND: DocumentKind = DocumentKind {
    name: "cpu",
    about: "where the CPU time went, by function",
    analysis: || boxed(CpuReport),
};

/// Share of all time below which a node of a tree is left out.
const LEAST_OF_TREE: u64 = 100;
/// Callers kept above the innermost function, bottom up.
const CALLERS: usize = 12;

/// See the module.
pub struct CpuReport;

/// Waits for one thing in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    ns: u64,
    rows: u64,
    /// See [`super::Stretch::variance`].
    variance: f64,
}

/// What is kept of a rank.
pub struct Part {
    functions: Functions,
    top_down: Tree,
    bottom_up: Tree,
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
    type Part = Part;

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

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankAt, options: &Options) -> Part {
        let within = options.within.as_deref().filter(|text| !text.is_empty());
        let windows = within.map(|text| Windows::of(rank, text));
        let keep = |row: &Sample| windows.as_ref().is_none_or(|windows| windows.hold(row));
        // What cannot be read was told when all of it was read.
        let cut = windows.as_ref().map(|_| CpuTrace::load_where(rank.file, &mut Vec::new(), keep));
        let cpu = cut.as_ref().unwrap_or(&rank.cpu);
        let mut part = Part {
            functions: Functions::default(),
            top_down: Tree::default(),
            bottom_up: Tree::default(),
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

    fn join(&self, parts: Vec<(RankAt, Part)>, options: &Options) -> Body {
        let mut all = Functions::default();
        let (mut top_down, mut bottom_up) = (Tree::default(), Tree::default());
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
                "within {ranges_within} NVTX ranges named like `{text}`, on the threads that made them; \
                 waits are not told apart by range"
            ));
        }
        if all.samples > 0 {
            let of_ranks = if ranks > 1 { format!(" of {ranks} files") } else { String::new() };
            notes.push(format!(
                "{}{of_ranks} on a core, from {} samples; shares are of that",
                duration(all.running_ns),
                all.samples
            ));
        }
        let share = |part: u64| part as f64 / all.running_ns.max(1) as f64;
        if share(all.unknown_ns) >= 0.01 {
            notes.push(format!(
                "{} of it no sample stands for: threads that ran for less than a period, or native \
                 code where perf events were refused",
                percent(share(all.unknown_ns))
            ));
        }
        let nameless = all.all.iter().filter(|(func, _)| func.is_nameless_kernel());
        let nameless = share(nameless.map(|(_, sum)| sum.self_ns).sum());
        if nameless >= 0.01 {
            notes.push(format!(
                "{} of it went to the kernel's functions, which are shown as one: their names are {}",
                percent(nameless),
                hidden.as_deref().unwrap_or("not read for a run of less than a second")
            ));
        }
        if share(all.cut_ns) >= 0.01 {
            notes.push(format!(
                "{} has stacks that end early: outer functions may miss that much of their total",
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
        let mut tables = vec![functions(&all, why)];
        tables.extend(python(&all));
        if options.data {
            tables.extend(python_modules(&all));
        }
        tables.push(modules(&all, why));
        tables.extend(split_tables::tables(&split, options.data));
        if within.is_none() {
            tables.push(waiting(&waits, rows));
            tables.extend(loading.table());
        }
        tables.extend(of_places);
        tables.push(tree("top_down", "Top down: callers above what they call", &top_down, why));
        tables.push(tree("bottom_up", "Bottom up: functions above their callers", &bottom_up, why));
        tables.extend(of_ranks);
        Body { tables, notes }
    }
}

/// Why a file's functions of the kernel have no names.
fn why_hidden(file: &TraceFile) -> Option<String> {
    let json = file.property(property::KERNEL_NAMES_HIDDEN)?;
    Some(format!("hidden: {}", serde_json::from_str::<String>(json).ok()?))
}

/// The innermost function that says most about a wait: not the kernel's, and
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

/// A sum of samples: their number is what it is uncertain by.
pub(super) fn sampled(ns: u64, samples: u64) -> Cell {
    if samples == 0 {
        return Cell::from(ns);
    }
    let error = 1.96 * ns as f64 / (samples as f64).sqrt();
    Cell::Estimate { value: ns.into(), error: (error.round() as u64).into() }
}

/// Time of which a part may be an estimate of this variance.
pub(super) fn estimated(ns: u64, variance: f64) -> Cell {
    if variance == 0.0 {
        return Cell::from(ns);
    }
    Cell::Estimate { value: ns.into(), error: ((1.96 * variance.sqrt()).round() as u64).into() }
}

/// A function as a person reads it.
pub(crate) fn shown(func: &Func) -> String {
    match func.layer {
        Layer::Python if !func.file.is_empty() => {
            format!("{} ({})", func.name, short_path(&func.file))
        }
        _ => func.name.to_string(),
    }
}

/// The last two parts of a path.
fn short_path(path: &str) -> &str {
    let mut parts = path.rmatch_indices('/').map(|(at, _)| at);
    parts.nth(1).map_or(path, |at| &path[at + 1..])
}

pub(super) const WHERE: [Column; 4] = [
    Column::new("layer", "code", Unit::Text),
    Column::new("module", "module", Unit::Text),
    Column::data("source", Unit::Text),
    Column::new("function", "function", Unit::Name),
];

pub(super) fn place_cells(func: &Func) -> Vec<Cell> {
    let module = match func.layer {
        Layer::Python => short_path(&func.file),
        _ => &func.module,
    };
    let source: Cell = match func.file.is_empty() {
        true => Cell::missing("no debug information names its file"),
        false => func.file.to_string().into(),
    };
    let name: Cell = func.name.to_string().into();
    vec![func.layer.word().into(), module.into(), source, name]
}

fn functions(all: &Functions, why: &str) -> Table {
    let mut columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::data("total_share", Unit::Share),
        Column::data("waited_ns", Unit::Duration),
        Column::data("samples", Unit::Count),
    ];
    columns.extend(WHERE);
    let mut table = Table::new("functions", "Functions, by time of their own on a core", columns)
        .about("total: with what they call")
        .empty(why);
    let share = |ns: u64| ns as f64 / all.running_ns.max(1) as f64;
    let mut rows = all.by(|sum| sum.self_ns);
    rows.extend(all.by(|sum| sum.total_ns).into_iter().filter(|(_, sum)| sum.self_ns == 0));
    for (func, sum) in rows {
        let mut row = vec![
            sampled(sum.self_ns, sum.self_samples),
            share(sum.self_ns).into(),
            sampled(sum.total_ns, sum.total_samples),
            share(sum.total_ns).into(),
            sum.waited_ns.into(),
            sum.self_samples.into(),
        ];
        row.extend(place_cells(func));
        table.row(row);
    }
    table
}

/// Python's functions, the native code that they call counted as theirs.
fn python(all: &Functions) -> Option<Table> {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::data("file", Unit::Text),
        Column::data("name", Unit::Text),
        Column::new("mostly", "mostly in", Unit::Text),
        Column::new("function", "function", Unit::Name),
    ];
    let mut table = Table::new("python", "Python functions", columns).about(
        "self: with the native code that they call, mostly of that module; waited: with what \
         they call",
    );
    let share = |ns: u64| ns as f64 / all.running_ns.max(1) as f64;
    let own = |sum: &Sum| sum.own_ns;
    let mut rows = all.by(own);
    rows.extend(all.by(|s| s.total_ns + s.waited_ns).into_iter().filter(|(_, s)| s.own_ns == 0));
    for (func, sum) in rows.into_iter().filter(|(func, _)| func.layer == Layer::Python) {
        table.row(vec![
            sum.own_ns.into(),
            share(sum.own_ns).into(),
            sampled(sum.total_ns, sum.total_samples),
            sum.waited_ns.into(),
            func.file.to_string().into(),
            func.name.to_string().into(),
            match all.under(func).first() {
                Some((module, _)) => named(module).to_owned().into(),
                None => Cell::missing("it ran no code of its own"),
            },
            shown(func).into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Python's functions by the module that ran below them, with no other Python function
/// between.
fn python_modules(all: &Functions) -> Option<Table> {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("module", "module", Unit::Name),
        Column::new("function", "function", Unit::Name),
        Column::data("file", Unit::Text),
        Column::data("name", Unit::Text),
    ];
    let mut table = Table::new("python_modules", "Python functions by module below", columns);
    for (func, _) in all.by(|sum| sum.own_ns) {
        for (module, ns) in all.under(func) {
            table.row(vec![
                ns.into(),
                named(module).to_owned().into(),
                shown(func).into(),
                func.file.to_string().into(),
                func.name.to_string().into(),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// A module as reports name it.
fn named(module: &str) -> &str {
    if module.is_empty() { "(no file)" } else { module }
}

fn modules(all: &Functions, why: &str) -> Table {
    let columns = vec![
        Column::new("self_ns", "self", Unit::Duration),
        Column::new("self_share", "share", Unit::Share),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("module", "module", Unit::Name),
    ];
    let mut table = Table::new("modules", "Modules", columns).empty(why);
    let mut rows: Vec<_> = all.modules.iter().collect();
    rows.sort_by(|a, b| {
        (b.1.self_ns, b.1.total_ns).cmp(&(a.1.self_ns, a.1.total_ns)).then_with(|| a.0.cmp(b.0))
    });
    for (module, sum) in rows {
        let name = named(module);
        table.row(vec![
            sum.self_ns.into(),
            (sum.self_ns as f64 / all.running_ns.max(1) as f64).into(),
            sum.total_ns.into(),
            name.into(),
        ]);
    }
    table
}

fn waiting(waits: &FxHashMap<(ThreadState, Option<Func>), Waited>, rows: u64) -> Table {
    let columns = vec![
        Column::new("waited_ns", "waited", Unit::Duration),
        Column::new("waits_for", "for", Unit::Text),
        Column::data("rows", Unit::Count),
        Column::data("layer", Unit::Text),
        Column::data("module", Unit::Text),
        Column::new("function", "in", Unit::Name),
    ];
    let why = if rows == 0 { NO_SAMPLES } else { "no thread waited" };
    let mut table = Table::new("waiting", "Waiting, all threads", columns)
        .about("a thread that waits on purpose is no loss; see `report threads` for each")
        .empty(why);
    let mut sorted: Vec<_> = waits.iter().collect();
    sorted.retain(|(_, waited)| waited.ns > 0);
    sorted.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.0.cmp(&b.0.0)));
    for ((state, place), waited) in sorted {
        let (layer, module, name): (Cell, Cell, Cell) = match place {
            Some(func) => {
                (func.layer.word().into(), func.module.to_string().into(), shown(func).into())
            }
            None => (Cell::Empty, Cell::Empty, NO_STACK.into()),
        };
        let time = estimated(waited.ns, waited.variance);
        let row = vec![time, word(*state).into(), waited.rows.into(), layer, module, name];
        table.row(row);
    }
    table
}

fn tree(key: &'static str, title: &str, tree: &Tree, why: &str) -> Table {
    let columns = vec![
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::data("self_ns", Unit::Duration),
        Column::data("depth", Unit::Count),
        Column::data("layer", Unit::Text),
        Column::data("module", Unit::Text),
        Column::data("function", Unit::Text),
        Column::new("line", "function", Unit::Name),
    ];
    let mut table = Table::new(key, title, columns)
        .about("nodes of 1% and more; calls that only pass through are left out")
        .empty(why);
    for (depth, node) in tree.shown(tree.total_ns() / LEAST_OF_TREE) {
        let Some(func) = &node.func else { continue };
        table.row(vec![
            node.total_ns.into(),
            (node.total_ns as f64 / tree.total_ns().max(1) as f64).into(),
            node.self_ns.into(),
            depth.into(),
            func.layer.word().into(),
            func.module.to_string().into(),
            func.name.to_string().into(),
            format!("{}{}", "\u{2502} ".repeat(depth.min(12)), shown(func)).into(),
        ]);
    }
    table
}

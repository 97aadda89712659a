//! Decides which runs of operators count, and measures each run's own time.
//!
//! Operators are nested, and so are their formulas: `aten::linear` calls `aten::addmm`. An operator
//! counts unless it contains an operator that counts and has the same or a higher level
//! ([`Level`]). The launches and the host time of a run exclude those of counted runs within it.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::flops::{self, Count, Level, WhyUncounted, Work};
use tprof_rank::{CallTree, Class, RankTrace, WorkKind};
use tprof_trace::model::{NameId, SpanKind};

/// Stands for a missing index of a run.
const NONE: u32 = u32::MAX;

/// An operator with its inputs and the work that follows from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizedOperator {
    pub name: NameId,
    pub args: NameId,
    pub work: Work,
}

/// One run of an operator that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedRun {
    /// Index of its span in the rank's operator tree.
    pub at: u32,
    /// Index in [`CountedRuns::shapes`].
    pub shape: u32,
    /// Host time of the run, without counted runs within it, ns.
    pub host_ns: u64,
    /// Sum of the durations of the work that it launched, ns.
    pub device_ns: u64,
    /// Number of kernels, copies and memsets that it launched.
    pub launched: u32,
    /// The longest of these kernels, copies and memsets: its duration in ns, and its name.
    pub longest: Option<(u64, NameId)>,
    /// Whether any of this work crossed the bus between host and device.
    pub crosses: bool,
}

/// Runs of an operator that don't count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Uncounted {
    pub runs: u64,
    pub host_ns: u64,
    pub device_ns: u64,
}

/// The runs of a rank.
#[derive(Debug, Default)]
pub(super) struct CountedRuns {
    pub shapes: Vec<SizedOperator>,
    /// The runs in the order of their spans.
    pub runs: Vec<CountedRun>,
    /// Runs that don't count, by operator and reason. The reason is `None` if the operator has a
    /// formula, but operators within it count instead.
    pub uncounted: FxHashMap<(NameId, Option<WhyUncounted>), Uncounted>,
    /// Number and total duration of the pieces of device work that belong to no operator or have no
    /// recorded launch. Collectives are not included.
    pub unowned: (u64, u64),
    /// Device time of the counted runs, by device, ns.
    pub devices: FxHashMap<u32, u64>,
    /// For each piece of the rank's work, the run that launched it.
    pub run_of_work: Vec<Option<u32>>,
    /// Number of operators in the file.
    pub operators: u64,
    /// Whether the sizes of any operator's inputs were recorded.
    pub has_sizes: bool,
}

/// The role of a span in the count.
#[derive(Clone, Copy)]
enum CountedAs {
    /// The span isn't an operator, or is one that does nothing itself.
    Nothing,
    Shape(u32),
    Unread(WhyUncounted),
}

pub(super) fn of(rank: &RankTrace<'_>, tree: &CallTree) -> CountedRuns {
    let mut counted = CountedRuns::default();
    let reads = read(rank, tree, &mut counted);
    let within = levels_within(tree, &reads, &counted.shapes);
    let level = |at: usize| match reads[at] {
        CountedAs::Shape(shape) => Some(counted.shapes[shape as usize].work.family.level()),
        _ => None,
    };
    let counts = |at: usize| level(at).is_some_and(|own| within[at] < Some(own));
    // For each span, the innermost counted run around it or the span's own run.
    let mut owner = vec![NONE; tree.spans.len()];
    let mut runs: Vec<CountedRun> = Vec::new();
    for at in 0..tree.spans.len() {
        let outer = tree.caller(at as u32).map_or(NONE, |caller| owner[caller as usize]);
        owner[at] = outer;
        let (true, CountedAs::Shape(shape)) = (counts(at), reads[at]) else { continue };
        let host_ns = tree.spans[at].duration_ns;
        if let Some(outer) = runs.get_mut(outer as usize) {
            outer.host_ns = outer.host_ns.saturating_sub(host_ns);
        }
        owner[at] = runs.len() as u32;
        let at = at as u32;
        runs.push(CountedRun {
            at,
            shape,
            host_ns,
            device_ns: 0,
            launched: 0,
            longest: None,
            crosses: false,
        });
    }
    counted.runs = runs;
    let named = add_uncounted_hosts(tree, &reads, &within, &owner, &mut counted);
    add_devices(rank, tree, &reads, &owner, named, &mut counted);
    counted
}

/// Returns the work of the counted runs, each with its span's index in the tree.
pub fn counted_work(rank: &RankTrace<'_>, tree: &CallTree) -> Vec<(u32, Work)> {
    let counted = of(rank, tree);
    let work = |run: &CountedRun| (run.at, counted.shapes[run.shape as usize].work);
    counted.runs.iter().map(work).collect()
}

/// Determines the role of each span. Each argument text is parsed only once.
fn read(rank: &RankTrace<'_>, tree: &CallTree, counted: &mut CountedRuns) -> Vec<CountedAs> {
    let mut known: FxHashMap<(NameId, NameId), CountedAs> = FxHashMap::default();
    let shapes = &mut counted.shapes;
    let mut has_sizes = false;
    let mut of = |name: NameId, args: NameId| {
        *known.entry((name, args)).or_insert_with(|| {
            has_sizes |= rank.name(args).contains("\"Input Dims\"");
            match flops::of(rank.name(name), rank.name(args)) {
                Count::Nothing => CountedAs::Nothing,
                Count::Unread(why) => CountedAs::Unread(why),
                Count::Work(work) => {
                    shapes.push(SizedOperator { name, args, work });
                    CountedAs::Shape(shapes.len() as u32 - 1)
                }
            }
        })
    };
    let mut operators = 0;
    let one = |span: &tprof_rank::TreeSpan| match span.kind {
        SpanKind::Operator => {
            operators += 1;
            of(span.name, span.args)
        }
        _ => CountedAs::Nothing,
    };
    let reads = tree.spans.iter().map(one).collect();
    counted.operators = operators;
    counted.has_sizes = has_sizes;
    reads
}

/// Returns for each span the highest level of the spans within it.
fn levels_within(
    tree: &CallTree,
    reads: &[CountedAs],
    shapes: &[SizedOperator],
) -> Vec<Option<Level>> {
    let mut within: Vec<Option<Level>> = vec![None; tree.spans.len()];
    // Callers come before the spans that they call, so the loop runs backwards, from callees to
    // callers.
    for at in (0..tree.spans.len()).rev() {
        let own = match reads[at] {
            CountedAs::Shape(shape) => Some(shapes[shape as usize].work.family.level()),
            _ => None,
        };
        if let Some(caller) = tree.caller(at as u32) {
            let both = own.max(within[at]);
            let of_caller = &mut within[caller as usize];
            *of_caller = (*of_caller).max(both);
        }
    }
    within
}

/// Adds the host time of operators that don't count and that have no counting operator around or
/// within them. Of several such operators that are nested, only the innermost is added. Returns the
/// spans that were added.
fn add_uncounted_hosts(
    tree: &CallTree,
    reads: &[CountedAs],
    within: &[Option<Level>],
    owner: &[u32],
    counted: &mut CountedRuns,
) -> FxHashSet<u32> {
    let mut named = FxHashSet::default();
    let mut holds_unread = vec![false; reads.len()];
    for at in (0..reads.len()).rev() {
        let is_unread = matches!(reads[at], CountedAs::Unread(_));
        if let Some(caller) = tree.caller(at as u32) {
            holds_unread[caller as usize] |= is_unread || holds_unread[at];
        }
        let CountedAs::Unread(why) = reads[at] else { continue };
        if within[at].is_none() && owner[at] == NONE && !holds_unread[at] {
            let span = &tree.spans[at];
            let sum = counted.uncounted.entry((span.name, Some(why))).or_default();
            sum.runs += 1;
            sum.host_ns += span.duration_ns;
            named.insert(at as u32);
        }
    }
    named
}

fn add_devices(
    rank: &RankTrace<'_>,
    tree: &CallTree,
    reads: &[CountedAs],
    owner: &[u32],
    mut named: FxHashSet<u32>,
    counted: &mut CountedRuns,
) {
    counted.run_of_work.reserve(rank.work.len());
    for (at, work) in rank.work.iter().enumerate() {
        let place = rank.launches.call_of(at).and_then(|call| tree.of_call(call));
        let run = place.map_or(NONE, |place| owner[place as usize]);
        counted.run_of_work.push(Some(run).filter(|run| *run != NONE));
        if let Some(run) = counted.runs.get_mut(run as usize) {
            run.device_ns += work.duration_ns;
            run.launched += 1;
            run.crosses |= crosses(work.kind);
            if run.longest.is_none_or(|(longest, _)| work.duration_ns > longest) {
                run.longest = Some((work.duration_ns, work.name));
            }
            *counted.devices.entry(rank.stream(work).device).or_default() += work.duration_ns;
            continue;
        }
        // Collectives are left out here, since they have their own report.
        if work.class == Class::Communication {
            continue;
        }
        match place.and_then(|place| tree.innermost(place, SpanKind::Operator)) {
            Some(operator) => {
                let why = match reads[operator as usize] {
                    CountedAs::Unread(why) => Some(why),
                    CountedAs::Nothing => Some(WhyUncounted::NoFormula),
                    CountedAs::Shape(_) => None,
                };
                let name = tree.spans[operator as usize].name;
                let sum = counted.uncounted.entry((name, why)).or_default();
                sum.device_ns += work.duration_ns;
                if named.insert(operator) {
                    sum.runs += 1;
                    sum.host_ns += tree.spans[operator as usize].duration_ns;
                }
            }
            None => {
                counted.unowned.0 += 1;
                counted.unowned.1 += work.duration_ns;
            }
        }
    }
}

/// Whether a piece of work moves bytes between host and device, or between devices.
fn crosses(kind: WorkKind) -> bool {
    use tprof_trace::model::CopyKind::*;
    matches!(kind, WorkKind::Copy { kind: HostToDevice | DeviceToHost | PeerToPeer, .. })
}

//! Sums up the kernels, copies and memsets that ran on devices, by class and by name.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, View, boxed,
};
use tprof_rank::base::intervals::Cover;
use tprof_rank::base::names::{Names, short};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::base::stats::quantiles;
use tprof_rank::{Busy, Class, Needs, RankTrace, WINDOW_NEEDS, Work, WorkKind};
use tprof_trace::model::NameId;

use crate::gpu::breakdown::NO_WORK;
use crate::gpu::measured::{self, RankMeasured};
use crate::gpu::outside::{self, OutsideWork};
use crate::gpu::stalls::{self, RankStalls};

/// The report `kernels`.
pub const KIND: DocumentKind = DocumentKind {
    name: "kernels",
    about: "kernels and copies by kind and by name",
    analysis: || boxed(Kernels::default()),
};

/// Combinations of classes that can run at once. Bit mask of a combination: its index + 1.
pub const COMBINATIONS: [&str; 7] = [
    "compute",
    "communication",
    "compute + communication",
    "memory",
    "compute + memory",
    "communication + memory",
    "compute + communication + memory",
];

/// Runs of one kernel, or of one kind of copy.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRuns {
    /// Name of the kernel.
    pub name: Arc<str>,
    /// The class of the kernel: compute, communication or memory.
    pub class: Class,
    /// Number of runs.
    pub count: u64,
    /// Sum of the durations, ns.
    pub total_ns: u64,
    /// The shortest duration, ns.
    pub min_ns: u64,
    /// The longest duration, ns.
    pub max_ns: u64,
    /// Sum of the squared durations, in square nanoseconds. The standard deviation over several
    /// ranks is computed from this sum.
    squares: f64,
    /// The 50th, 95th and 99th percentile of the durations. `None` for a sum over several ranks,
    /// because the durations of single runs are dropped with each rank.
    pub quantiles_ns: Option<[f64; 3]>,
    /// Number of runs outside of the steps, and the sum of their durations. No other field includes
    /// these runs.
    pub outside: [u64; 2],
}

/// The quantiles of durations that the report shows.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];
/// The reason for missing quantiles in a sum over several ranks.
const SEVERAL: &str = "several ranks ran it: see `by_rank`";

impl KernelRuns {
    fn add(&mut self, other: &KernelRuns) {
        self.min_ns = match (self.count, other.count) {
            (_, 0) => self.min_ns,
            (0, _) => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.quantiles_ns = match (self.count, other.count) {
            (_, 0) => self.quantiles_ns,
            (0, _) => other.quantiles_ns,
            _ => None,
        };
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.squares += other.squares;
        self.outside = [0, 1].map(|at| self.outside[at] + other.outside[at]);
    }

    /// Mean of the durations, ns.
    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }

    /// Standard deviation of the durations; `None` for a single run.
    pub fn deviation_ns(&self) -> Option<f64> {
        let above = self.squares - self.mean_ns() * self.total_ns as f64;
        (self.count > 1).then(|| (above.max(0.0) / (self.count - 1) as f64).sqrt())
    }
}

/// The kernels that a rank ran in its steps; without steps, all of them.
#[derive(Clone, Debug, Default)]
pub struct RankKernels {
    /// Time in which exactly these classes ran, in the order of [`COMBINATIONS`]; summed over
    /// devices.
    pub combinations_ns: [u64; 7],
    /// Kernels by name and class, largest sum of durations first. Kernels that ran only outside of
    /// the steps come last.
    pub kernels: Vec<KernelRuns>,
    /// The work outside of the steps.
    pub outside: OutsideWork,
    /// Lines of the user's source from which kernels were generated, by kernel name, if a log of
    /// `torch.compile` has them.
    pub sources: BTreeMap<String, Vec<String>>,
    /// Samples of the kernels' instructions, of the whole recording.
    pub stalls: RankStalls,
    /// What samples of the devices' counters tell of them.
    pub measured: RankMeasured,
}

/// Sums up a rank's work by name.
pub fn of_rank(rank: &RankTrace<'_>, names: &Names) -> RankKernels {
    let mut found = RankKernels { kernels: by_name(rank, names), ..RankKernels::default() };
    let sources = rank.compile.kernel_sources().into_iter();
    let text = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
    found.sources = sources.map(|(name, lines)| (name.to_owned(), text(lines))).collect();
    found.outside = OutsideWork::of(rank);
    found.measured = measured::of_rank(rank, names);
    for (busy, _) in rank.judged_devices() {
        let sums = combinations(&busy);
        found.combinations_ns.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
    }
    found
}

/// Divides a device's busy time by the classes that ran at once. Returns the time of each
/// combination, ns.
fn combinations(busy: &Busy) -> [u64; 7] {
    let classes = [&busy.compute, &busy.communication, &busy.memory];
    let of = |bits: usize| {
        let mut part: Option<Cover> = None;
        for (at, class) in classes.iter().enumerate() {
            if bits & 1 << at != 0 {
                part = Some(part.map_or_else(|| (*class).clone(), |part| part.intersection(class)));
            }
        }
        let rest = |part: Cover, at: usize| match bits & 1 << at {
            0 => part.without(classes[at]),
            _ => part,
        };
        (0..3).fold(part.unwrap_or_default(), rest).length()
    };
    [1, 2, 3, 4, 5, 6, 7].map(of)
}

/// The key by which runs are grouped before their names are resolved.
type KernelKey = (NameId, WorkKind, Class);

/// Sums up a rank's kernels by name, largest sum of durations first. Each row contains the name,
/// the number of runs, and the sum. `counts` decides whether the sums include a piece of work; its
/// argument is the work's index.
pub fn sums_of_rank<'r>(
    rank: &'r RankTrace<'_>,
    counts: impl Fn(usize) -> bool,
) -> Vec<(Cow<'r, str>, u64, u64)> {
    let mut sums: FxHashMap<KernelKey, (&Work, u64, u64)> = FxHashMap::default();
    let rows = rank.work.iter().enumerate().filter(|(at, _)| counts(*at)).map(|(_, row)| row);
    for row in rows.filter(|row| row.class != Class::Memory) {
        let sum = sums.entry((row.name, row.kind, row.class)).or_insert((row, 0, 0));
        *sum = (sum.0, sum.1 + 1, sum.2 + row.duration_ns);
    }
    let mut kernels: Vec<_> = sums
        .into_values()
        .map(|(row, count, ns)| (rank.work_name(row), row.class, count, ns))
        .collect();
    kernels.sort_rows_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    kernels.dedup_by(|next, kept| {
        let equal = (&next.0, next.1) == (&kept.0, kept.1);
        if equal {
            (kept.2, kept.3) = (kept.2 + next.2, kept.3 + next.3);
        }
        equal
    });
    kernels.sort_rows_by_key(|row| Reverse(row.3));
    kernels.into_iter().map(|(name, _, count, ns)| (name, count, ns)).collect()
}

fn by_name(rank: &RankTrace<'_>, names: &Names) -> Vec<KernelRuns> {
    /// Durations of the runs in the steps; then the number of runs outside, and the sum of their
    /// durations.
    type Durations = (Vec<u64>, [u64; 2]);
    let mut runs: FxHashMap<KernelKey, (Arc<str>, Durations)> = FxHashMap::default();
    for (row, is_judged) in rank.work.iter().zip(rank.is_judged()) {
        let name = || (names.get(&rank.work_name(row)), Durations::default());
        let (_, (durations, outside)) =
            runs.entry((row.name, row.kind, row.class)).or_insert_with(name);
        match is_judged {
            true => durations.push(row.duration_ns),
            false => *outside = [outside[0] + 1, outside[1] + row.duration_ns],
        }
    }
    let of = |((_, _, class), (name, (durations, outside)))| KernelRuns {
        outside,
        ..runs_of(name, class, durations)
    };
    let mut kernels: Vec<KernelRuns> = runs.into_iter().map(of).collect();
    join_equal(&mut kernels);
    kernels
}

fn runs_of(name: Arc<str>, class: Class, mut durations: Vec<u64>) -> KernelRuns {
    let ran = !durations.is_empty();
    let quantiles_ns = ran.then(|| quantiles(&mut durations, QUANTILES));
    KernelRuns {
        name,
        class,
        count: durations.len() as u64,
        total_ns: durations.iter().sum(),
        min_ns: durations.first().copied().unwrap_or(0),
        max_ns: durations.last().copied().unwrap_or(0),
        squares: durations.iter().map(|duration| (*duration as f64).powi(2)).sum(),
        quantiles_ns,
        outside: [0, 0],
    }
}

/// Joins rows with the same name and class, and sorts them by the sum of durations, largest first.
fn join_equal(kernels: &mut Vec<KernelRuns>) {
    kernels.sort_rows_by(|a, b| (&a.name, a.class).cmp(&(&b.name, b.class)));
    kernels.dedup_by(|next, kept| {
        let equal = (&next.name, next.class) == (&kept.name, kept.class);
        if equal {
            kept.add(next);
        }
        equal
    });
    kernels.sort_rows_by_key(|row| Reverse((row.total_ns, row.outside[1])));
}

/// Kernels by class and name: `tprof report kernels`.
#[derive(Default)]
struct Kernels {
    names: Names,
}

impl Analysis for Kernels {
    const KIND: &'static str = KIND.name;
    const TAKES: &'static [&'static str] = &["--stalls"];
    type Part = RankKernels;

    fn needs(&self, _: &Options) -> Needs {
        WINDOW_NEEDS | Needs::COMPILE
    }

    fn rank(&self, rank: &RankTrace<'_>, _: &RankContext, options: &Options) -> RankKernels {
        let stalls = match options.stalls || options.data {
            true => stalls::of_rank(rank),
            false => RankStalls::default(),
        };
        RankKernels { stalls, ..of_rank(rank, &self.names) }
    }

    fn join(&self, parts: Vec<(RankContext, RankKernels)>, options: &Options) -> Body {
        let stalls: Vec<_> = parts.iter().map(|(at, part)| (at, &part.stalls)).collect();
        if options.stalls && !options.data {
            let notes = stalls::notes(&stalls, options.is_of_part());
            return Body { tables: stalls::tables(&stalls), notes };
        }
        let measured = measured::join(parts.iter().map(|(at, part)| (at, &part.measured)));
        let mut tables = vec![by_kind(&parts), all_ranks(&parts)];
        if measured.is_sampled {
            tables.push(measured::table(&measured));
        } else if options.data {
            tables.push(measured::table(&measured).view(View::Data));
        }
        let mut notes = outside::note(parts.iter().map(|(_, part)| part.outside));
        if options.data {
            tables.push(by_rank(&parts));
        }
        // Most runs are not sampled, and then the tables are only made where they are asked for.
        let has_stalls = parts.is_empty() || parts.iter().any(|(_, part)| !part.stalls.is_none());
        if options.stalls || options.data && has_stalls {
            tables.extend(stalls::tables(&stalls));
            notes.extend(stalls::notes(&stalls, options.is_of_part()));
        }
        notes.extend(measured.shared);
        Body { tables, notes }
    }
}

fn by_kind(parts: &[(RankContext, RankKernels)]) -> Table {
    let columns = vec![
        Column::new("kind", "running", Unit::Text),
        Column::new("total_ns", "time", Unit::Duration),
        Column::new("share", "of busy time", Unit::Share),
    ];
    let mut table = Table::new("kinds", "Classes at once", columns)
        .about("unions of intervals, summed over devices and ranks")
        .empty(NO_WORK);
    let sum = |at: usize| parts.iter().map(|(_, part)| part.combinations_ns[at]).sum::<u64>();
    let mut sums: Vec<(&str, u64)> =
        COMBINATIONS.iter().enumerate().map(|(at, name)| (*name, sum(at))).collect();
    let busy: u64 = sums.iter().map(|row| row.1).sum();
    sums.retain(|row| row.1 > 0);
    sums.sort_rows_by_key(|row| Reverse(row.1));
    for (name, total_ns) in sums {
        table.row(vec![name.into(), total_ns.into(), (total_ns as f64 / busy as f64).into()]);
    }
    table
}

fn all_ranks(parts: &[(RankContext, RankKernels)]) -> Table {
    let sources = sources(parts);
    let has_outside = parts.iter().any(|(_, part)| part.outside.outside > 0);
    let columns = vec![
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("share", "share", Unit::Share),
        Column::new("count", "runs", Unit::Count),
        Column::new("mean_ns", "mean", Unit::Duration),
        Column::data("deviation_ns", Unit::Duration),
        Column::data("min_ns", Unit::Duration),
        Column::data("max_ns", Unit::Duration),
        Column::data("p50_ns", Unit::Duration),
        Column::data("p95_ns", Unit::Duration),
        Column::data("p99_ns", Unit::Duration),
        Column::data("class", Unit::Text),
        Column::data("outside_count", Unit::Count),
        Column::new("outside_ns", if has_outside { "outside steps" } else { "" }, Unit::Duration),
        Column::data("name", Unit::Name),
        Column::new("source", if sources.is_empty() { "" } else { "source" }, Unit::Text),
        Column::new("short_name", "name", Unit::Name),
    ];
    let mut kernels: Vec<KernelRuns> =
        parts.iter().flat_map(|(_, part)| part.kernels.iter().cloned()).collect();
    join_equal(&mut kernels);
    let all: u64 = kernels.iter().map(|row| row.total_ns).sum();
    let mut table = Table::new("kernels", "Kernels and copies by total time", columns)
        .about(match has_outside {
            true => {
                "durations are summed, overlaps included; share: of this sum; outside steps: of runs \
                 before, between and after the steps, which count nowhere else"
            }
            false => "durations are summed, overlaps included; share: of this sum",
        })
        .empty(NO_WORK);
    for row in &kernels {
        let mut cells = vec![row.total_ns.into(), (row.total_ns as f64 / all.max(1) as f64).into()];
        cells.extend(statistics(row));
        let source = sources.get(&*row.name);
        cells.push(Cell::applies(source.map(|lines| lines.join(", "))));
        cells.push(short(&row.name).into());
        table.row(cells);
    }
    table
}

/// Merges the source lines of kernels over all ranks.
fn sources(parts: &[(RankContext, RankKernels)]) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, lines) in parts.iter().flat_map(|(_, part)| &part.sources) {
        let known = found.entry(name).or_default();
        known.extend(lines.iter().map(String::as_str));
        known.sort_unstable();
        known.dedup();
    }
    found
}

/// Returns the cells of a row: count, mean, deviation, lowest, highest, quantiles, class, runs
/// outside of the steps, name.
fn statistics(row: &KernelRuns) -> [Cell; 12] {
    let ran = row.count > 0;
    let quantile = |at: usize| match ran {
        true => Cell::known(row.quantiles_ns.map(|all| all[at]), SEVERAL),
        false => Cell::Empty,
    };
    [
        row.count.into(),
        Cell::applies(ran.then(|| row.mean_ns())),
        Cell::applies(row.deviation_ns()),
        Cell::applies(ran.then_some(row.min_ns)),
        Cell::applies(ran.then_some(row.max_ns)),
        quantile(0),
        quantile(1),
        quantile(2),
        row.class.name().into(),
        row.outside[0].into(),
        row.outside[1].into(),
        (&*row.name).into(),
    ]
}

fn by_rank(parts: &[(RankContext, RankKernels)]) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("total_ns", "total", Unit::Duration),
        Column::new("count", "runs", Unit::Count),
        Column::new("mean_ns", "mean", Unit::Duration),
        Column::new("deviation_ns", "std dev", Unit::Duration),
        Column::new("min_ns", "min", Unit::Duration),
        Column::new("max_ns", "max", Unit::Duration),
        Column::new("p50_ns", "p50", Unit::Duration),
        Column::new("p95_ns", "p95", Unit::Duration),
        Column::new("p99_ns", "p99", Unit::Duration),
        Column::new("class", "kind", Unit::Text),
        Column::data("outside_count", Unit::Count),
        Column::data("outside_ns", Unit::Duration),
        Column::new("name", "name", Unit::Name),
    ];
    let mut table = Table::new("by_rank", "Kernels and copies by rank", columns)
        .view(View::Data)
        .empty(NO_WORK);
    for (at, part) in parts {
        for row in &part.kernels {
            let mut cells = vec![at.label.as_str().into(), row.total_ns.into()];
            cells.extend(statistics(row));
            table.row(cells);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tprof_fixture::Fixture;
    use tprof_trace::model::{CopyKind, Kernel, MemoryCopy};

    use super::*;

    fn rows(rows: &[(u64, u64, &str)]) -> RankKernels {
        let mut made = Fixture::new();
        for &(start_ns, duration_ns, name) in rows {
            if name.starts_with("Mem") {
                let kind = CopyKind::HostToDevice;
                let row = MemoryCopy { start_ns, duration_ns, kind, ..MemoryCopy::default() };
                made.copy(row, name);
            } else {
                made.kernel(Kernel { start_ns, duration_ns, ..Kernel::default() }, name);
            }
        }
        let file = made.finish();
        of_rank(&RankTrace::load(&file, Needs::WORK), &Names::default())
    }

    #[test]
    fn runs_are_summed_by_name_and_time_by_combination_of_classes() {
        let found = rows(&[
            (0, 10, "gemm"),
            (5, 10, "ncclKernel_AllReduce"),
            (12, 4, "Memcpy HtoD (Pageable -> Device)"),
            (20, 2, "gemm"),
            (20, 4, "Memcpy HtoD (Pageable -> Device)"),
        ]);
        assert_eq!(found.combinations_ns, [5, 2, 5, 3, 2, 3, 0]);
        let gemm = &found.kernels[0];
        assert_eq!((&*gemm.name, gemm.count, gemm.total_ns), ("gemm", 2, 12));
        assert_eq!((gemm.min_ns, gemm.max_ns, gemm.mean_ns()), (2, 10, 6.0));
        assert!((gemm.deviation_ns().unwrap() - 32_f64.sqrt()).abs() < 1e-9);
        assert_eq!(gemm.quantiles_ns, Some([6.0, 9.6, 9.92]));
        assert_eq!(found.kernels[1].deviation_ns(), None);
        assert_eq!(found.kernels[2].class, Class::Memory);
    }

    proptest! {
        #[test]
        fn combinations_sum_to_busy_time_in_any_order(
            made in prop::collection::vec((0_u64..40, 1_u64..9, 0_usize..3), 1..16),
        ) {
            let names = ["gemm", "nccl", "Memset (Device)"];
            let mut list: Vec<(u64, u64, &str)> =
                made.iter().map(|&(start, length, kind)| (start, length, names[kind])).collect();
            let cover: Cover = list
                .iter()
                .map(|row| tprof_rank::base::intervals::Interval::new(row.0, row.0 + row.1))
                .collect();
            let found = rows(&list);
            prop_assert_eq!(found.combinations_ns.iter().sum::<u64>(), cover.length());
            list.reverse();
            prop_assert_eq!(rows(&list).combinations_ns, found.combinations_ns);
        }
    }
}

//! Counts the device work outside of the steps. If a rank has steps, reports on devices cover only
//! the steps and use these counts to say what they leave out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit};
use tprof_facts::units::{count, duration};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Busy, Class, DeviceWindow, RankTrace};

/// The kernels, copies and memsets of a rank that began outside of its devices' steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideWork {
    /// Whether the rank has steps. Without steps, nothing is left out.
    pub has_steps: bool,
    /// Number of recorded kernels, copies and memsets.
    pub all: u64,
    /// Number of kernels, copies and memsets that began outside of the steps.
    pub outside: u64,
    /// The sum of the durations of the work outside of the steps.
    pub outside_ns: u64,
    /// Whether any of the work outside of the steps is communication.
    pub communicates: bool,
}

impl OutsideWork {
    /// Counts the work of a rank.
    pub fn of(rank: &RankTrace<'_>) -> OutsideWork {
        let has_steps = rank.device_windows().iter().any(|window| window.steps > 0);
        let mut found =
            OutsideWork { has_steps, all: rank.work.len() as u64, ..OutsideWork::default() };
        let outside = rank.work.iter().zip(rank.is_judged()).filter(|(_, is_judged)| !is_judged);
        for (row, _) in outside {
            found.outside += 1;
            found.outside_ns += row.duration_ns;
            found.communicates |= row.class == Class::Communication;
        }
        found
    }
}

/// Returns the note for reports that leave out work outside of the steps; empty if no rank has
/// steps.
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

/// The rows that a report leaves out because they lie outside of all steps, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutRows {
    /// Whether the rank has steps. Without steps, nothing is left out.
    has_steps: bool,
    /// Number of all rows, left out or not.
    all: u64,
    /// For each name, the number of rows that are left out and the sum of their durations, ns.
    by_name: BTreeMap<String, [u64; 2]>,
}

impl LeftOutRows {
    /// Starts counting the rows of a rank.
    pub fn of(rank: &RankTrace<'_>) -> LeftOutRows {
        let has_steps = rank.device_windows().iter().any(|window| window.steps > 0);
        LeftOutRows { has_steps, ..LeftOutRows::default() }
    }

    /// Counts a row. A row that isn't judged is also added to the rows that are left out.
    pub fn count(&mut self, is_judged: bool, duration_ns: u64, name: impl FnOnce() -> String) {
        self.all += 1;
        if !is_judged {
            let [count, sum_ns] = self.by_name.entry(name()).or_default();
            *count += 1;
            *sum_ns = sum_ns.saturating_add(duration_ns);
        }
    }

    /// Returns the number of rows that are left out and the sum of their durations, ns.
    fn sum(&self) -> [u64; 2] {
        let sum = |of: usize| self.by_name.values().map(|row| row[of]).fold(0, u64::saturating_add);
        [sum(0), sum(1)]
    }
}

/// The reason for an empty table when all of its rows lie outside of the steps.
const ONLY_OUTSIDE: &str = "none lies in the steps, only outside of them (see `outside_of_steps`)";

/// Adds to a report the rows of each rank that it leaves out: a note, and a table if a row is left
/// out. `what` is the noun for the rows, such as `calls`. `tables` are keys of tables of the
/// report. If such a table is empty, its text says that all rows lie outside of the steps.
pub fn add_left_out<'p>(
    body: &mut Body,
    what: &str,
    tables: &[&str],
    parts: impl Iterator<Item = (&'p RankContext, &'p LeftOutRows)> + Clone,
) {
    if !parts.clone().any(|(_, part)| part.has_steps) {
        return;
    }
    let sums: Vec<[u64; 2]> = parts.clone().map(|(_, part)| part.sum()).collect();
    let [outside, outside_ns]: [u64; 2] =
        [0, 1].map(|of: usize| sums.iter().map(|sum| sum[of]).fold(0, u64::saturating_add));
    if outside == 0 {
        body.notes.push(format!("of the steps; no {what} lie outside of them"));
        return;
    }
    let all = parts.clone().map(|(_, part)| part.all).sum();
    body.notes.push(format!(
        "of the steps: {} of {} {what}, {} in all, lie before, between or after them (see \
         `outside_of_steps`)",
        count(outside),
        count(all),
        duration(outside_ns)
    ));
    for table in &mut body.tables {
        if table.rows.is_empty() && tables.contains(&table.key) {
            ONLY_OUTSIDE.clone_into(&mut table.empty);
        }
    }
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("outside_ns", "total", Unit::Duration),
        Column::new("outside_count", "count", Unit::Count),
        Column::new("name", "name", Unit::Name),
    ];
    let mut table = Table::new("outside_of_steps", "Outside of the steps", columns)
        .about("before, between and after the steps; counted nowhere else here");
    let rows = parts.flat_map(|(at, part)| part.by_name.iter().map(move |row| (at, row)));
    let mut rows: Vec<(&RankContext, (&String, &[u64; 2]))> = rows.collect();
    rows.sort_rows_by_key(|(_, (_, [_, sum_ns]))| Reverse(*sum_ns));
    for (at, (name, [count, sum_ns])) in rows {
        table.row(vec![
            at.label.as_str().into(),
            (*sum_ns).into(),
            (*count).into(),
            name.as_str().into(),
        ]);
    }
    body.tables.push(table);
}

/// A part of a device's time outside of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePart {
    /// The name of the part: before, between or after the steps.
    pub name: &'static str,
    /// Length of the part, ns.
    pub window_ns: u64,
    /// Time in the part in which the device did anything, ns.
    pub busy_ns: u64,
}

/// Returns the parts of a device's time outside of its steps; empty if all of its time is judged.
pub fn parts(busy: &Busy, window: &DeviceWindow) -> Vec<OutsidePart> {
    if window.is_whole() {
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
    let all = [part("before the first step", before), between, part("after the last step", after)];
    all.into_iter().filter(|part| part.window_ns > 0).collect()
}

/// Makes the table of the parts outside of the steps, of all devices.
pub fn table(rows: &[(&RankContext, Option<u32>, OutsidePart)]) -> Table {
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

#[cfg(test)]
mod tests {
    use tprof_document::{DocumentKind, Options};
    use tprof_fixture::Fixture;
    use tprof_rank::base::names::Names;
    use tprof_rank::{Needs, WINDOW_NEEDS};
    use tprof_trace::TraceFile;
    use tprof_trace::model::{CopyKind, Kernel, MemoryCopy, Span, SpanKind};

    use super::*;
    use crate::gpu::{
        api, bandwidth, breakdown, comm, gemms, host_overlap, idle, kernels, launches, memcpy,
        overlap, queue, stragglers,
    };

    /// A file with a warm-up of one kernel, then two steps, then one more kernel. Each step has a
    /// kernel and a collective, one after the other on the device.
    fn file() -> TraceFile {
        let mut made = Fixture::new();
        for (number, start_ns) in [(1, 100), (2, 110)] {
            let row =
                Span { start_ns, duration_ns: 10, kind: SpanKind::Annotation, ..Span::default() };
            made.span(row, &format!("ProfilerStep#{number}"));
            let row = Span { start_ns, duration_ns: 8, ..Span::default() };
            made.span(Span { kind: SpanKind::Operator, ..row }, "aten::mm");
        }
        let runs = [
            (10, 20, 30, "init"),
            (101, 105, 155, "gemm"),
            (102, 155, 165, "ncclDevKernel_AllReduce"),
            (111, 175, 225, "gemm"),
            (112, 225, 235, "ncclDevKernel_AllReduce"),
            (300, 310, 330, "gemm"),
        ];
        for ((at, start_ns, end_ns, name), number) in runs.into_iter().zip(1..) {
            made.call(0, at, 1, "cudaLaunchKernel", number);
            let (duration_ns, correlation) = (end_ns - start_ns, Some(number));
            made.kernel(Kernel { start_ns, duration_ns, correlation, ..Kernel::default() }, name);
        }
        made.finish()
    }

    #[test]
    fn reports_on_devices_cover_only_steps_and_list_the_rest() {
        let file = file();
        let rank = RankTrace::load(&file, WINDOW_NEEDS | Needs::ALL_SPANS);
        let [time] = breakdown::of_rank(&rank)[..] else { panic!("not one device") };
        // The steps last from 100 to 235.
        assert_eq!((time.steps, time.window_ns), (2, 135));
        assert_eq!((time.compute_ns, time.exposed_ns, time.idle_ns), (100, 20, 15));
        let idle = idle::of_rank(&rank);
        assert_eq!((idle.streams[0].busy_ns, idle.streams[0].idle_ns), (120, [5, 10, 0, 0]));
        let outside = OutsideWork {
            has_steps: true,
            all: 6,
            outside: 2,
            outside_ns: 30,
            communicates: false,
        };
        assert_eq!(idle.outside, outside);
        let [of_kernels] = &overlap::of_rank(&rank, &Names::default())[..] else { panic!() };
        assert_eq!((of_kernels.communication_ns, of_kernels.window_ns), (20, 135));
        assert_eq!(of_kernels.kernels[0].count, 2);
        let found = kernels::of_rank(&rank, &Names::default());
        assert_eq!(found.combinations_ns[..2], [100, 20]);
        let runs: Vec<_> =
            found.kernels.iter().map(|row| (&*row.name, row.count, row.outside)).collect();
        let gemm = ("gemm", 2, [1, 20]);
        let expected = [gemm, ("ncclDevKernel_AllReduce", 2, [0, 0]), ("init", 0, [1, 10])];
        assert_eq!(runs, expected);
        let queues = queue::of_rank(&rank, false);
        let waits = [(101, 105), (102, 155), (111, 175), (112, 225)];
        let waited: u64 = waits.iter().map(|(from, to)| to - from).sum();
        assert!((queues.streams[0].mean * 135.0 - waited as f64).abs() < 1e-9);
        let host_overlap = host_overlap::of_rank(&rank).unwrap();
        assert_eq!((host_overlap.window_ns, host_overlap.gpu_ns), (135, 120));
        assert_eq!(host_overlap.host.map(|host| host.host_ns), Some(16));
        let text = &note([outside])[0];
        assert!(
            text.starts_with("of the steps: 2 of 6 kernels and copies, 30 ns in all"),
            "{text}"
        );
    }

    /// Returns the cells of the columns `keys` of one table.
    fn cells(body: &Body, table: &str, keys: &[&str]) -> Vec<Vec<Cell>> {
        let table = body.tables.iter().find(|of| of.key == table).unwrap();
        let at = |key: &&str| table.columns.iter().position(|column| column.key == *key).unwrap();
        let places: Vec<usize> = keys.iter().map(at).collect();
        table.rows.iter().map(|row| places.iter().map(|at| row[*at].clone()).collect()).collect()
    }

    /// Makes a report on a file; with Holistic Trace Analysis's reading if `hta`.
    fn made(kind: &DocumentKind, file: &TraceFile, hta: bool) -> Body {
        let analysis = (kind.analysis)();
        let options = Options { data: true, hta, ..Options::default() };
        let rank = RankTrace::load_as(file, analysis.needs(&options), hta, 1);
        let at = RankContext {
            rank: Some(0),
            label: "rank 0".to_owned(),
            file: String::new(),
            clock: tprof_facts::Clock::default(),
            machine: Default::default(),
        };
        analysis.rank(0, &rank, &at, &options);
        analysis.finish(&options)
    }

    /// Like [`file`], but with more rows. Before the steps there is also a collective. Before the
    /// steps and in the first step there are a copy, a call that starts nothing, and a
    /// multiplication.
    fn file_of_copies() -> TraceFile {
        let mut made = Fixture::new();
        for (number, start_ns) in [(1, 100), (2, 200)] {
            let row =
                Span { start_ns, duration_ns: 90, kind: SpanKind::Annotation, ..Span::default() };
            made.span(row, &format!("ProfilerStep#{number}"));
        }
        let category = made.name("cublas");
        let args = made.name(
            r#"{"m":2,"n":3,"k":5,"batch":1,"transposed":"NN","a":"Half","b":"Half","c":"Half","flops":60}"#,
        );
        // The device begins the last work of the first step only after that step has ended on the
        // host.
        for (number, at, ran_ns) in [(0, 10, 20), (10, 101, 290), (20, 201, 400)] {
            let launched = |made: &mut Fixture, after: u64, name: &str| {
                made.call(0, at + after, 1, name, number + after);
                let (start_ns, duration_ns) = (ran_ns + 10 * after, 10);
                (start_ns, duration_ns, Some(number + after))
            };
            let (start_ns, duration_ns, correlation) = launched(&mut made, 1, "cudaLaunchKernel");
            let row = Kernel { start_ns, duration_ns, correlation, ..Kernel::default() };
            made.kernel(row, "gemm");
            let kind = SpanKind::Other;
            let span =
                Span { start_ns: at, duration_ns: 3, kind, category, args, ..Span::default() };
            made.span(span, "cublasGemmEx");
            let (start_ns, duration_ns, correlation) = launched(&mut made, 4, "cudaMemcpyAsync");
            let (bytes, kind) = (Some(1000), CopyKind::HostToDevice);
            let row = MemoryCopy {
                start_ns,
                duration_ns,
                correlation,
                bytes,
                kind,
                ..MemoryCopy::default()
            };
            made.copy(row, "");
            let (start_ns, duration_ns, correlation) = launched(&mut made, 6, "cudaLaunchKernel");
            let row = Kernel { start_ns, duration_ns, correlation, ..Kernel::default() };
            made.kernel(row, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
            made.call(0, at + 8, 1, "cudaMalloc", 0);
        }
        made.finish()
    }

    #[test]
    fn every_report_on_devices_says_what_it_leaves_out() {
        let file = file_of_copies();
        let kinds = [
            (memcpy::KIND, "cuda_gpu_mem_time_sum", "count", vec!["Memcpy HtoD"]),
            (bandwidth::KIND, "bandwidth", "count", vec!["Memcpy HtoD"]),
            (gemms::KIND, "gemms", "calls", vec!["cublasGemmEx"]),
            (launches::KIND, "launches", "calls", vec!["cudaLaunchKernel", "cudaMemcpyAsync"]),
            (
                api::KIND,
                "cuda_api_sum",
                "count",
                vec!["cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync"],
            ),
            (comm::KIND, "comm", "calls", vec!["all_reduce"]),
            (stragglers::KIND, "load", "compute_ns", vec!["all_reduce"]),
        ];
        for (kind, table, count, names) in kinds {
            let body = made(&kind, &file, false);
            let mut counts: Vec<Cell> =
                cells(&body, table, &[count]).into_iter().flatten().collect();
            counts.sort_by_key(|cell| format!("{cell:?}"));
            let expected: &[u64] = match kind.name {
                "launches" => &[2, 4],
                "api" => &[2, 2, 4],
                // This report counts only the collective in the steps.
                "stragglers" => &[10],
                _ => &[2],
            };
            assert_eq!(
                counts,
                expected.iter().map(|n| Cell::from(*n)).collect::<Vec<_>>(),
                "{}",
                kind.name
            );
            let mut outside: Vec<Cell> =
                cells(&body, "outside_of_steps", &["name"]).into_iter().flatten().collect();
            outside.sort_by_key(|cell| format!("{cell:?}"));
            assert_eq!(outside, names.iter().map(|name| Cell::from(*name)).collect::<Vec<_>>());
            let note = body.notes.iter().find(|note| note.starts_with("of the steps: "));
            assert!(note.is_some_and(|note| note.contains(" of ")), "{:?}", body.notes);
            // Holistic Trace Analysis reads whole traces, so its reports leave nothing out.
            let whole = made(&kind, &file, true);
            assert!(whole.tables.iter().all(|table| table.key != "outside_of_steps"));
            assert!(whole.notes.iter().all(|note| !note.contains("of the steps")));
        }
    }

    #[test]
    fn time_outside_of_the_steps_has_its_own_table() {
        let file = file();
        let rank = RankTrace::load(&file, WINDOW_NEEDS);
        let found = parts(&rank.devices()[0], &rank.device_windows()[0]);
        let part = |name, window_ns, busy_ns| OutsidePart { name, window_ns, busy_ns };
        let expected = [part("before the first step", 80, 10), part("after the last step", 95, 20)];
        assert_eq!(found, expected);
        let whole = RankTrace::load(&file, Needs::WORK);
        assert_eq!(parts(&whole.devices()[0], &whole.device_windows()[0]), []);
        assert!(note([OutsideWork::of(&whole)]).is_empty());
    }
}

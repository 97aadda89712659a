//! Reads from each kind of report how much of each thing it counts, by rank.

use serde_json::Value;
use std::collections::BTreeMap;

/// Something that reports count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Work,
    Kernels,
    Computes,
    Communicates,
    Copies,
    HostCopies,
    Calls,
    CudaCalls,
    Waits,
    MemoryCalls,
    SynchronousCopies,
    SynchronousMemsets,
    Launches,
    Operators,
    OperatorLaunches,
    OperatorSizes,
    Ranges,
    Nvtx,
    Loading,
    Images,
    Steps,
    StreamGaps,
    DeviceMemory,
    DeviceTotals,
    Heap,
    Rss,
    Samples,
    Gauges,
    HardwareCounters,
    Gemms,
    Met,
}

use Subject::*;

/// The place where a kind of report counts something: rows of a table, and the amount of each row.
struct Source {
    subject: Subject,
    kind: &'static str,
    table: &'static str,
    /// Whether the table counts everything that was recorded. If it has none, no other table may
    /// have any.
    whole: bool,
    /// Whether the amounts are comparable with those of other sources that have this flag.
    counts: bool,
    amount: fn(&Value) -> f64,
}

const fn whole(
    subject: Subject,
    kind: &'static str,
    table: &'static str,
    amount: fn(&Value) -> f64,
) -> Source {
    Source { subject, kind, table, whole: true, counts: false, amount }
}

const fn part(
    subject: Subject,
    kind: &'static str,
    table: &'static str,
    amount: fn(&Value) -> f64,
) -> Source {
    Source { subject, kind, table, whole: false, counts: false, amount }
}

const fn counted(
    subject: Subject,
    kind: &'static str,
    table: &'static str,
    amount: fn(&Value) -> f64,
) -> Source {
    Source { counts: true, ..whole(subject, kind, table, amount) }
}

const SOURCES: &[Source] = &[
    whole(Work, "summary", "ranks", |row| present(&row["gpu"])),
    whole(Work, "breakdown", "breakdown", one),
    whole(Work, "idle", "idle", one),
    whole(Work, "overlap", "overlap", one),
    whole(Work, "kernels", "by_rank", count),
    part(Work, "launches", "launches", |row| number(row, "work")),
    counted(Kernels, "summary", "ranks", |row| number(&row["gpu"], "kernels")),
    counted(Kernels, "kernels", "by_rank", |row| of_class(row, &["compute", "communication"])),
    part(Computes, "breakdown", "breakdown", |row| sum(row, &["compute_ns", "overlapped_ns"])),
    whole(Computes, "kernels", "by_rank", |row| of_class(row, &["compute"])),
    part(Computes, "stragglers", "load", |row| number(row, "compute_ns")),
    part(Computes, "critical-path", "critical_path", |row| number(row, "compute_ns")),
    counted(Communicates, "summary", "ranks", |row| number(&row["gpu"], "communication_kernels")),
    part(Communicates, "breakdown", "breakdown", |row| sum(row, &["exposed_ns", "overlapped_ns"])),
    part(Communicates, "overlap", "overlap", |row| number(row, "communication_ns")),
    counted(Communicates, "kernels", "by_rank", |row| of_class(row, &["communication"])),
    counted(Communicates, "comm", "comm_by_rank", calls),
    part(Communicates, "critical-path", "critical_path", |row| number(row, "communication_ns")),
    counted(Copies, "kernels", "by_rank", |row| of_class(row, &["memory"])),
    counted(Copies, "bandwidth", "bandwidth", count),
    counted(Copies, "memcpy", "cuda_gpu_mem_time_sum", count),
    counted(HostCopies, "bandwidth", "bandwidth", |row| between_host(row, "kind")),
    counted(HostCopies, "memcpy", "cuda_gpu_mem_time_sum", |row| between_host(row, "operation")),
    whole(Calls, "api", "cuda_api_sum", count),
    part(Calls, "launches", "launches", calls),
    part(CudaCalls, "api", "cuda_api_sum", |row| {
        f64::from(["cu", "hip"].iter().any(|start| text(row, "name").starts_with(start)))
    }),
    whole(Waits, "api", "cuda_api_sum", |row| named(row, "name", &["Synchronize"])),
    whole(MemoryCalls, "api", "cuda_api_sum", |row| {
        f64::from(["cudaMalloc", "cudaFree", "hipMalloc", "hipFree"].contains(&text(row, "name")))
    }),
    whole(SynchronousCopies, "api", "cuda_api_sum", |row| {
        f64::from(["cudaMemcpy", "hipMemcpyWithStream"].contains(&text(row, "name")))
    }),
    whole(SynchronousMemsets, "api", "cuda_api_sum", |row| {
        f64::from(["cudaMemset", "hipMemset"].contains(&text(row, "name")))
    }),
    whole(Launches, "launches", "launches", calls),
    whole(Launches, "queue", "queue", one),
    whole(Operators, "operators", "operators_by_rank", |row| number(row, "runs")),
    whole(OperatorLaunches, "operators", "kernel_sequences_by_rank", |row| number(row, "runs")),
    whole(OperatorLaunches, "operators", "operators_by_rank", |row| number(row, "kernels")),
    part(OperatorSizes, "operators", "shapes", |row| number(row, "runs")),
    whole(Ranges, "annotations", "annotations", |row| number(row, "runs")),
    part(Ranges, "nvtx", "nvtx_pushpop_sum", count),
    part(Ranges, "nvtx", "nvtx_startend_sum", count),
    part(Nvtx, "nvtx", "nvtx_pushpop_sum", count),
    part(Loading, "annotations", "annotations", |row| named(row, "range", &LOADING)),
    part(Loading, "operators", "operators_by_rank", |row| named(row, "operator", &LOADING)),
    whole(Images, "annotations", "device_annotations", |row| number(row, "spans")),
    whole(Steps, "steps", "steps", one),
    part(Steps, "annotations", "annotations", |row| named(row, "range", &["ProfilerStep#"])),
    whole(StreamGaps, "idle", "idle", |row| number(row, "idle_ns")),
    whole(StreamGaps, "idle", "gap_lengths", |row| number(row, "gaps")),
    part(StreamGaps, "idle", "longest", one),
    whole(DeviceMemory, "device-memory", "pools", |row| present(&row["device"])),
    part(DeviceMemory, "device-memory", "categories", one),
    part(DeviceTotals, "device-memory", "pools", |row| {
        present(&row["device"]) * present(&row["peak_reserved_bytes"])
    }),
    counted(Heap, "summary", "ranks", |row| number(&row["host_memory"], "allocations")),
    counted(Heap, "memory", "ranks", |row| number(&row["host_memory"], "allocations")),
    whole(Rss, "summary", "ranks", |row| present(&row["timeline"]["rss_peak_bytes"])),
    whole(Rss, "memory", "ranks", |row| present(&row["timeline"]["rss_peak_bytes"])),
    part(Samples, "cpu", "functions", one),
    part(Samples, "threads", "threads", one),
    whole(Gauges, "counters", "counters", one),
    whole(HardwareCounters, "counters", "hardware_counters", one),
    whole(HardwareCounters, "counters", "counter_ranges", one),
    whole(Gemms, "gemms", "gemms", one),
    whole(Met, "stragglers", "late_arrivals", |row| number(row, "collectives")),
];

/// Names that the rule DataLoadBound looks for, as far as these traces use them.
const LOADING: [&str; 2] = ["dataloader", "data_load"];

fn one(_: &Value) -> f64 {
    1.0
}

/// Counts a row's events, including those outside of the steps, which `kernels` lists separately.
fn count(row: &Value) -> f64 {
    sum(row, &["count", "outside_count"])
}

/// Counts a row's calls, including those outside of the steps.
fn calls(row: &Value) -> f64 {
    sum(row, &["calls", "outside_count"])
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(0.0)
}

fn sum(row: &Value, keys: &[&str]) -> f64 {
    keys.iter().map(|key| number(row, key)).sum()
}

fn present(value: &Value) -> f64 {
    f64::from(!value.is_null())
}

fn text<'v>(row: &'v Value, key: &str) -> &'v str {
    row[key].as_str().unwrap_or_default()
}

fn of_class(row: &Value, classes: &[&str]) -> f64 {
    if classes.contains(&text(row, "class")) { count(row) } else { 0.0 }
}

fn between_host(row: &Value, key: &str) -> f64 {
    // Rows outside of the steps have the direction in the name.
    let name = if row[key].is_null() { text(row, "name") } else { text(row, key) };
    let is_wanted = ["Memcpy HtoD", "Memcpy DtoH"].iter().any(|start| name.starts_with(start));
    if is_wanted { count(row) } else { 0.0 }
}

fn named(row: &Value, key: &str, parts: &[&str]) -> f64 {
    let name = text(row, key);
    let lower = name.to_ascii_lowercase();
    f64::from(parts.iter().any(|part| name.contains(part) || lower.contains(part)))
}

/// A source, and the amount on each rank. The rank is "" in tables without ranks.
type Counted = (&'static Source, BTreeMap<String, f64>);

/// The counts that all kinds of report have of one run.
pub struct Facts {
    /// Labels of the ranks.
    pub ranks: Vec<String>,
    counts: BTreeMap<Subject, Vec<Counted>>,
}

impl Facts {
    /// Reads the facts from `tprof report all --json`.
    pub fn of(reports: &Value) -> Facts {
        let ranks = reports["summary"]["ranks"].as_array().unwrap();
        let ranks: Vec<String> = ranks.iter().map(|row| text(row, "label").to_owned()).collect();
        let mut counts: BTreeMap<Subject, Vec<_>> = BTreeMap::new();
        for source in SOURCES {
            let found = rows(&reports[source.kind], source.table);
            let mut of_source: BTreeMap<String, f64> = BTreeMap::new();
            // Some reports list the events outside of the steps in a table of their own.
            let outside = rows(&reports[source.kind], "outside_of_steps");
            let outside = outside.iter().filter(|row| !row["outside_count"].is_null());
            for row in found.iter().chain(outside) {
                let rank = ["rank", "label"].iter().find_map(|key| row[*key].as_str());
                *of_source.entry(rank.unwrap_or_default().to_owned()).or_default() +=
                    (source.amount)(row);
            }
            if !of_source.contains_key("") {
                for rank in &ranks {
                    of_source.entry(rank.clone()).or_default();
                }
            }
            counts.entry(source.subject).or_default().push((source, of_source));
        }
        Facts { ranks, counts }
    }

    /// Returns the largest amount that any kind of report counts on a rank.
    pub fn on_rank(&self, subject: Subject, rank: &str) -> f64 {
        let sources = self.counts[&subject].iter();
        sources.filter_map(|(_, ranks)| ranks.get(rank)).copied().fold(0.0, f64::max)
    }

    /// Returns the largest amount that any kind of report counts anywhere, and that kind.
    pub fn anywhere(&self, subject: Subject) -> Option<(&'static str, f64)> {
        let sources = self.counts[&subject].iter();
        let most = |ranks: &BTreeMap<String, f64>| ranks.values().copied().fold(0.0, f64::max);
        let found = sources.map(|(source, ranks)| (source.kind, most(ranks)));
        found.filter(|(_, amount)| *amount > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Describes where one kind of report counts none, or another number, of something that another
    /// kind counts on the same rank.
    pub fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (subject, sources) in &self.counts {
            for rank in &self.ranks {
                let of_rank: Vec<(&Source, f64)> = sources
                    .iter()
                    .filter_map(|(source, ranks)| Some((*source, *ranks.get(rank)?)))
                    .collect();
                let of_rank = denied(&of_rank).into_iter().chain(miscounted(&of_rank));
                found.extend(of_rank.map(|what| format!("{rank}, {subject:?}: {what}")));
            }
        }
        found
    }
}

/// Describes which kinds of report have none of something that another kind has.
fn denied(of_rank: &[(&Source, f64)]) -> Vec<String> {
    let Some((has, amount)) = of_rank.iter().find(|(_, amount)| *amount > 0.0) else {
        return Vec::new();
    };
    let none = of_rank.iter().filter(|(source, amount)| source.whole && *amount == 0.0);
    let claims = none.map(|(none, _)| {
        let [none, has] = [none, has].map(|source| (source.kind, source.table));
        format!("none in {none:?}, {amount} in {has:?}")
    });
    claims.collect()
}

/// Describes which kinds of report count the same things and get another number.
fn miscounted(of_rank: &[(&Source, f64)]) -> Vec<String> {
    let mut numbers = of_rank.iter().filter(|(source, _)| source.counts);
    let Some((first, number)) = numbers.next() else { return Vec::new() };
    let others = numbers.filter(|(_, other)| other != number);
    others
        .map(|(other, differs)| {
            format!("`{}` counts {number}, `{}` {differs}", first.kind, other.kind)
        })
        .collect()
}

/// Returns the rows of a table of a document, or of the summary.
pub fn rows<'v>(report: &'v Value, table: &str) -> &'v [Value] {
    let rows = report["tables"][table].as_array().or_else(|| report[table].as_array());
    rows.map_or(&[], Vec::as_slice)
}

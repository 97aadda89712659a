//! The JSON that a follower produces for live pages, `tprof top --json` and heat maps.
//!
//! Times are nanoseconds since the run began, unless the name contains `unix`. Unknown values are
//! `null`.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

use crate::figures::RankFigures;

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// State of a run at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of this document, [`VERSION`].
    pub version: u32,
    /// Whether the run goes on.
    pub state: RunState,
    /// Command line of the run; empty if it was attached by hand or is unknown.
    pub command: Vec<String>,
    /// Current time, or the end of a finished run.
    pub time_ns: u64,
    /// When the run began, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// Whether any rank is being recorded; `None` if there is no file yet.
    pub recording: Option<bool>,
    /// Sums over all ranks.
    pub totals: Totals,
    /// Files of the run: ranks in order, then launchers, then files without a rank.
    pub ranks: Vec<RankState>,
    /// Metrics of all ranks.
    pub metrics: Vec<MetricValues>,
    /// Figures of the steps of each rank, for programs that watch jobs.
    #[serde(skip)]
    pub figures: Vec<RankFigures>,
    /// Ranks that have had no step for too long.
    pub stalls: Vec<Stall>,
    /// Events since the last snapshot, or the last 200 events if `history` is given.
    pub events: Vec<Event>,
    /// Why ranks stand still, as `tprof where` says. Only `tprof top` asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<StallVerdict>,
    /// History of the metrics, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub history: Option<History>,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// A collector is at work.
    #[default]
    #[serde(rename = "running")]
    Running,
    /// Its collectors finished properly.
    #[serde(rename = "finished")]
    Finished,
    /// A collector ended without finishing.
    #[serde(rename = "cut off")]
    CutOff,
}

impl RunState {
    /// Returns the word that JSON uses.
    pub fn word(self) -> &'static str {
        match self {
            RunState::Running => "running",
            RunState::Finished => "finished",
            RunState::CutOff => "cut off",
        }
    }
}

/// Sums over a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Events and CPU samples recorded.
    pub recorded: u64,
    /// Events known to be lost.
    pub lost: u64,
    /// Bytes of the trace files.
    pub bytes: u64,
    /// Number of running processes.
    pub processes: u64,
    /// Time that the job's threads waited for collectors.
    pub wait_ns: u64,
    /// CPU time of the collectors.
    pub collector_cpu_ns: u64,
    /// Number of damaged parts of files that were skipped over.
    pub damaged: u64,
}

/// A rank, or another file of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankState {
    /// Number of the rank, if it has one.
    pub rank: Option<u32>,
    /// Label, such as `rank 3`.
    pub label: String,
    /// Name of its host.
    pub host: String,
    /// Name of its file.
    pub file: String,
    /// Number of running processes.
    pub processes: u64,
    /// How the rank ended: `exit 0`, `SIGKILL`; `None` while one of its processes is running.
    pub ended: Option<String>,
    /// Whether it is being recorded; `None` until its file has a header.
    pub recording: Option<bool>,
    /// Age of the last data read from its file; `None` before there is any.
    pub behind_ns: Option<u64>,
    /// Why its file cannot be read.
    pub problem: Option<String>,
    /// Requests for device memory that failed; `None` if no failed request was recorded.
    #[serde(default)]
    pub out_of_memory: Option<OutOfMemory>,
}

/// Requests of a rank for device memory that failed: their number, and the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Number of requests that failed.
    pub count: u64,
    /// When the last one failed; `None` if the file has no times.
    pub time_ns: Option<u64>,
    /// Bytes that the last one asked for.
    pub asked_bytes: u64,
    /// Number of its device; `None` for host memory.
    pub device: Option<u32>,
    /// Bytes that its allocator had given out.
    pub allocated_bytes: Option<u64>,
    /// Bytes that its allocator had reserved.
    pub reserved_bytes: Option<u64>,
    /// Bytes that were free on the device.
    pub free_bytes: Option<u64>,
    /// The line of the program that asked, as `file:line (function)`.
    pub line: Option<String>,
}

/// A metric of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// Key of the metric: [`crate::Metric::key`].
    pub key: String,
    /// `ns, bytes, count, per_second, share, watts` or `none`.
    pub unit: String,
    /// Description for people.
    pub about: String,
    /// One value per rank.
    #[serde(serialize_with = "numbers")]
    pub values: Vec<Option<f64>>,
    /// Why no rank has a value; `None` if one has.
    pub why: Option<String>,
}

/// Why ranks stand still.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallVerdict {
    /// Kind of the verdict, such as `late_rank`.
    pub kind: String,
    /// One or two sentences.
    pub text: String,
}

/// A rank that has had no step for too long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Number of the rank, if it has one.
    pub rank: Option<u32>,
    /// Label, such as `rank 3`.
    pub label: String,
    /// When its last step ended.
    pub since_ns: u64,
    /// Time since then.
    pub for_ns: u64,
    /// Median duration of its previous steps.
    pub usual_ns: u64,
    /// Number of the step that has not ended.
    pub step: u64,
    /// The activity of the rank's main thread, if it is known.
    pub what: Option<String>,
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened.
    pub time_ns: u64,
    /// The rank that it concerns.
    pub rank: Option<u32>,
    /// Label of the rank, such as `rank 3`, or `run` for the whole run.
    pub label: String,
    /// Kind of event.
    pub kind: EventKind,
    /// Description in words.
    pub text: String,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A mark of a person or program.
    Mark,
    /// A step took more than three times the usual step time.
    StepSlow,
    /// Something was lost.
    Loss,
    /// A process began.
    ProcessStart,
    /// A process ended.
    ProcessEnd,
    /// Recording was switched on.
    RecordingOn,
    /// Recording was switched off.
    RecordingOff,
    /// A rank has had no step for too long.
    Stall,
    /// A stalled rank has had a step again.
    StallEnd,
    /// A request for device memory failed.
    OutOfMemory,
}

/// History of metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Times of the values; the same for all series.
    pub times_ns: Vec<u64>,
    /// Values by metric key: for each of the first 32 ranks, one value for each time.
    #[serde(serialize_with = "series")]
    pub series: BTreeMap<String, Vec<Vec<Option<f64>>>>,
}

/// A metric by rank and time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heat {
    /// Key of the metric.
    pub metric: String,
    /// Unit of the values.
    pub unit: String,
    /// The quantity along the columns, always `time`.
    pub over: String,
    /// The rows: a rank, or several neighbouring ranks, each.
    pub rows: Vec<HeatRow>,
    /// The columns: a stretch of time each.
    pub columns: Vec<HeatColumn>,
    /// Values by row and column. A cell that stands for several ranks or moments has the largest of
    /// their values.
    pub values: Vec<Vec<Number>>,
    /// The smallest value of the map.
    pub least: Number,
    /// The largest value of the map.
    pub most: Number,
    /// How many ranks and seconds share a cell; `None` if none do.
    pub folded: Option<String>,
    /// Why there is no value.
    pub missing: Option<String>,
}

/// A row of one or several ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatRow {
    /// Label, such as `rank 3` or `ranks 3 to 6`.
    pub label: String,
    /// Indexes of the first and the last rank.
    pub ranks: [usize; 2],
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatColumn {
    /// First moment of the column.
    pub from: u64,
    /// End of the column, exclusive.
    pub to: u64,
}

/// A number or `null`; whole numbers are written without a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Number(pub Option<f64>);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        /// Whole numbers up to this one are exact in a double.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.0.filter(|value| value.is_finite()) {
            Some(value) if value.fract() == 0.0 && value.abs() <= EXACT => {
                to.serialize_i64(value as i64)
            }
            Some(value) => to.serialize_f64(value),
            None => to.serialize_none(),
        }
    }
}

fn numbers<S: Serializer>(values: &[Option<f64>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().copied().map(Number))
}

fn series<S: Serializer>(
    series: &BTreeMap<String, Vec<Vec<Option<f64>>>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let of_rank = |values: &Vec<Option<f64>>| values.iter().copied().map(Number).collect();
    let of_metric =
        |ranks: &Vec<Vec<Option<f64>>>| -> Vec<Vec<Number>> { ranks.iter().map(of_rank).collect() };
    to.collect_map(series.iter().map(|(key, ranks)| (key, of_metric(ranks))))
}

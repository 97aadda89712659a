//! Puts the RSS, the mapped bytes and the heap bytes of a rank on one time line with the memory of
//! its cgroup.

use tprof_facts::Clock;
use tprof_facts::units::counted;
use tprof_rank::base::object::object;
use tprof_rank::base::reading::Reading;
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

use super::curve::Axis;
use super::gauges::{self, ProcessEnds, Sample, host_samples, process_samples};
use super::resident::{self, Source};

/// The maximum of a quantity in each bucket of time; `None` before the first value.
pub type Series = Vec<Option<u64>>;

/// Memory of a rank over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Start of the first bucket, nanoseconds since the run began.
    pub start_ns: u64,
    /// Length of a bucket, ns.
    pub bucket_ns: u64,
    /// Resident bytes of all processes, each page counted once.
    pub resident_bytes: Reading<Series>,
    /// `RSS`, or `PSS` where several processes lived at once.
    pub resident_source: Reading<&'static str>,
    /// The highest number of resident bytes.
    pub resident_peak_bytes: Reading<u64>,
    /// The time of that peak, nanoseconds since the run began.
    pub resident_peak_at_ns: Reading<u64>,
    /// Number of times at which resident memory was read.
    pub resident_readings: Option<u64>,
    /// The reason why the peak is a lower bound.
    pub resident_peak_at_least: Option<String>,
    /// Sum of the RSS of all processes; shared pages count for each.
    pub rss_bytes: Reading<Series>,
    /// Sum of the virtual sizes of all processes.
    pub mapped_bytes: Reading<Series>,
    /// Live heap bytes of all processes.
    pub heap_bytes: Reading<Series>,
    /// Resident bytes minus heap bytes: code, stacks, mappings, unused memory of the allocator.
    pub gap_bytes: Reading<Vec<Option<i64>>>,
    /// `memory.current` of the cgroup.
    pub cgroup_bytes: Reading<Series>,
    /// Highest sum of the RSS of all processes.
    pub rss_peak_bytes: Reading<u64>,
    /// The time of that peak, nanoseconds since the run began.
    pub rss_peak_at_ns: Reading<u64>,
    /// Number of times at which RSS was read.
    pub rss_readings: Option<u64>,
    /// The reason why the peak is a lower bound.
    pub rss_peak_at_least: Option<String>,
}
object! { Timeline {
    plain start_ns, plain bucket_ns, reading resident_bytes, reading resident_source,
    reading resident_peak_bytes, reading resident_peak_at_ns, some resident_readings,
    some resident_peak_at_least, reading rss_bytes, reading mapped_bytes, reading heap_bytes,
    reading gap_bytes, reading cgroup_bytes, reading rss_peak_bytes, reading rss_peak_at_ns,
    some rss_readings, some rss_peak_at_least,
} }

/// The memory figures of the cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    /// The limit `memory.max`, bytes.
    pub limit_bytes: Reading<u64>,
    /// Highest sample of `memory.current`.
    pub peak_bytes: Reading<u64>,
    /// Highest use without the page cache of files, among the samples near the limit.
    pub held_peak_bytes: Reading<u64>,
    /// Last sample of `memory.current`.
    pub last_bytes: Reading<u64>,
    /// OOM kills during the run.
    pub oom_kills: Reading<u64>,
}
object! { Cgroup {
    reading limit_bytes, reading peak_bytes, reading held_peak_bytes, reading last_bytes,
    reading oom_kills,
} }

/// The reason why no cgroup figure is known.
const NO_CGROUP: &str = "no cgroup memory counter was recorded";

impl Cgroup {
    /// Reads the cgroup's counters.
    pub fn of(file: &TraceFile) -> Cgroup {
        let usage = host_samples(file, counter::CGROUP_BYTES);
        let limit = host_samples(file, counter::CGROUP_LIMIT_BYTES);
        let kills = host_samples(file, counter::CGROUP_OOM_KILLS);
        let last = |samples: &[Sample], why: &str| match samples.last() {
            Some(sample) => Reading::Is(sample.2),
            None => Reading::missing(why),
        };
        let no_limit = if usage.is_empty() { NO_CGROUP } else { "the cgroup has no memory limit" };
        Cgroup {
            limit_bytes: last(&limit, no_limit),
            peak_bytes: most(&usage, NO_CGROUP),
            held_peak_bytes: most(&held(file, &usage, &limit), "use was never read near the limit"),
            last_bytes: last(&usage, NO_CGROUP),
            oom_kills: most(&kills, "no count of OOM kills was recorded"),
        }
    }

    /// Returns the figures of a run without a readable file: all are unknown.
    pub fn unknown() -> Cgroup {
        let missing = || Reading::missing(NO_CGROUP);
        Cgroup {
            limit_bytes: missing(),
            peak_bytes: missing(),
            held_peak_bytes: missing(),
            last_bytes: missing(),
            oom_kills: missing(),
        }
    }

    /// Joins the figures with those of another rank's file. Each figure becomes the higher of the
    /// two; if only one is known, it becomes that one.
    pub fn or(self, other: Cgroup) -> Cgroup {
        let pick = |a: Reading<u64>, b: Reading<u64>| match (a.get(), b.get()) {
            (None, Some(_)) => b,
            (Some(x), Some(y)) if y > x => b,
            _ => a,
        };
        Cgroup {
            limit_bytes: pick(self.limit_bytes, other.limit_bytes),
            peak_bytes: pick(self.peak_bytes, other.peak_bytes),
            held_peak_bytes: pick(self.held_peak_bytes, other.held_peak_bytes),
            last_bytes: pick(self.last_bytes, other.last_bytes),
            oom_kills: pick(self.oom_kills, other.oom_kills),
        }
    }
}

/// Returns the memory in use without page cache, for the readings near the limit. A counter is
/// written when it changes, so each value holds until the next one.
fn held(file: &TraceFile, usage: &[Sample], limit: &[Sample]) -> Vec<Sample> {
    let cache = host_samples(file, counter::CGROUP_CACHE_BYTES);
    let at = |samples: &[Sample], time_ns: u64| {
        let after = samples.partition_point(|sample| sample.0 <= time_ns);
        samples[..after].last().map(|sample| sample.2)
    };
    let held = |&(time_ns, process, _): &Sample| {
        let (used, limit) = (at(usage, time_ns)?, at(limit, time_ns)?);
        let is_near = used as f64 >= counter::CGROUP_CACHE_SHARE * limit as f64;
        Some((time_ns, process, used.saturating_sub(at(&cache, time_ns)?))).filter(|_| is_near)
    };
    usage.iter().chain(&cache).filter_map(held).collect()
}

/// The inputs of the timeline besides the file.
pub(crate) struct TimelineInputs<'a> {
    pub ends: &'a ProcessEnds,
    pub axis: Axis,
    pub end_ns: u64,
    pub heap: Reading<Series>,
    pub clock: Clock,
}

/// Makes the timeline of a rank from its file.
pub(crate) fn timeline(file: &TraceFile, given: TimelineInputs) -> Timeline {
    let TimelineInputs { ends, axis, end_ns, heap, clock } = given;
    let samples = |name: &str| gauges::in_part(file, process_samples(file, name));
    let sum = |name: &str| gauges::sum(samples(name), ends, axis, end_ns);
    let rss = sum(counter::RSS_BYTES);
    let missing = |what: &str| format!("no {what} was sampled");
    let (rss_peak_bytes, rss_peak_at_ns) = match &rss {
        Some(rss) => (Reading::Is(rss.highest), Reading::Is(clock.since_start(rss.highest_at_ns))),
        None => (Reading::Missing(missing("RSS")), Reading::Missing(missing("RSS"))),
    };
    let rss_readings = rss.as_ref().map(|rss| rss.readings);
    let series = |sum: Option<gauges::GaugeSum>, what: &str| match sum {
        Some(sum) => Reading::Is(sum.buckets),
        None => Reading::Missing(missing(what)),
    };
    let rss_bytes = series(rss, "RSS");
    let resident = resident::resident(file, ends, axis, end_ns);
    let of_resident = |value: fn(&(gauges::GaugeSum, Source)) -> u64| match &resident {
        Ok(resident) => Reading::Is(value(resident)),
        Err(why) => Reading::missing(why),
    };
    let resident_peak_bytes = of_resident(|(sum, _)| sum.highest);
    let resident_peak_at_ns = match of_resident(|(sum, _)| sum.highest_at_ns) {
        Reading::Is(at_ns) => Reading::Is(clock.since_start(at_ns)),
        missing => missing,
    };
    let resident_readings = of_resident(|(sum, _)| sum.readings).get();
    let (resident_bytes, resident_source) = match resident {
        Ok((sum, source)) => {
            let name = if source == Source::Pss { "PSS" } else { "RSS" };
            (Reading::Is(sum.buckets), Reading::Is(name))
        }
        Err(why) => (Reading::missing(&why), Reading::Missing(why)),
    };
    let cgroup = gauges::in_part(file, host_samples(file, counter::CGROUP_BYTES));
    Timeline {
        start_ns: clock.since_start(axis.start_ns),
        bucket_ns: axis.bucket_ns,
        gap_bytes: gap(&resident_bytes, &heap),
        resident_bytes,
        resident_source,
        resident_peak_bytes,
        resident_peak_at_ns,
        resident_readings,
        resident_peak_at_least: resident_readings.map(at_least),
        rss_bytes,
        mapped_bytes: series(sum(counter::MAPPED_BYTES), "virtual size"),
        heap_bytes: heap,
        cgroup_bytes: series(
            gauges::sum(cgroup, &ProcessEnds::default(), axis, end_ns),
            "cgroup memory",
        ),
        rss_peak_bytes,
        rss_peak_at_ns,
        rss_readings,
        rss_peak_at_least: rss_readings.map(at_least),
    }
}

/// Returns the reason why the highest of this many readings is a lower bound.
fn at_least(readings: u64) -> String {
    let readings = counted(readings, "reading", "readings");
    format!("the highest of {readings}: between them it may have been higher")
}

fn gap(resident: &Reading<Series>, heap: &Reading<Series>) -> Reading<Vec<Option<i64>>> {
    let (rss, heap) = match (resident, heap) {
        (Reading::Missing(why), _) | (_, Reading::Missing(why)) => return Reading::missing(why),
        (rss, heap) => match (rss.value(), heap.value()) {
            (Some(rss), Some(heap)) => (rss, heap),
            _ => return Reading::missing("no RSS was sampled"),
        },
    };
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Reading::Is(
        rss.iter().zip(heap).map(|(rss, heap)| Some(signed((*rss)?) - signed((*heap)?))).collect(),
    )
}

fn most(samples: &[Sample], why: &str) -> Reading<u64> {
    match samples.iter().map(|sample| sample.2).max() {
        Some(most) => Reading::Is(most),
        None => Reading::missing(why),
    }
}

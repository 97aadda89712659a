//! Reads one rank of a side: figures of its steps, facts and peaks.

use std::sync::Mutex;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_document::{Analysis, Body, Options, RankContext};
use tprof_facts::steps::StepSource;
use tprof_metrics::host::RankHost;
use tprof_metrics::memory::rank_memory;
use tprof_metrics::program::steps::{StepDeviceTime, device_time_by_class, warm_up};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::run::step_cost::StepCost;
use tprof_rank::{Needs, RankTrace, Step};
use tprof_trace::model::SpanKind;

use super::facts::{self, Facts};
use super::host::HostActivity;
use super::load::lost_in_steps;
use super::names::{TimesByName, names};
use super::run_figures::{Peaks, life_ns};

/// The data that the comparison keeps of a rank.
pub(super) struct RankSide {
    pub stepped: bool,
    /// The source of the rank's steps.
    pub source: Option<StepSource>,
    /// For each of the rank's steps: its number, its device time, and the time in which the driving
    /// thread had no core, ns.
    pub steps: Vec<(u64, StepDeviceTime, Option<u64>)>,
    /// Numbers of the rank's warm-up steps.
    pub warm_up: Vec<u64>,
    pub facts: Facts,
    pub peaks: Peaks,
    /// Cost of recording per step.
    pub cost: Option<StepCost>,
    /// Time from the start of the rank's first process to the rank's last event, ns.
    pub life_ns: Option<u64>,
}

/// Reads each rank for a comparison.
#[derive(Default)]
pub(super) struct RankAnalysis {
    /// The inclusive range of step numbers to read; `None` for all steps.
    pub steps: Option<(u64, u64)>,
    /// Totals by name of all ranks that were read so far. Ranks with steps and ranks without are
    /// summed separately. Only sums are stored, because the names of a thousand ranks would not fit
    /// in memory.
    pub names: Mutex<FxHashMap<bool, TimesByName>>,
    /// The activity of the hosts of all ranks that were read so far.
    pub host: Mutex<HostActivity>,
}

impl RankAnalysis {
    fn add(&self, stepped: bool, names: TimesByName) {
        // A poisoned lock means that another worker panicked. That panic ends the comparison, so
        // nothing needs to be added.
        let Ok(mut all) = self.names.lock() else { return };
        let all = all.entry(stepped).or_default();
        for (key, by_step) in names {
            let of_name = all.entry(key).or_default();
            for (step, took) in by_step {
                of_name.entry(step).or_default().add(took);
            }
        }
    }
}

impl Analysis for RankAnalysis {
    const KIND: &'static str = "diff";
    type Part = RankSide;

    fn needs(&self, _: &Options) -> Needs {
        Needs::WORK
            | Needs::CALLS
            | Needs::ALL_SPANS
            | Needs::STEPS
            | Needs::COLLECTIVES
            | Needs::ALLOCATIONS
            | Needs::SAMPLES
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, _: &Options) -> RankSide {
        let trace = rank.file;
        let mut steps = rank.steps();
        let stepped = !steps.is_empty();
        if let Some((from, to)) = self.steps {
            steps.retain(|step| (from..=to).contains(&step.number));
        }
        let warm_up = match self.steps {
            None => warm_up_of(&steps),
            Some(_) => Vec::new(),
        };
        if !stepped {
            steps.extend(whole(rank));
        }
        let memory = rank_memory(trace, at.clock);
        // A launcher isn't one of the job's ranks, so its threads don't count.
        let driver = at.rank.and_then(|_| RankHost::of(rank));
        if let Some(number) = at.rank {
            let compared = |step: &&Step| stepped && !warm_up.contains(&step.number);
            let compared: Vec<Step> = steps.iter().filter(compared).copied().collect();
            let mut of_rank = HostActivity::of(rank, &memory);
            if let Some(driver) = &driver {
                let numbers = compared.iter().map(|step| step.number).collect();
                let of_steps = of_steps(rank, driver, &numbers);
                of_rank.add_driver(driver, of_steps.as_ref().unwrap_or(driver));
            }
            of_rank.keep_parts(number);
            of_rank.add_devices(rank, &compared);
            if let Ok(mut host) = self.host.lock() {
                host.add(of_rank);
            }
        }
        let life_ns = life_ns(trace);
        let peaks = Peaks::of(rank, &memory);
        self.add(stepped, names(rank, &steps, stepped));
        let facts = facts::of_file(trace);
        let source = rank.steps_found().source.filter(|_| stepped);
        let times = device_time_by_class::of_steps(rank, &steps, stepped);
        let lost = lost_in_steps(&steps, driver.as_ref());
        let steps = steps.iter().zip(times).zip(lost);
        let steps = steps.map(|((step, times), lost_ns)| (step.number, times, lost_ns)).collect();
        let cost = rank.recording.clone();
        RankSide { stepped, source, steps, warm_up, facts, peaks, cost, life_ns }
    }

    fn join(&self, _: Vec<(RankContext, RankSide)>, _: &Options) -> Body {
        Body::default()
    }
}

/// Measures a rank's driving thread from the first to the last of these steps. Otherwise a slow step of
/// warm-up would be a part of each step. Returns `None` if these are the first and the last step of
/// the thread, so that `whole` has its time, or none of its steps.
fn of_steps(rank: &RankTrace<'_>, whole: &RankHost, numbers: &FxHashSet<u64>) -> Option<RankHost> {
    let is_compared = |number: u64| numbers.contains(&number);
    let (first, last) = whole.steps.first().zip(whole.steps.last())?;
    let has_ends = is_compared(first.number) && is_compared(last.number);
    if has_ends || !whole.steps.iter().any(|step| is_compared(step.number)) {
        return None;
    }
    RankHost::within(rank, |steps| {
        let compared = steps.iter().filter(|step| is_compared(step.number));
        Cover::of(compared.map(|step| step.interval)).span().unwrap_or(Interval::new(0, u64::MAX))
    })
}

/// Returns the numbers of the steps that `report steps` calls warm-up.
fn warm_up_of(steps: &[Step]) -> Vec<u64> {
    let times: Vec<u64> = steps.iter().map(|step| step.time().length()).collect();
    let count = warm_up(&times).unwrap_or(0);
    steps.iter().take(count).map(|step| step.number).collect()
}

/// Returns a step that stands for a whole trace without steps. It lasts from the first event to the
/// last, on every process.
fn whole(rank: &RankTrace<'_>) -> Option<Step> {
    let spans = [SpanKind::Operator, SpanKind::Annotation].map(|kind| rank.spans(kind));
    let host = rank.calls.iter().chain(spans.into_iter().flatten()).map(|span| span.interval());
    let all = Cover::of(rank.work.iter().map(|work| work.interval()).chain(host));
    Some(Step::on_host(0, 0, all.span()?))
}

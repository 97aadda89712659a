//! Keeps what recording costs below a share of the job's CPU time (`--budget`). Each second it
//! estimates the costs from the work of recording and its measured unit costs, and thins what the
//! [processes](crate::targets::budget) should. CPU samples are taken for the whole job, so they are
//! judged and thinned for the whole job, once no process has anything left to thin.

use super::main_loop::{Engine, MS};
use super::overhead_estimate::parts;
use crate::config::OperatorDetail;
use crate::targets::budget::{CostWindow, IntervalCost, WORTH};
use crate::targets::ending::RecordedWork;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use tprof_facts::thinned::{ThinnedPart, Thinning};
use tprof_os::proc::Stat;
use tprof_os::sys;
use tprof_sampler::cpu::Interruptions;
use tprof_trace::model::MarkKind;
use tprof_trace::run::{BlindSpot, OverheadPart};

/// Time between two judgements, ns.
const INTERVAL_NS: u64 = 1000 * MS;
/// A process is judged once it has used this much CPU time, ns: the kernel counts it in steps of 10
/// ms.
const LEAST_CPU_NS: u64 = 250 * MS;
/// Number of intervals over which the cost of samples is averaged. It is large, since the samples of
/// the whole job depend on it, and a job imports its libraries first.
const INTERVALS: usize = 10;
/// The rate of samples is divided by this number each time.
const RATE_STEP: u32 = 4;
/// Instead of a lower rate, no samples are taken at all.
const LEAST_RATE: u32 = 5;
/// Number of processes that the account of the run lists by name.
const MOST_LISTED: usize = 1_000;

/// How the job keeps to the budget.
#[derive(Default)]
pub(super) struct JobBudget {
    judged_ns: u64,
    /// Number of interruptions by samples and by context switches, when they were last looked at.
    interruptions: [u64; 2],
    window: CostWindow,
    /// CPU time of each process that is sampled, when it was last looked at, ns.
    cpu_ns: HashMap<u32, u64>,
    /// Samples per second now, if they are thinned.
    rate: Option<u32>,
    /// What samples cost when their rate was last lowered, as a share.
    samples_share: f64,
    /// What was thinned, for the account of the run: process, and what it lacks.
    left_out: BTreeSet<(String, &'static str)>,
}

impl Engine {
    /// Judges what recording cost since the last judgement, if that is due, and thins what costs too
    /// much.
    pub(super) fn keep_to_budget(&mut self, now: u64) {
        let Some(percent) = self.parts.config.budget_percent else { return };
        if now.saturating_sub(self.budget.judged_ns) < INTERVAL_NS {
            return;
        }
        self.budget.judged_ns = now;
        let interruptions = self.take_interruptions();
        if self.parts.session.page().off.load(Relaxed) != 0 {
            self.targets.values_mut().for_each(|target| target.budget.forget_interval());
            return self.budget.window.clear();
        }
        let works = self.works_of_interval();
        let sampling = parts(&RecordedWork::default(), Some(&interruptions), &self.parts.prices);
        let sampling_ns = sum_of(&sampling, &["samples", "switches"]);
        let attached_ns = works.iter().map(|(_, work)| work.cpu_ns).sum();
        let cpu_ns = self.sampled_cpu_ns().max(attached_ns);
        let (mut job, mut is_thinned) = (IntervalCost::default(), false);
        for (number, work) in works {
            let mut cost = self.cost_of(&work);
            job.add(&cost);
            let share = work.cpu_ns as f64 / cpu_ns.max(1) as f64;
            cost.samples = (sampling_ns as f64 * share) as u64;
            is_thinned |= self.judge_process(number, cost, percent);
        }
        if is_thinned {
            return self.budget.window.clear();
        }
        if cpu_ns >= LEAST_CPU_NS {
            let job = IntervalCost { samples: sampling_ns, cpu: cpu_ns, ..job };
            self.judge_samples(job, percent / 100.0);
        }
    }

    /// Returns the CPU time of all processes that are sampled since the last call, ns.
    fn sampled_cpu_ns(&mut self) -> u64 {
        let read = |(pid, _)| Some((pid, Stat::of(pid)?.cpu_ns()?));
        let now: HashMap<u32, u64> = self.attribution.pids().filter_map(read).collect();
        let before = std::mem::replace(&mut self.budget.cpu_ns, now);
        let since = |(pid, cpu): (&u32, &u64)| Some(cpu.saturating_sub(*before.get(pid)?));
        self.budget.cpu_ns.iter().filter_map(since).sum()
    }

    /// Returns the number of interruptions for samples since the last call.
    fn take_interruptions(&mut self) -> Interruptions {
        let since = Interruptions::default();
        if let Some(sampler) = &self.parts.sampler {
            let of = &sampler.interruptions;
            let now = [&of.samples, &of.switches].map(|count| count.load(Relaxed));
            let before = std::mem::replace(&mut self.budget.interruptions, now);
            since.samples.store(now[0].saturating_sub(before[0]), Relaxed);
            since.switches.store(now[1].saturating_sub(before[1]), Relaxed);
        }
        since
    }

    /// Ends the interval of each process that has worked enough in it.
    fn works_of_interval(&mut self) -> Vec<(u64, RecordedWork)> {
        let clock = &self.out.clock;
        let mut works = Vec::new();
        for target in self.targets.values_mut().filter(|target| target.end.is_none()) {
            let work = target.recorded_work(clock);
            works.extend(
                target.budget.interval(work, LEAST_CPU_NS).map(|work| (target.number, work)),
            );
        }
        works
    }

    /// Estimates what this work cost.
    fn cost_of(&self, work: &RecordedWork) -> IntervalCost {
        // Starts aren't work of this interval.
        let work = RecordedWork { starts: 0, start_ns: 0, ..*work };
        let parts = parts(&work, None, &self.parts.prices);
        let (operators, stacks) = (sum_of(&parts, &["operators"]), sum_of(&parts, &["stacks"]));
        let rest = sum_of(&parts, &["events", "notes"]);
        IntervalCost { operators, stacks, rest, samples: 0, cpu: work.cpu_ns }
    }

    /// Thins a part of a process's recording if its cost demands it. Returns whether it did.
    fn judge_process(&mut self, number: u64, cost: IntervalCost, budget_percent: f64) -> bool {
        let config = &self.parts.config;
        let limits_steps =
            matches!(config.operators, OperatorDetail::Names | OperatorDetail::Shapes);
        let Some(target) = self.targets.get_mut(&number) else { return false };
        target.apply_thinning();
        let Some((part, share)) = target.budget.judge(cost, budget_percent / 100.0, limits_steps)
        else {
            return false;
        };
        target.apply_thinning();
        let (process, time_ns) = (Some(target.hooks.index), sys::monotonic_ns());
        let thinning = Thinning { process, part, time_ns, share, budget_percent, rate: None };
        target.write_thinning(&thinning, &mut self.out);
        let name = Path::new(&target.exe).file_name().unwrap_or_default().to_string_lossy();
        let process = format!("{} {name}", target.pid);
        if let Some(what) = left_out(part) {
            let process = match self.budget.left_out.len() < MOST_LISTED {
                true => process,
                false => "further processes".to_owned(),
            };
            self.budget.left_out.insert((process, what));
        }
        part != ThinnedPart::Rest
    }

    /// Lowers the rate of samples if the job's cost demands it.
    fn judge_samples(&mut self, job: IntervalCost, budget: f64) {
        let Some(sampler) = self.parts.sampler.as_ref() else { return };
        let Some(all) = self.budget.window.exceeds(job, INTERVALS, budget) else { return };
        let share = all.samples as f64 / all.cpu.max(1) as f64;
        let rate = self.budget.rate.unwrap_or(self.parts.config.sample_rate);
        if share < budget * WORTH || rate == 0 {
            return;
        }
        let rate = Some(rate / RATE_STEP).filter(|rate| *rate >= LEAST_RATE).unwrap_or(0);
        sampler.change_rate(rate);
        (self.budget.rate, self.budget.samples_share) = (Some(rate), share);
        self.budget.window.clear();
    }

    /// Notes that the sampler has changed its rate.
    pub(super) fn samples_thinned(&mut self, rate: u32, time_ns: u64) {
        let Some(budget_percent) = self.parts.config.budget_percent else { return };
        self.budget.rate = Some(rate);
        let (share, part) = (self.budget.samples_share, ThinnedPart::Samples);
        let rate = Some(rate);
        let thinning = Thinning { process: None, part, time_ns, share, budget_percent, rate };
        self.mark_at(time_ns, &thinning.mark(), MarkKind::Mark);
        self.out.files.add_fact(&thinning.key(), &thinning.to_json());
        let what =
            if rate == Some(0) { "CPU samples and waits" } else { "CPU samples of the full rate" };
        self.budget.left_out.insert(("the job".to_owned(), what));
    }

    /// Returns what the budget has left out so far.
    pub(super) fn over_budget(&self) -> impl Iterator<Item = BlindSpot> {
        let percent = self.parts.config.budget_percent.unwrap_or(0.0);
        self.budget.left_out.iter().map(move |(process, what)| BlindSpot {
            as_asked: true,
            ..BlindSpot::new(
                process.clone(),
                format!("later {what}"),
                format!("--budget {percent}%"),
            )
        })
    }
}

/// Returns what a process lacks once a part is thinned.
fn left_out(part: ThinnedPart) -> Option<&'static str> {
    match part {
        ThinnedPart::OperatorsOfAllSteps => Some("operators of most steps"),
        ThinnedPart::Operators => Some("operators"),
        ThinnedPart::Stacks => Some("stacks of allocations and mappings"),
        ThinnedPart::Samples | ThinnedPart::Rest => None,
    }
}

/// Returns the cost of these parts, ns: the middle of its bounds.
fn sum_of(parts: &[OverheadPart], names: &[&str]) -> u64 {
    let of = parts.iter().filter(|part| names.contains(&&*part.part));
    of.map(|part| part.ns_low.midpoint(part.ns_high.unwrap_or(part.ns_low))).sum()
}

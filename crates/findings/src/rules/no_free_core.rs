//! NoFreeCore: the driving thread is ready to run, but has no core. Either threads and processes of
//! its own job occupy the cores, or the job's CPU limit throttles it. If other programs occupy
//! them, the job can't change that. So that case isn't a finding, but a note above the findings.

use tprof_facts::units::duration;
use tprof_metrics::host::{RankHost, ThreadAtPlace};
use tprof_rank::samples::Part;

use super::host_part::{amount, finding, host, is_found, line, too_little};
use super::machine_load::MachineLoad;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::stolen_time::StolenTime;
use crate::verdict::Verdict;

/// The rule that judges time in which the driving thread is ready but has no core.
pub(super) struct NoFreeCore;

impl Rule for NoFreeCore {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "NoFreeCore",
            found_if: "as DataWait, of `no_core`, where the rank's own threads and processes or its CPU \
                 limit took most of it",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "fewer threads or workers, or more cores",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::NoCore);
        if !is_found(host, ns) {
            return too_little(host, ns, "being ready without a core");
        }
        let taken = CoreUse::of(host);
        let load = MachineLoad::of(scene.rank.file, host);
        if is_of_others(&taken, &load, ns) {
            return Verdict::no_problem(format!(
                "other programs, not the job, had the cores for {}",
                amount(host, ns)
            ));
        }
        let (taken_words, load_words) = (taken.words(), load.words());
        let seen = format!(
            "The driving thread was preempted for {}. {taken_words} {load_words}",
            amount(host, ns)
        );
        let advice = match load.throttled_ns * 2 >= ns {
            true => {
                "Raise the CPU limit of the container or batch job (cpu.max, --cpus), or start \
                     no more threads and workers than it has processors."
                    .to_owned()
            }
            false => taken.advice(),
        };
        Verdict::Found(vec![
            finding(scene, host, "the job is ready to run, but no core is free", Part::NoCore, ns)
                .seen(seen)
                .advice(advice)
                .on_line(taken.first.and_then(|other| line(&other.place))),
        ])
    }
}

/// The smallest share of the judged time that other programs must have taken for a note.
const LEAST_STOLEN: f64 = 0.05;

/// Returns the time that other programs took from a rank's driving thread; `None` if that time is
/// short or unknown, or if the job itself is the cause.
pub(crate) fn stolen_time(scene: &Scene<'_>) -> Option<StolenTime> {
    let host = host(scene).ok()?;
    let (ns, of_ns) = (host.ledger.ns(Part::NoCore), host.ledger.wall_ns);
    let load = MachineLoad::of(scene.rank.file, host);
    let is_much = ns as f64 >= LEAST_STOLEN * of_ns as f64;
    let is_stolen = is_much && is_of_others(&CoreUse::of(host), &load, ns);
    is_stolen.then_some(StolenTime {
        ns,
        of_ns,
        busy_cores: load.busy_cores,
        own_cores: load.own_cores,
    })
}

/// Whether other programs are the cause. Two conditions must be true. While the driving thread had
/// no core, the rank's own threads and processes used less than half a core. And the CPU limit of
/// its cgroup throttled it for less than half of that time.
fn is_of_others(taken: &CoreUse<'_>, load: &MachineLoad, blocked_ns: u64) -> bool {
    taken.own_ns() * 2 < blocked_ns && load.throttled_ns * 2 < blocked_ns
}

/// Modules with pools of threads that spin while they wait for work.
const POOLS: [&str; 8] = [
    "libgomp",
    "libiomp5",
    "libomp",
    "libopenblas",
    "libmkl",
    "libblis",
    "libtbb",
    "libscipy_openblas",
];

/// The rank's use of cores while the driving thread had none.
struct CoreUse<'h> {
    /// Time in which the rank's other threads were on a core, ns. [`Self::processes_ns`] is the
    /// same for its other processes.
    threads_ns: u64,
    processes_ns: u64,
    /// The part of `processes_ns` that workers of `multiprocessing` used, ns.
    workers_ns: u64,
    /// The part of `threads_ns` and `processes_ns` that was spent in thread pools, ns.
    pools_ns: u64,
    /// The thread and place that used the most time.
    first: Option<&'h ThreadAtPlace>,
}

impl<'h> CoreUse<'h> {
    fn of(host: &'h RankHost) -> CoreUse<'h> {
        let concurrent = &host.without_core;
        let sum = |passes: &dyn Fn(&ThreadAtPlace) -> bool| {
            concurrent.running().filter(|other| passes(other)).map(|other| other.ns).sum()
        };
        let in_pool = |other: &ThreadAtPlace| {
            POOLS.iter().any(|start| other.place.library.starts_with(start))
        };
        CoreUse {
            threads_ns: sum(&|other| !other.is_of_other),
            processes_ns: sum(&|other| other.is_of_other),
            workers_ns: sum(&|other| host.workers.is_of_pool(other.process)),
            pools_ns: sum(&in_pool),
            first: concurrent.running().find(|other| !other.place.function.is_empty()),
        }
    }

    fn words(&self) -> String {
        let first = match self.first {
            Some(other) => format!(", most of it {} ({})", other.shown(), duration(other.ns)),
            None => String::new(),
        };
        format!(
            "Meanwhile the rank's other threads ran for {}, its other processes for {}{first}.",
            duration(self.threads_ns),
            duration(self.processes_ns),
        )
    }

    fn own_ns(&self) -> u64 {
        self.threads_ns + self.processes_ns
    }

    fn advice(&self) -> String {
        if self.pools_ns * 2 >= self.own_ns() {
            return "Pools of threads take the cores, and spin while they wait: set \
                    OMP_NUM_THREADS (OPENBLAS_NUM_THREADS, MKL_NUM_THREADS) to the cores of a \
                    rank, and OMP_WAIT_POLICY=passive."
                .to_owned();
        }
        if self.processes_ns < self.threads_ns {
            return "Start fewer threads, or ask for more cores.".to_owned();
        }
        match self.first.filter(|_| self.workers_ns * 2 < self.processes_ns) {
            Some(other) => format!(
                "Run {} at another time, on other cores or with a lower priority (nice), or ask for \
                 more cores.",
                other.thread
            ),
            None => {
                "Start fewer worker processes (num_workers of loaders, ranks on this machine), \
                     or ask for more cores."
                    .to_owned()
            }
        }
    }
}

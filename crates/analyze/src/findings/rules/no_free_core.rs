//! NoFreeCore: the driving thread could run, but threads and processes of its own job have the
//! cores, or the job's CPU limit keeps it off. What other programs take is no cause that the job
//! can remove: it is said above the findings, and is none.

use tprof_facts::units::duration;

use super::host_part::{amount, finding, hardly, host, is_found, line};
use super::machine_load::MachineLoad;
use crate::findings::lost::Lost;
use crate::findings::rule::{Rule, RuleAbout};
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::host::{Doing, RankHost};
use crate::rank::samples::Part;

/// Ready, but not on a core.
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
            return hardly(host, ns, "being ready without a core");
        }
        let taken = Taken::of(host);
        let load = MachineLoad::of(scene.rank.file, host);
        if is_of_others(&taken, &load, ns) {
            return Verdict::clear(format!(
                "other programs had the cores for {}",
                amount(host, ns)
            ));
        }
        let (taken_words, load_words) = (taken.words(), load.words());
        let seen = format!("It was preempted for {}. {taken_words} {load_words}", amount(host, ns));
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
                .on_line(taken.first.and_then(|doing| line(&doing.place))),
        ])
    }
}

/// Least share of the judged time that is said to be lost to other programs.
const LEAST_LOST: f64 = 0.05;

/// What other programs took of a rank; `None` where that is little, or the job's own doing.
pub(in crate::findings) fn lost(scene: &Scene<'_>) -> Option<Lost> {
    let host = host(scene).ok()?;
    let (ns, of_ns) = (host.ledger.ns(Part::NoCore), host.ledger.wall_ns);
    let load = MachineLoad::of(scene.rank.file, host);
    let is_much = ns as f64 >= LEAST_LOST * of_ns as f64;
    let is_lost = is_much && is_of_others(&Taken::of(host), &load, ns);
    is_lost.then_some(Lost { ns, of_ns, busy_cores: load.busy_cores, own_cores: load.own_cores })
}

/// Whether neither the rank's own threads and processes had half of a core while the driving thread
/// had none, nor the CPU limit of its cgroup kept it off for half of that time.
fn is_of_others(taken: &Taken<'_>, load: &MachineLoad, kept_ns: u64) -> bool {
    taken.own_ns() * 2 < kept_ns && load.throttled_ns * 2 < kept_ns
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

/// What ran on cores while the driving thread had none.
struct Taken<'h> {
    /// The rank's other threads and processes, ns.
    threads_ns: u64,
    processes_ns: u64,
    /// Of the processes, those that `multiprocessing` runs functions in.
    workers_ns: u64,
    /// Of both, in pools of threads.
    pools_ns: u64,
    /// The one at one place with most of it.
    first: Option<&'h Doing>,
}

impl<'h> Taken<'h> {
    fn of(host: &'h RankHost) -> Taken<'h> {
        let meanwhile = &host.without_core;
        let sum = |passes: &dyn Fn(&Doing) -> bool| {
            meanwhile.running().filter(|doing| passes(doing)).map(|doing| doing.ns).sum()
        };
        let in_pool =
            |doing: &Doing| POOLS.iter().any(|start| doing.place.library.starts_with(start));
        Taken {
            threads_ns: sum(&|doing| !doing.is_of_other),
            processes_ns: sum(&|doing| doing.is_of_other),
            workers_ns: sum(&|doing| host.workers.is_of_pool(doing.process)),
            pools_ns: sum(&in_pool),
            first: meanwhile.running().find(|doing| !doing.place.function.is_empty()),
        }
    }

    fn words(&self) -> String {
        let first = match self.first {
            Some(doing) => format!(", most of it {} ({})", doing.shown(), duration(doing.ns)),
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
            Some(doing) => format!(
                "Run {} at another time, on other cores or with a lower priority (nice), or ask for \
                 more cores.",
                doing.thread
            ),
            None => {
                "Start fewer worker processes (num_workers of loaders, ranks on this machine), \
                     or ask for more cores."
                    .to_owned()
            }
        }
    }
}

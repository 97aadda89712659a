//! NoFreeCore: the driving thread could run, but no core is free.

use tprof_facts::units::duration;

use super::host_part::{amount, finding, hardly, host, is_found, line};
use super::machine_load::MachineLoad;
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::host::{Doing, Meanwhile};
use crate::rank::samples::Part;

/// Ready, but not on a core.
pub(super) struct NoFreeCore;

impl Rule for NoFreeCore {
    fn name(&self) -> &'static str {
        "NoFreeCore"
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
        let taken = Taken::of(&host.without_core);
        let load = MachineLoad::of(scene.rank.file, host);
        let (taken_words, load_words) = (taken.words(), load.words());
        let seen = format!("It was preempted for {}. {taken_words} {load_words}", amount(host, ns));
        let advice = match load.throttled_ns * 2 >= ns {
            true => {
                "Raise the CPU limit of the container or batch job (cpu.max, --cpus), or start \
                     no more threads and workers than it has processors."
            }
            false => taken.advice(ns),
        };
        Verdict::Found(vec![
            finding(scene, host, "the job is ready to run, but no core is free", Part::NoCore, ns)
                .seen(seen)
                .advice(advice)
                .on_line(taken.first.and_then(|doing| line(&doing.place))),
        ])
    }
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
    workers_ns: u64,
    /// Of both, in pools.
    pools_ns: u64,
    /// The one at one place with most of it.
    first: Option<&'h Doing>,
}

impl<'h> Taken<'h> {
    fn of(meanwhile: &'h Meanwhile) -> Taken<'h> {
        let sum = |passes: &dyn Fn(&Doing) -> bool| {
            meanwhile.running().filter(|doing| passes(doing)).map(|doing| doing.ns).sum()
        };
        let in_pool =
            |doing: &Doing| POOLS.iter().any(|start| doing.place.library.starts_with(start));
        Taken {
            threads_ns: sum(&|doing| !doing.is_worker),
            workers_ns: sum(&|doing| doing.is_worker),
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
            duration(self.workers_ns),
        )
    }

    /// The rank's own can only be the cause if they had most of a core meanwhile.
    fn advice(&self, kept_ns: u64) -> &'static str {
        let own_ns = self.threads_ns + self.workers_ns;
        if own_ns * 2 < kept_ns {
            return "Other programs, or a CPU limit of the container, take the cores: ask for more, \
                    or run elsewhere; fewer threads of this job gain little.";
        }
        if self.pools_ns * 2 >= own_ns {
            return "Pools of threads take the cores, and spin while they wait: set \
                    OMP_NUM_THREADS (OPENBLAS_NUM_THREADS, MKL_NUM_THREADS) to the cores of a \
                    rank, and OMP_WAIT_POLICY=passive.";
        }
        match self.workers_ns >= self.threads_ns {
            true => {
                "Start fewer worker processes (num_workers of loaders, ranks on this machine), \
                     or ask for more cores."
            }
            false => "Start fewer threads, or ask for more cores.",
        }
    }
}

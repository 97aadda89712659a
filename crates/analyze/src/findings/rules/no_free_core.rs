//! NoFreeCore: the driving thread could run, but no core is free.

use tprof_facts::units::duration;

use super::host_part::{amount, finding, hardly, host, is_found};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
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
        let others = &host.others;
        let own_ns = others.workers_running_ns + others.threads_running_ns;
        let seen = format!(
            "It was preempted for {}. The rank's other threads ran for {}, its other processes for \
             {}; load of other programs is not recorded.",
            amount(host, ns),
            duration(others.threads_running_ns),
            duration(others.workers_running_ns),
        );
        // Its own threads can only be the cause if they ran at least as long as it was kept off.
        let advice = match own_ns >= ns {
            true => {
                "Start fewer threads and workers: OMP_NUM_THREADS and MKL_NUM_THREADS for pools \
                 that spin, num_workers for loaders; or ask for more cores."
            }
            false => {
                "Other programs, or a CPU limit of the container, take the cores: ask for more, or \
                 run elsewhere; fewer threads of this job gain little."
            }
        };
        Verdict::Found(vec![
            finding(scene, host, "the job is ready to run, but no core is free", Part::NoCore, ns)
                .seen(seen)
                .advice(advice),
        ])
    }
}

//! DataInline: the driving thread loads its batches itself, so each step waits for them.

use tprof_facts::units::{duration, percent};
use tprof_metrics::host::{Place, RankHost};
use tprof_rank::samples::Part;

use super::host_part::{amount, finding_at, host, is_found, too_little, widest, with_lines};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The maximum number of workers that the advice suggests, however many cores the machine has.
const MOST_WORKERS: u64 = 16;

/// The rule that judges time below PyTorch's DataLoader with `num_workers=0`.
pub(super) struct DataInline;

impl Rule for DataInline {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DataInline",
            found_if: "as DataWait, of `data` that the thread makes itself: below PyTorch's DataLoader \
                 with `num_workers=0`, or in a span that loads data",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "`num_workers`",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        if scene.has_device() {
            return Verdict::nothing_to_judge("a job with device work: DataLoadBound judges it");
        }
        let mut places = host.ledger.places(Some(Part::Data));
        places.retain(|(place, _)| is_inline(place));
        let ns = places.iter().map(|(_, time)| time.ns).sum();
        if !is_found(host, ns) {
            return too_little(host, ns, "loading data in the driving thread");
        }
        let on_core_ns: u64 = places.iter().map(|(_, time)| time.running_ns).sum();
        let loads = format!(
            "The driving thread loads the data itself for {}, {} of its CPU time",
            amount(host, ns),
            percent(on_core_ns as f64 / host.ledger.running_ns.max(1) as f64)
        );
        Verdict::Found(vec![
            finding_at(scene, host, "the job loads its data itself", ns, is_inline)
                .seen(with_lines(&loads, &places))
                .advice(advice(scene, host, ns))
                .on_line(widest(&places)),
        ])
    }
}

fn is_inline(place: &Place) -> bool {
    place.part == Part::Data && place.is_inline
}

/// Formats the advice. With workers, loading is divided among them and runs at the same time as the
/// rest of a step.
fn advice(scene: &Scene<'_>, host: &RankHost, ns: u64) -> String {
    if host.workers.are_there() {
        return "The job has workers, and the driving thread does this beside them: have them do it, in \
                the dataset or in collate_fn, and keep them over epochs (persistent_workers=True)."
            .to_owned();
    }
    // Time without a core slows both loading and the rest of a step, so leave it out.
    let wall_ns = host.ledger.with_core_ns();
    let rest_ns = wall_ns.saturating_sub(ns);
    let free = scene.machine.cpus.map(|cpus| cpus.saturating_sub(1));
    let workers = workers(ns, rest_ns, free.unwrap_or(MOST_WORKERS));
    let least_ns = rest_ns.max(ns / workers);
    let [now, then] = [wall_ns, least_ns].map(|ns| duration(scene.per_step(ns)));
    let what = if scene.steps > 0 { "a step" } else { "all of it" };
    let cores = match free {
        Some(0) => " The job has one processor, so that workers gain nothing while they compute.",
        Some(_) => "",
        None => " Each needs a free core.",
    };
    format!(
        "Load in other processes: with DataLoader(num_workers={workers}, persistent_workers=True) \
         {what} takes {then} at best in place of {now}.{cores} Or make this line cheaper: compute \
         once what it computes again and again, and store it."
    )
}

/// Returns the fewest workers that hide the loading behind the rest of a step, but at most the
/// number of cores.
fn workers(load_ns: u64, rest_ns: u64, cores: u64) -> u64 {
    load_ns.div_ceil(rest_ns.max(1)).min(cores).clamp(1, MOST_WORKERS)
}

#[cfg(test)]
mod tests {
    use super::workers;

    #[test]
    fn the_workers_hide_the_loading_and_do_not_exceed_the_cores() {
        assert_eq!(workers(85, 15, 15), 6);
        assert_eq!(workers(85, 15, 1), 1);
        assert_eq!(workers(10, 90, 8), 1);
        assert_eq!(workers(90, 0, 64), 16);
        assert_eq!(workers(90, 10, 0), 1);
    }
}

//! GcPauses: the driving thread runs Python's garbage collector.

use tprof_rank::samples::Part;

use super::host_part::{
    amount, finding, host, is_found, too_few, too_little, unseen_native, widest, with_lines,
};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges time in Python's garbage collector.
pub(super) struct GcPauses;

impl Rule for GcPauses {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "GcPauses",
            found_if: "as DataWait, of `gc`",
            gain: "as DataWait",
            needs: "as HotFunction; an interpreter with names of its functions",
            remedy: "`gc.freeze()` after start-up, a higher `gc.set_threshold()`, fewer containers",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Gc);
        if !is_found(host, ns) {
            if let Some(unseen) = unseen_native(scene) {
                return unseen;
            }
            if host.visible.nameless_interpreter {
                return Verdict::unchecked(
                    "functions of the interpreter without names were sampled, which may belong to \
                     its garbage collector",
                    "an interpreter with symbols",
                );
            }
            return match host.visible.interpreter {
                true => too_little(host, ns, "garbage collection"),
                false => {
                    Verdict::nothing_to_judge("no function of Python's interpreter was sampled")
                }
            };
        }
        let places = host.ledger.places(Some(Part::Gc));
        let running_ns = places.iter().map(|(_, time)| time.running_ns).sum::<u64>();
        let samples = places.iter().map(|(_, time)| time.samples).sum();
        // The waits of the collector, for pages for example, are measured exactly. Only its time on
        // a core needs samples.
        if !is_found(host, ns - running_ns)
            && let Some(few) = too_few(scene, samples)
        {
            return few;
        }
        Verdict::Found(vec![
            finding(scene, host, "Python collects garbage often", Part::Gc, ns)
                .seen(with_lines(&format!("Its collector runs for {}", amount(host, ns)), &places))
                .advice(
                    "After start-up call gc.collect() and gc.freeze(), then raise \
                     gc.set_threshold(), or collect between steps only; make fewer containers \
                     (arrays in place of lists of objects).",
                )
                .on_line(widest(&places)),
        ])
    }
}

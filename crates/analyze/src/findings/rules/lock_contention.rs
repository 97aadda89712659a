//! LockContention: the driving thread waits for a lock, a condition or a thread.

use tprof_facts::units::duration;

use super::host_part::{amount, finding, hardly, host, is_found, widest, with_lines};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::rank::samples::Part;

/// Waiting for a lock that is not Python's own.
pub(super) struct LockContention;

impl Rule for LockContention {
    fn name(&self) -> &'static str {
        "LockContention"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Lock);
        if !is_found(host, ns) {
            return hardly(host, ns, "waiting for locks and threads");
        }
        let places = host.ledger.places(Some(Part::Lock));
        let holder = host.locked.holder();
        let held = match holder {
            Some(doing) => {
                format!("Meanwhile {} for {}.", doing.shown(), duration(doing.ns))
            }
            None => "No other thread was at one place meanwhile: the holder is unknown.".to_owned(),
        };
        let seen = with_lines(&format!("It waits for {}", amount(host, ns)), &places) + " " + &held;
        let advice = match holder {
            Some(doing) => format!(
                "Take out of the lock what {} does at {}, hold it for less data, or do other work \
                 before the wait.",
                doing.place.function,
                doing.place.shown(),
            ),
            None => "Hold the lock for less time or less data, or do other work before the wait; \
                     `tprof report threads` has what the other threads do."
                .to_owned(),
        };
        Verdict::Found(vec![
            finding(scene, host, "the job waits for a lock or a thread", Part::Lock, ns)
                .seen(seen)
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

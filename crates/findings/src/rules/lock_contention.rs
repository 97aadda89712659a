//! LockContention: the driving thread waits for a lock that another thread holds, or for other
//! threads that wait for locks.

use tprof_facts::units::duration;
use tprof_metrics::host::RankHost;
use tprof_rank::samples::Part;

use super::host_part::{
    delayed_threads, finding, host, is_found, too_little, waited, widest, with_lines,
};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// Share of the time of threads beyond which they do nothing but wait for locks.
const ONLY_WAITING: f64 = 0.95;

/// The rule that judges waits for locks other than the GIL.
pub(super) struct LockContention;

impl Rule for LockContention {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "LockContention",
            found_if: "as DataWait, of `lock`; without that, of threads that the driving thread waits for \
                 (subject `threads`)",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "hold the lock for less time or less data",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Lock);
        if !is_found(host, ns) {
            return of_threads(scene, host)
                .unwrap_or_else(|| too_little(host, ns, "waiting for locks"));
        }
        let places = host.ledger.places(Some(Part::Lock));
        let followed = places.iter().filter(|(place, _)| !place.thread.is_empty());
        let of_others_ns: u64 = followed.map(|(_, time)| time.ns).sum();
        if of_others_ns * 2 > ns
            && let Some(found) = of_threads(scene, host)
        {
            return found;
        }
        let holder = host.locked.holder();
        let held = match holder {
            Some(other) => {
                format!("Meanwhile {} for {}.", other.shown(), duration(other.ns))
            }
            None => "No other thread ran at one place meanwhile: the holder is unknown.".to_owned(),
        };
        let seen =
            with_lines(&format!("The driving thread waits for {}", waited(host, &places)), &places)
                + " "
                + &held;
        let advice = match holder {
            Some(other) => format!(
                "Take out of the lock what {} does, hold it for less data, or do other work before \
                 the wait.",
                other.place.shown(),
            ),
            None => "Hold the lock for less time or less data, or do other work before the wait; \
                     `tprof report threads` has what the other threads do."
                .to_owned(),
        };
        Verdict::Found(vec![
            finding(scene, host, "the job waits for a lock", Part::Lock, ns)
                .seen(seen)
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

fn of_threads(scene: &Scene<'_>, host: &RankHost) -> Option<Verdict> {
    let what = "threads of the job wait for a lock";
    let found = delayed_threads(scene, host, Part::Lock, "for locks that others hold", what)?;
    // Threads that take turns at a lock work in between. Threads that only wait may do so forever.
    let advice = match host.awaiting.delay(Part::Lock).share > ONLY_WAITING {
        true => {
            "They do nothing but wait, so this may be a deadlock: take several locks in the same order \
             everywhere, and release each on every path. While the job runs, `tprof where --rank` has \
             the stacks of all threads."
        }
        false => {
            "Hold the lock for less time or less data, give each thread its own part of the data, or \
             collect results without the lock."
        }
    };
    Some(Verdict::Found(vec![found.advice(advice)]))
}

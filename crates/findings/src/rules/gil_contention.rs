//! GilContention: the driving thread waits for Python's global lock (GIL), or for other threads
//! that wait for it.

use tprof_facts::functions::in_sentence;
use tprof_metrics::host::{GilHolders, Place, RankHost};
use tprof_rank::samples::Part;

use super::host_part::{
    at_places, delayed_threads, finding, host, is_found, line, too_little, waited, widest,
    with_lines,
};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges waits for the GIL, the lock that lets only one thread at a time run Python.
pub(super) struct GilContention;

impl Rule for GilContention {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "GilContention",
            found_if: "as DataWait, of `gil`; of threads that the driving thread waits for, if that is more \
                 (subject `threads`)",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "move the other threads' Python to processes, or to code that releases the lock",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Gil);
        let own = is_found(host, ns).then(|| of_driver(scene, host, ns));
        // The threads for which the driving thread waits get their own finding only if they lose
        // more time than the driving thread itself.
        let threads =
            (host.awaiting.delay(Part::Gil).bound_ns > ns).then(|| of_threads(scene, host));
        let found: Vec<Finding> = own.into_iter().chain(threads.flatten()).collect();
        match found.is_empty() {
            false => Verdict::Found(found),
            true => too_little(host, ns, "waiting for the GIL"),
        }
    }
}

/// Returns the finding on the driving thread. The line to change is the line that holds the lock,
/// so that is the finding's line. If no such line was sampled, the finding has the line that waits.
fn of_driver(scene: &Scene<'_>, host: &RankHost, ns: u64) -> Finding {
    let places = host.ledger.places(Some(Part::Gil));
    let advice = match holder(host) {
        Some(place) => format!(
            "Move {} to a process of its own, or to code that releases the GIL (NumPy, compiled \
             extensions); start fewer Python threads.",
            in_sentence(&place.function)
        ),
        None => "Move the other threads' Python code to processes, or start fewer.".to_owned(),
    };
    let waits =
        with_lines(&format!("The driving thread waits for {}", waited(host, &places)), &places);
    finding(scene, host, "Python threads take turns at the GIL", Part::Gil, ns)
        .seen(format!("{} {waits}", held(host)))
        .advice(advice)
        .on_line(holder(host).and_then(line).or_else(|| widest(&places)))
}

fn of_threads(scene: &Scene<'_>, host: &RankHost) -> Option<Finding> {
    let found = delayed_threads(
        scene,
        host,
        Part::Gil,
        "for the GIL",
        "threads of the job take turns at the GIL",
    )?;
    let seen = format!("{} {}", held(host), found.seen);
    let line = holder(host).and_then(line).or_else(|| found.line.clone());
    let advice = "One of them runs Python at a time: let one thread do their work, or processes, or \
                  code that releases the GIL (larger operators, compiled extensions, CUDA graphs).";
    Some(found.seen(seen).advice(advice).on_line(line))
}

fn holder(host: &RankHost) -> Option<&Place> {
    host.gil_holders.places.first().map(|(place, _)| place)
}

/// Says which lines hold the lock.
fn held(host: &RankHost) -> String {
    let GilHolders { places, are_sampled } = &host.gil_holders;
    match (places.is_empty(), are_sampled) {
        (true, _) => "Its holder was not sampled.".to_owned(),
        (false, true) => format!("Other threads hold it in {}.", at_places(places)),
        (false, false) => {
            format!("Other threads run Python meanwhile, in {}.", at_places(places))
        }
    }
}

//! GilContention: the driving thread waits for Python's global lock, or for threads that do.

use super::host_part::{
    at_places, delayed_threads, finding, hardly, host, is_found, line, waited, widest, with_lines,
};
use crate::findings::finding::Finding;
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::host::RankHost;
use crate::rank::samples::Part;

/// Waiting for the lock that lets one thread of Python run.
pub(super) struct GilContention;

impl Rule for GilContention {
    fn name(&self) -> &'static str {
        "GilContention"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let ns = host.ledger.ns(Part::Gil);
        let own = is_found(host, ns).then(|| of_driver(scene, host, ns));
        // Threads that it waits for are among the driving thread's own time.
        let threads =
            (host.awaiting.delay(Part::Gil).bound_ns > ns).then(|| of_threads(scene, host));
        let found: Vec<Finding> = own.into_iter().chain(threads.flatten()).collect();
        match found.is_empty() {
            false => Verdict::Found(found),
            true => hardly(host, ns, "waiting for the GIL"),
        }
    }
}

/// The line that holds the lock is what to change; where it was not sampled, the one that waits.
fn of_driver(scene: &Scene<'_>, host: &RankHost, ns: u64) -> Finding {
    let places = host.ledger.places(Some(Part::Gil));
    let holder = host.gil_holders.first().map(|(place, _)| place);
    let held = match holder {
        None => "Its holder was not sampled.".to_owned(),
        Some(_) => format!("Other threads held it in {}.", at_places(&host.gil_holders)),
    };
    let advice = match holder {
        Some(place) => format!(
            "Move {} to a process of its own, or to code that releases the GIL (NumPy, compiled \
             extensions); start fewer Python threads.",
            place.function
        ),
        None => "Move the other threads' Python code to processes, or start fewer.".to_owned(),
    };
    let waits = with_lines(&format!("It waits for {}", waited(host, &places)), &places);
    finding(scene, host, "Python threads take turns at the GIL", Part::Gil, ns)
        .seen(format!("{waits} {held}"))
        .advice(advice)
        .on_line(holder.and_then(line).or_else(|| widest(&places)))
}

fn of_threads(scene: &Scene<'_>, host: &RankHost) -> Option<Finding> {
    Some(
        delayed_threads(
            scene,
            host,
            Part::Gil,
            "for the GIL",
            "threads of the job take turns at the GIL",
        )?
        .advice(
            "One of them runs Python at a time: let one thread do their work, or processes, or \
                 code that releases the GIL (larger operators, compiled extensions, CUDA graphs).",
        ),
    )
}

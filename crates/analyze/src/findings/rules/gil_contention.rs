//! GilContention: the driving thread waits for Python's global lock.

use super::host_part::{at_places, finding, hardly, host, is_found, waited, widest, with_lines};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
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
        if !is_found(host, ns) {
            return hardly(host, ns, "waiting for the GIL");
        }
        let places = host.ledger.places(Some(Part::Gil));
        let held = match host.others.gil_holders.is_empty() {
            true => "Its holder was not sampled.".to_owned(),
            false => format!("Other threads held it in {}.", at_places(&host.others.gil_holders)),
        };
        let advice = match host.others.gil_holders.first() {
            Some((place, _)) => format!(
                "Move {} to a process of its own, or to code that releases the GIL \
                 (NumPy, compiled extensions); start fewer Python threads.",
                place.function
            ),
            None => "Move the other threads' Python code to processes, or start fewer.".to_owned(),
        };
        Verdict::Found(vec![
            finding(scene, host, "Python threads take turns at the GIL", Part::Gil, ns)
                .seen(
                    with_lines(&format!("It waits for {}", waited(host, &places)), &places)
                        + " "
                        + &held,
                )
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

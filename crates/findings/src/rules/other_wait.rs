//! OtherWait: the driving thread waits for child processes, for other threads, for events, or for a
//! time to pass.

use tprof_facts::units::duration;
use tprof_metrics::host::{ConcurrentWork, OtherCause, Place, RankHost};
use tprof_rank::samples::Part;

use super::host_part::{
    at_places, finding_at, host, is_found, too_little, waited, widest, with_lines,
};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::severity::Severity;
use crate::verdict::Verdict;

/// The rule that judges waits that no other rule judges.
pub(super) struct OtherWait;

impl Rule for OtherWait {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "OtherWait",
            found_if: "as DataWait, of `other`: for child processes (subject `children`), for `threads` to \
                 end, at `conditions`, in `sleeps`, for other `events`",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "what the thread waits for, or leave the wait out",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let causes = [
            OtherCause::Child,
            OtherCause::Start,
            OtherCause::Thread,
            OtherCause::Work,
            OtherCause::Sleep,
            OtherCause::Sync,
            OtherCause::Event,
        ];
        // Without a device, DataWait judges the start of workers together with the other waits for
        // workers.
        let is_judged = |cause: &OtherCause| *cause != OtherCause::Start || scene.has_device();
        let causes = causes.into_iter().filter(is_judged);
        let found: Vec<Finding> = causes.filter_map(|cause| of_cause(scene, host, cause)).collect();
        match found.is_empty() {
            false => Verdict::Found(found),
            true => {
                too_little(host, host.ledger.ns(Part::Other), "sleeping, and waiting for others,")
            }
        }
    }
}

fn of_cause(scene: &Scene<'_>, host: &RankHost, cause: OtherCause) -> Option<Finding> {
    let mut places = host.ledger.places(Some(Part::Other));
    places.retain(|(place, time)| place.cause == cause && !is_rest(host, place, time.ns));
    let ns = places.iter().map(|(_, time)| time.ns).sum();
    if !is_found(host, ns) {
        return None;
    }
    let (subject, what, advice) = match cause {
        OtherCause::Child => (
            "children",
            "the job waits for child processes",
            "Do their work in this process (a library in place of a program), give each more to \
             do, or run several at once where cores are free.",
        ),
        OtherCause::Start => (
            "starts",
            "the job waits for its workers to start",
            "Start them once, and while there is other work to do (persistent_workers=True, one pool \
             for all of the job).",
        ),
        OtherCause::Thread => (
            "threads",
            "the job waits for its threads to end",
            "That is no loss where they have all cores busy; else divide their work more evenly, \
             give this thread a part of it, or remove what they wait for themselves.",
        ),
        OtherCause::Work => (
            "conditions",
            "the job waits for other threads",
            "Which thread it waits for is not known: none of its process worked meanwhile, and less \
             so at other times. `tprof report threads` has what they do; give this thread other work \
             before the wait.",
        ),
        OtherCause::Sleep => (
            "sleeps",
            "the job sleeps",
            "If it waits for something, wait for that (a condition, a notification, a blocking \
             call) and not for a time to pass, or shorten the interval.",
        ),
        OtherCause::Sync => (
            "synchronisation",
            "the job waits in spans that synchronise",
            "Synchronise less often, give this thread other work before it does, or shorten what it \
             waits for.",
        ),
        OtherCause::Event => (
            "events",
            "the job waits for events",
            "If nothing is to be done meanwhile, this is no loss; else `tprof report threads` has \
             what other threads and processes do.",
        ),
    };
    let mut seen =
        with_lines(&format!("The driving thread waits for {}", waited(host, &places)), &places);
    let children = &host.children;
    if cause == OtherCause::Child && children.running_ns > 0 {
        let most = match children.running.is_empty() {
            true => String::new(),
            false => format!(", most in {}", at_places(&children.running)),
        };
        let ran = duration(children.running_ns);
        seen.push_str(&format!(" Meanwhile they ran for {ran}{most}."));
    }
    if matches!(cause, OtherCause::Thread | OtherCause::Work) {
        seen.push_str(&of_threads(&host.awaiting));
    }
    let is_of = |place: &Place| place.part == Part::Other && place.cause == cause;
    let mut finding = finding_at(scene, host, what, ns, is_of)
        .about(subject)
        .seen(seen)
        .advice(advice)
        .on_line(widest(&places));
    // The program may wait on purpose, so cap the severity.
    finding.max_severity = Some(Severity::Medium);
    Some(finding)
}

/// Whether most of the waits at a place were waits for the work of other threads. `ns` contains
/// only the rest of these waits: the time until such a thread begins, or until this thread
/// continues.
fn is_rest(host: &RankHost, place: &Place, ns: u64) -> bool {
    let of = host.ledger.followed.iter().filter(|((_, waits, _), _)| waits == place);
    of.map(|(_, time)| time.ns).sum::<u64>() > ns
}

/// Says what the threads did for which the driving thread waited.
fn of_threads(concurrent: &ConcurrentWork) -> String {
    let all_ns = concurrent.of_threads(|_| true);
    if all_ns == 0 {
        return " What its other threads did meanwhile was not sampled.".to_owned();
    }
    let parts = [
        ("on a core", concurrent.of_threads(|place| place.part.is_running())),
        ("ready, without a core,", concurrent.of_threads(|place| place.part == Part::NoCore)),
        ("waiting for tprof", concurrent.of_threads(|place| place.part == Part::Tprof)),
        (
            "waiting for a lock that another held",
            concurrent.of_threads(|place| place.part == Part::Lock),
        ),
        ("off a core, unknown where,", concurrent.of_threads(|place| place.part == Part::Unknown)),
    ];
    let known: u64 = parts.iter().map(|(_, ns)| ns).sum();
    let rest = ("waiting for something else", all_ns.saturating_sub(known));
    let parts = parts.into_iter().chain([rest]).filter(|(_, ns)| *ns > 0);
    let parts: Vec<String> =
        parts.map(|(what, ns)| format!("{what} for {}", duration(ns))).collect();
    format!(" Meanwhile its other threads together were {}.", parts.join(", "))
}

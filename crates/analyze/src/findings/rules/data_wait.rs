//! DataWait: the driving thread waits for what worker processes or threads make.

use tprof_facts::units::{duration, percent};

use super::host_part::{at_places, finding_at, hardly, host, is_found, waited, widest, with_lines};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::host::{Doing, Others, Place};
use crate::rank::samples::Part;

/// Share of the workers' time without a core from which more workers gain nothing.
const MUCH_READY: f64 = 0.3;

/// Waiting below functions that take batches and results.
pub(super) struct DataWait;

impl Rule for DataWait {
    fn name(&self) -> &'static str {
        "DataWait"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        if scene.has_device() {
            return Verdict::none("a job with device work: DataLoadBound judges it");
        }
        // What it loads itself is DataInline's.
        let places = host.ledger.places(Some(Part::Data));
        let places: Vec<_> = places.into_iter().filter(|(place, _)| !place.is_inline).collect();
        let ns = places.iter().map(|(_, time)| time.ns).sum();
        if !is_found(host, ns) {
            return hardly(host, ns, "waiting for data");
        }
        let workers = &host.others;
        let maker = host.without_data.maker().filter(|_| workers.workers.is_empty());
        let mut made = match workers.workers.is_empty() {
            true if maker.is_some() => maker.as_ref().map(meanwhile).unwrap_or_default(),
            true => "No worker process was sampled on a core.".to_owned(),
            false => format!(
                "The workers ran for {}, most in {}, and were ready without a core for {}.",
                duration(workers.workers_running_ns),
                at_places(&workers.workers),
                duration(workers.workers_ready_ns),
            ),
        };
        if waits_most(workers) {
            let waits = at_places(&workers.workers_waiting);
            made.push_str(&format!(" They wait themselves: {waits}."));
        }
        let seen =
            with_lines(&format!("It waits for {}", waited(host, &places)), &places) + " " + &made;
        let is_there = |place: &Place| place.part == Part::Data && !place.is_inline;
        Verdict::Found(vec![
            finding_at(scene, host, "the job waits for its next data", ns, is_there)
                .seen(seen)
                .advice(maker.as_ref().map_or_else(|| advice(workers), of_maker))
                .on_line(widest(&places)),
        ])
    }
}

/// What a thread of the same process did.
fn meanwhile(maker: &Doing) -> String {
    let part = maker.place.part.word();
    let (thread, place, ns) = (&maker.thread, maker.place.shown(), duration(maker.ns));
    format!("Meanwhile {thread} is in {place} for {ns}, most of that {part}.")
}

fn of_maker(maker: &Doing) -> String {
    format!(
        "Shorten what {} does in {} ({}), begin it earlier, or do other work before the wait.",
        maker.thread,
        maker.place.shown(),
        maker.place.part.word()
    )
}

/// Whether the workers wait for other things than their next task longer than they run.
fn waits_most(workers: &Others) -> bool {
    let waits: u64 = workers.workers_waiting.iter().map(|(_, ns)| ns).sum();
    waits > workers.workers_running_ns + workers.workers_ready_ns
}

/// More workers only help where a core is free.
fn advice(workers: &Others) -> String {
    if let Some((place, _)) = workers.workers_waiting.first().filter(|_| waits_most(workers)) {
        return format!(
            "Shorten what the workers wait for at {} (storage, a peer, a sleep), read ahead \
             there, or start more workers: waiting takes no core.",
            place.shown()
        );
    }
    let active_ns = workers.workers_running_ns + workers.workers_ready_ns;
    let ready = workers.workers_ready_ns as f64 / active_ns.max(1) as f64;
    let hottest = workers.workers.first().map(|(place, _)| place.shown());
    match hottest {
        Some(function) if ready >= MUCH_READY => format!(
            "Make {function} cheaper, or free cores: the workers lacked a core for {} of their \
             active time, so more of them gain nothing.",
            percent(ready)
        ),
        Some(function) => format!(
            "Make {function} cheaper, load ahead (prefetch), or start more workers \
             (DataLoader(num_workers=…)) as far as cores are free."
        ),
        None => "The workers wait, too: load ahead (prefetch), and shorten what they wait for; \
             `tprof report threads` lists them."
            .to_owned(),
    }
}

//! DataWait: the driving thread waits until worker processes or threads have made data, or have
//! started. Judges jobs without device work; DataLoadBound judges the others.

use std::cmp::Reverse;

use tprof_facts::units::{duration, percent};
use tprof_metrics::host::{OtherCause, Place, RankHost, ThreadAtPlace, WallTime, WorkersTime};
use tprof_rank::samples::Part;

use super::file_part::{READS_EXPLAIN, is_explained};
use super::host_part::{
    amount, at_places, finding_at, finding_in, host, is_found, modules, too_little, waited, widest,
    with_lines,
};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// If the workers lack a core for this share of their active time, more workers don't help.
const MUCH_READY: f64 = 0.3;

/// The rule that judges waits within functions that take batches and results.
pub(super) struct DataWait;

impl Rule for DataWait {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DataWait",
            found_if: "without a device: at least 1 % of the driving thread's time is `data` of [`report \
                 host`](#host), waiting for what others make, unless SmallReads, ReadTwice or SlowStorage \
                 explains half of it; or a wait until workers have started (subject `start of workers`)",
            gain: "`wall_ns` of the part; with a device no more than its idle time there",
            needs: "as HotFunction",
            remedy: "more workers, faster ones, or persistent ones",
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
        // Leave out data that the thread loads itself, because DataInline judges it.
        let places = host.ledger.places(Some(Part::Data));
        let places: Vec<_> = places.into_iter().filter(|(place, _)| !place.is_inline).collect();
        let all_ns: u64 = places.iter().map(|(_, time)| time.ns).sum();
        let starting_ns = host.workers.starting.length().min(all_ns);
        let starts_ns = starting_ns + host.for_start.length();
        let making_ns = all_ns - starting_ns;
        let reads_explain = is_found(host, making_ns) && is_explained(scene, making_ns);
        let made = (is_found(host, making_ns) && !reads_explain)
            .then(|| of_making(scene, host, &places, starting_ns));
        let starts = is_found(host, starts_ns).then(|| of_starting(scene, host, starts_ns));
        let found: Vec<Finding> = made.into_iter().chain(starts).collect();
        match found.is_empty() {
            false => Verdict::Found(found),
            true if reads_explain => Verdict::no_problem(READS_EXPLAIN),
            true => too_little(host, all_ns + host.for_start.length(), "waiting for data"),
        }
    }
}

/// Returns the finding on the wait for workers that already work.
fn of_making(
    scene: &Scene<'_>,
    host: &RankHost,
    places: &[(&Place, &WallTime)],
    starting_ns: u64,
) -> Finding {
    let ns = places.iter().map(|(_, time)| time.ns).sum::<u64>() - starting_ns;
    let made = &host.made;
    let has_workers = !made.running.is_empty() || waits_most(made);
    let is_awaited = |thread| host.workers.has_thread(thread);
    let maker = host.without_data.maker(is_awaited).filter(|_| !has_workers);
    let mut meanwhile = match &maker {
        Some(maker) => of_thread(maker),
        None if made.running.is_empty() => "No worker process was sampled on a core.".to_owned(),
        None => format!(
            "Meanwhile the workers ran for {}, most in {}, and were ready without a core for {}.",
            duration(made.running_ns),
            at_places(&made.running),
            duration(made.ready_ns),
        ),
    };
    if waits_most(made) {
        meanwhile.push_str(&format!(" They wait themselves: {}.", at_places(&made.waiting)));
    }
    let mut waits = format!("The driving thread waits for {}", waited(host, places));
    if starting_ns > 0 {
        waits.push_str(&format!(", {} of it until workers have started", duration(starting_ns)));
    }
    let is_there = |place: &Place| place.part == Part::Data && !place.is_inline;
    // A pool may compute anything, so what it makes is called data only if a loader waits for it.
    let of_pool_ns: u64 =
        places.iter().filter(|(place, _)| place.of_pool).map(|(_, time)| time.ns).sum();
    let of_pool = of_pool_ns * 2 > ns;
    let advice = match &maker {
        Some(maker) => of_maker(maker),
        None => of_alone(host).unwrap_or_else(|| of_workers(made, of_pool)),
    };
    let what = match of_pool {
        true => "the job waits for what its pool of workers computes",
        false => "the job waits for its next data",
    };
    finding_at(scene, host, what, ns, is_there)
        .seen(with_lines(&waits, places) + " " + &meanwhile)
        .advice(advice)
        .on_line(widest(places))
}

/// Returns the finding on the wait for workers that are starting, while none of them works yet.
fn of_starting(scene: &Scene<'_>, host: &RankHost, ns: u64) -> Finding {
    let workers = &host.workers;
    let mut places = host.ledger.places(None);
    places.retain(|(place, _)| match place.part {
        Part::Data => !place.is_inline && !workers.starting.is_empty(),
        part => part == Part::Other && place.cause == OtherCause::Start,
    });
    let mut times = workers.starting.union(&host.for_start).parts().to_vec();
    times.sort_by_key(|part| (Reverse(part.length()), *part));
    let imports = match workers.imports.is_empty() {
        true => "No import of theirs was sampled.".to_owned(),
        false => format!("They are mostly in imports of {}.", modules(&workers.imports)),
    };
    let waits = format!(
        "The driving thread waits for {} while workers start and none has work",
        amount(host, ns)
    );
    let times = times.into_iter().map(|part| (host.driver.thread, Part::Data, part));
    finding_in(scene, host, "the job waits for its workers to start", ns, times)
        .about("start of workers")
        .seen(format!("{} {imports}", with_lines(&waits, &[])))
        .advice(
            "Start them once and earlier (persistent_workers=True, one pool for all of the job), let \
             them import less (imports of the main module below `if __name__ == \"__main__\"`), or \
             import before they are forked (multiprocessing.set_forkserver_preload, the start method \
             `fork`).",
        )
        .on_line(widest(&places))
}

/// Says what a thread of the same process did during the wait.
fn of_thread(maker: &ThreadAtPlace) -> String {
    let part = maker.place.part.word();
    let (thread, place, ns) = (&maker.thread, maker.place.shown(), duration(maker.ns));
    format!("Meanwhile {thread} is in {place} for {ns}, most of that {part}.")
}

fn of_maker(maker: &ThreadAtPlace) -> String {
    format!(
        "Shorten what {} does in {} ({}), begin it earlier, or do other work before the wait.",
        maker.thread,
        maker.place.shown(),
        maker.place.part.word()
    )
}

/// Whether the workers wait longer than they are active. Waits for their next task don't count.
fn waits_most(made: &WorkersTime) -> bool {
    let waits: u64 = made.waiting.iter().map(|(_, ns)| ns).sum();
    waits > made.running_ns + made.ready_ns
}

/// Returns the advice if one worker has most of the work, because then more workers don't help.
fn of_alone(host: &RankHost) -> Option<String> {
    let (process, ns) = host.workers.alone?;
    let made = &host.made;
    let most = if waits_most(made) { made.waiting.first() } else { made.running.first() };
    let other = host
        .without_data
        .threads
        .iter()
        .find(|other| other.process == process && other.is_first)?;
    Some(format!(
        "Divide {} more evenly among the workers (smaller tasks, the longest first, chunksize=1), or \
         make it cheaper: for {} only one of them worked, most often {}, while the others waited for \
         tasks.",
        most?.0.shown(),
        duration(ns),
        other.thread,
    ))
}

/// Returns the advice on workers. More workers help only if a core is free.
fn of_workers(made: &WorkersTime, of_pool: bool) -> String {
    if let Some((place, _)) = made.waiting.first().filter(|_| waits_most(made)) {
        return format!(
            "Shorten what the workers wait for at {} (storage, a peer, a sleep), read ahead \
             there, or start more workers: waiting takes no core.",
            place.shown()
        );
    }
    let active_ns = made.running_ns + made.ready_ns;
    let ready = made.ready_ns as f64 / active_ns.max(1) as f64;
    let hottest = made.running.first().map(|(place, _)| place.shown());
    match hottest {
        Some(function) if ready >= MUCH_READY => format!(
            "Make {function} cheaper, or free cores: the workers lacked a core for {} of their \
             active time, so more of them gain nothing.",
            percent(ready)
        ),
        Some(function) if of_pool => format!(
            "Make {function} cheaper, work on something else meanwhile (map_async, submit), or start \
             more workers as far as cores are free."
        ),
        None if of_pool => "The workers wait, too: shorten what they wait for; `tprof report \
             threads` lists them."
            .to_owned(),
        Some(function) => format!(
            "Make {function} cheaper, load ahead (prefetch), or start more workers \
             (DataLoader(num_workers=…)) as far as cores are free."
        ),
        None => "The workers wait, too: load ahead (prefetch), and shorten what they wait for; \
             `tprof report threads` lists them."
            .to_owned(),
    }
}

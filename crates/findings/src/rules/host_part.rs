//! Shares verdicts, findings and texts among the rules on the driving thread's wall time.

use tprof_facts::units::{counted, duration, percent};
use tprof_metrics::host::{LONGEST, Place, RankHost, WallTime};
use tprof_rank::base::intervals::Interval;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{Part, UnsampledShare};
use tprof_trace::model::ThreadIndex;

use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// If at least this share of the judged time is unknown, it may belong to any part. So the rules
/// can't say that a part takes little time.
const MOST_UNKNOWN: f64 = 0.25;
/// The smallest share of the judged time at which a part is reported.
pub(super) const LEAST_SHARE: f64 = 0.01;

/// The smallest number of samples with which time on a core is reported. With fewer samples, the
/// standard error is over half of the time.
const LEAST_SAMPLES: u64 = 4;

/// With fewer samples than this in all of the judged time, hardly any function can be reported.
const FEW_SAMPLES: u64 = 20;
/// If a thread is on a core for less than this share of the judged time, waits slow it down. Waits
/// are recorded without samples, so few samples don't matter then.
const LEAST_RUNNING: f64 = 0.1;
/// Users record fewer steps than this on purpose, to record each step in more detail.
const FEW_STEPS: usize = 50;

/// The shortest wall time that is judged: five samples at the default rate.
const LEAST_JUDGED_NS: u64 = 50_000_000;

/// Returns the driving thread's wall time, or a verdict with the reason why it isn't judged.
pub(super) fn host<'s>(scene: &'s Scene<'_>) -> Result<&'s RankHost, Verdict> {
    let host = sampled(scene)?;
    let judged_ns = host.ledger.wall_ns;
    if judged_ns < LEAST_JUDGED_NS {
        return Err(Verdict::unchecked(
            format!("only {} of the driving thread's time are not start-up", duration(judged_ns)),
            "a run of a second or more",
        ));
    }
    Ok(host)
}

/// Returns the driving thread's wall time, however short it is. Without one, returns a verdict with
/// the reason.
pub(super) fn sampled<'s>(scene: &'s Scene<'_>) -> Result<&'s RankHost, Verdict> {
    scene.host().ok_or_else(|| {
        Verdict::unchecked(
            "the driving thread was not sampled",
            "CPU samples (`tprof run --activities cpu`)",
        )
    })
}

/// Returns the verdict of rules that recognize compiled functions by name, if no sample names such
/// a function.
pub(super) fn unseen_native(scene: &Scene<'_>) -> Option<Verdict> {
    let is_unseen = scene.host().is_some_and(|host| !host.visible.native);
    is_unseen.then(|| {
        Verdict::unchecked(
            "no compiled function was sampled",
            "samples of native code: perf events, which `tprof doctor` checks",
        )
    })
}

/// Returns the verdict on a part that takes too little time to report: clear, or unchecked if too
/// much of the time is unknown.
pub(super) fn too_little(host: &RankHost, ns: u64, what: &str) -> Verdict {
    let share = |ns: u64| ns as f64 / host.ledger.wall_ns.max(1) as f64;
    let unknown = share(host.ledger.ns(Part::Unknown));
    if unknown >= MOST_UNKNOWN {
        return Verdict::unchecked(
            format!("{} of the driving thread's time is unknown", percent(unknown)),
            "samples of all of it: perf events, and a recording without losses",
        );
    }
    Verdict::no_problem(format!("{what} takes {} ({})", duration(ns), percent(share(ns))))
}

/// Whether a part of the judged time is large enough to be reported.
pub(super) fn is_found(host: &RankHost, ns: u64) -> bool {
    ns > 0 && ns as f64 >= LEAST_SHARE * host.ledger.wall_ns as f64
}

/// Returns the verdict on time on a core that has too few samples to report; `None` if it has
/// enough.
pub(super) fn too_few(scene: &Scene<'_>, samples: u64) -> Option<Verdict> {
    (samples < LEAST_SAMPLES).then(|| {
        let of_it = counted(samples, "sample", "samples");
        Verdict::unchecked(
            format!("only {of_it} of it: {}", for_more_samples(scene)),
            "a longer run, or more samples a second (`--sample-rate`)",
        )
    })
}

/// Returns the advice on how to get more samples.
fn for_more_samples(scene: &Scene<'_>) -> &'static str {
    match scene.steps {
        1..FEW_STEPS => "use `--sample-rate 999` or record 50 steps",
        _ => "use `--sample-rate 999` or record for longer",
    }
}

/// Returns a note if the driving thread has so few samples in the judged time that none of its
/// functions can be reported. The note follows the rank's name. Returns `None` if the thread hardly
/// ran. Also returns `None` if the rank has a device, because rules on devices need no samples.
pub(crate) fn few_samples(scene: &Scene<'_>) -> Option<String> {
    let host = scene.host()?;
    let ledger = &host.ledger;
    let runs = ledger.running_ns as f64 >= LEAST_RUNNING * ledger.wall_ns as f64;
    let is_few =
        runs && !scene.has_device() && ledger.running_ns > 0 && ledger.samples < FEW_SAMPLES;
    is_few.then(|| {
        let samples = counted(ledger.samples, "sample", "samples");
        format!(
            "only {samples} of the driving thread lie in the judged time, too few to divide it by \
             function: {}",
            for_more_samples(scene)
        )
    })
}

/// Formats a time with its share of the judged time: `1.2 s (34 %)`.
pub(super) fn amount(host: &RankHost, ns: u64) -> String {
    let share = ns as f64 / host.ledger.wall_ns.max(1) as f64;
    format!("{} ({})", duration(ns), percent(share))
}

/// Formats the time of waits at these places like [`amount`]. If the time includes a share of the
/// waits without a stack, it is an estimate: `~1.2 s \u{b1} 0.1 s (34 %)`.
pub(super) fn waited(host: &RankHost, places: &[(&Place, &WallTime)]) -> String {
    let ns = places.iter().map(|(_, time)| time.ns).sum::<u64>();
    let share = ns as f64 / host.ledger.wall_ns.max(1) as f64;
    let mut shared = UnsampledShare::default();
    places.iter().for_each(|(_, time)| shared.add(&time.shared));
    format!("{} ({})", about(ns, &shared), percent(share))
}

/// Formats a time; with its error, if it includes a share of the waits without a stack.
fn about(ns: u64, shared: &UnsampledShare) -> String {
    let error_ns = (1.96 * shared.variance().sqrt()).round() as u64;
    match error_ns {
        0 => duration(ns),
        error_ns => format!("~{} \u{b1} {}", duration(ns), duration(error_ns)),
    }
}

/// Makes the finding on a part of the driving thread's time. If the rank has a device, the gain is
/// at most the time in which the device was idle meanwhile.
pub(super) fn finding(
    scene: &Scene<'_>,
    host: &RankHost,
    what: &str,
    part: Part,
    ns: u64,
) -> Finding {
    finding_at(scene, host, what, ns, |place| place.part == part)
}

/// Like [`finding`], but only for the places that pass `is_there`.
pub(super) fn finding_at(
    scene: &Scene<'_>,
    host: &RankHost,
    what: &str,
    ns: u64,
    is_there: impl Fn(&Place) -> bool,
) -> Finding {
    let places = host.longest.iter().filter(|one| is_there(&one.place));
    let places = places.map(|one| (one.thread, one.place.part, one.interval));
    let bound_ns = match scene.has_device() {
        true => ns.min(scene.idle_at(&is_there)),
        false => ns,
    };
    finding_in(scene, host, what, bound_ns, places)
}

/// Makes a finding on some times of the driving thread, or of threads that it waits for. The times
/// must be ordered longest first.
pub(super) fn finding_in(
    scene: &Scene<'_>,
    host: &RankHost,
    what: &str,
    bound_ns: u64,
    times: impl Iterator<Item = (ThreadIndex, Part, Interval)>,
) -> Finding {
    let places = times.take(LONGEST).map(move |(thread, part, interval)| Evidence {
        interval,
        place: Track::Thread(thread),
        name: part.word().into(),
    });
    scene.finding(what).bound(bound_ns).of(of_ns(scene, host)).local().at(places)
}

/// Makes the finding on threads for which the driving thread waits and that themselves wait
/// `for_what` (`for locks`). Without these waits, the threads would finish earlier. The bound
/// assumes that they save the waits' share of their time. Returns `None` if that is too little.
pub(super) fn delayed_threads(
    scene: &Scene<'_>,
    host: &RankHost,
    part: Part,
    for_what: &str,
    what: &str,
) -> Option<Finding> {
    let delay = host.awaiting.delay(part);
    if !is_found(host, delay.bound_ns) {
        return None;
    }
    let seen = format!(
        "The driving thread waits for {} for other threads; these wait {} ({} of their time together) {for_what}: {}.",
        amount(host, host.awaiting.blocked_ns),
        duration(delay.ns),
        percent(delay.share),
        at_places(&delay.places)
    );
    let found = finding_at(scene, host, what, delay.bound_ns, |place| !place.thread.is_empty())
        .about("threads")
        .seen(seen)
        .on_line(delay.places.first().and_then(|(place, _)| line(place)));
    Some(found)
}

/// Returns the time of which a gain is reported as a share: the devices' window if the rank has
/// devices, otherwise the judged time of the driving thread.
fn of_ns(scene: &Scene<'_>, host: &RankHost) -> u64 {
    match scene.has_device() {
        true => scene.window_ns(),
        false => host.ledger.wall_ns,
    }
}

/// Returns the source line of a place; `None` if its function is unknown.
pub(super) fn line(place: &Place) -> Option<SourceLine> {
    (!place.function.is_empty()).then(|| SourceLine {
        function: place.function.clone(),
        file: place.file.clone(),
        line: place.line,
    })
}

/// Returns the source line at which most of the time was spent.
pub(super) fn widest(places: &[(&Place, &WallTime)]) -> Option<SourceLine> {
    let mut sums: Vec<(SourceLine, u64)> = Vec::new();
    for (place, time) in places {
        let Some(line) = line(place) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == line) {
            Some((_, ns)) => *ns += time.ns,
            None => sums.push((line, time.ns)),
        }
    }
    // If two lines have equal time, take the first one. The places are in a fixed order, so the
    // result doesn't vary.
    let most = sums.iter().map(|(_, ns)| *ns).max()?;
    sums.into_iter().find(|(_, ns)| *ns == most).map(|(line, _)| line)
}

/// Appends the places with most of the time to a sentence: `The driving thread waits for 1.4 s: f (a.py:3) 1.2 s, g
/// (b.py:7) 0.2 s.` If no place is known, appends only the full stop.
pub(super) fn with_lines(sentence: &str, places: &[(&Place, &WallTime)]) -> String {
    match lines(places) {
        known if known.is_empty() => format!("{sentence}."),
        known => format!("{sentence}: {known}."),
    }
}

/// Formats the two places with most of the time: `f (a.py:3) 1.2 s, g (b.py:7) 0.2 s`.
fn lines(places: &[(&Place, &WallTime)]) -> String {
    let mut sums: Vec<(String, u64, UnsampledShare)> = Vec::new();
    for (place, time) in places.iter().filter(|(place, _)| !place.function.is_empty()) {
        let shown = place.shown();
        match sums.iter_mut().find(|(known, ..)| *known == shown) {
            Some((_, ns, shared)) => {
                *ns += time.ns;
                shared.add(&time.shared);
            }
            None => sums.push((shown, time.ns, time.shared)),
        }
    }
    sums.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let shown = sums.iter().take(2);
    let shown = shown.map(|(name, ns, shared)| format!("{name} {}", about(*ns, shared)));
    shown.collect::<Vec<String>>().join(", ")
}

/// Formats the first two places with their time: `f (a.py:3) 1.2 s, g (b.py:7) 0.2 s`.
pub(super) fn at_places(of: &[(Place, u64)]) -> String {
    let shown = of.iter().take(2).map(|(at, ns)| format!("{} {}", at.shown(), duration(*ns)));
    shown.collect::<Vec<String>>().join(", ")
}

/// Formats the first two modules with their time: `torch (1.2 s), numpy (0.2 s)`.
pub(super) fn modules(of: &[(String, u64)]) -> String {
    let shown = of.iter().take(2).map(|(name, ns)| format!("{name} ({})", duration(*ns)));
    shown.collect::<Vec<String>>().join(", ")
}

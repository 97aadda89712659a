//! MachineErrors: the machine had errors, and a slow step, a failure or a hang followed, or the error
//! alone means that a part of the machine is lost.

use std::collections::BTreeMap;

use tprof_facts::counters::{place, quantity, title};
use tprof_facts::machine_errors::{ErrorPlace, MachineError, MachineErrorKind, Weight, XidClass};
use tprof_facts::units::{count, counted, duration};
use tprof_metrics::machine::{MachineErrors as Errors, Totals, UNCORRECTED};
use tprof_metrics::memory::timeline::Cgroup;
use tprof_rank::base::intervals::Interval;
use tprof_trace::model::counter;

use super::error_consequences::{Consequences, Events};
use super::error_rates::ErrorRates;
use crate::finding::{Evidence, Finding, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges errors of the machine beside the run.
pub(super) struct MachineErrors;

/// What the kernel writes if a cgroup's limit was reached.
const OF_CGROUP: &str = "Memory cgroup out of memory";
const NO_TIME: &str = "an error of the machine costs the job, or nothing";
/// The share of a finding after which something failed or hung; it makes the finding critical.
const FAILED: f64 = 1.0;
/// The share of a fatal error after which nothing failed; it makes a high finding.
const FATAL: f64 = 0.1;
/// The least share of a finding after which steps were slow; it makes a low finding.
const SLOWED: f64 = 0.01;
/// The driver's library and the kernel's log tell of one XID within this time, ns.
const SAME_NS: u64 = 5_000_000_000;

impl Rule for MachineErrors {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "MachineErrors",
            found_if: "the machine had an error that it did not correct, such as an XID, and a step of \
                 1.5 times the median or more, a failure or a hang followed; or a device, its \
                 memory or a link was lost; or errors were 4 times as frequent in slow steps",
            gain: "time by which these steps were longer than the median; none in time where \
                 something failed: then it is critical",
            needs: "a tprof recording",
            remedy: "drain the node, check the cable, the disk or the server; the finding says which",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let errors = Errors::of(scene.rank.file);
        if errors.watched().is_empty() {
            let why = match errors.were_watched() {
                true => errors.watch(),
                false => "nobody watched the machine for errors".to_owned(),
            };
            return Verdict::unchecked(why, "a recording by `tprof run`");
        }
        let watch = errors.watch();
        if !errors.has_any() {
            return Verdict::no_problem(format!("the machine reported no error; {watch}"));
        }
        let clear = format!("nothing followed the machine's errors; {watch}");
        let events = Events::of(scene);
        let mut found = of_marks(scene, &errors, &events);
        found.extend(of_counters(scene, &errors, &events));
        if found.is_empty() { Verdict::no_problem(clear) } else { Verdict::Found(found) }
    }
}

/// Errors of one kind and place.
struct Group {
    first: MachineError,
    times_ns: Vec<u64>,
    followed: Consequences,
    /// Whether something followed each of them.
    always_followed: bool,
}

fn of_marks(scene: &Scene<'_>, errors: &Errors, events: &Events) -> Vec<Finding> {
    let mut groups: BTreeMap<(MachineErrorKind, Option<ErrorPlace>), Group> = BTreeMap::new();
    for one in &errors.errors {
        let gpu = errors.gpu_of(&one.error);
        if gpu.is_some_and(|gpu| !errors.sees_gpu(gpu)) {
            continue;
        }
        let place = gpu.map(ErrorPlace::Gpu).or_else(|| one.error.place.clone());
        let followed = events.after(one.time_ns);
        let group = groups.entry((one.error.kind, place.clone())).or_insert_with(|| Group {
            first: MachineError { place, ..one.error.clone() },
            times_ns: Vec::new(),
            followed: Consequences::default(),
            always_followed: true,
        });
        // The detail of the kernel's line says more than the number's meaning.
        if one.error.is_of_kernel && !one.error.detail.is_empty() {
            group.first.detail.clone_from(&one.error.detail);
            group.first.is_of_kernel = true;
        }
        let is_same = |before: &u64| one.time_ns.saturating_sub(*before) < SAME_NS;
        let is_xid = matches!(one.error.kind, MachineErrorKind::Xid(_));
        if !(is_xid && group.times_ns.last().is_some_and(is_same)) {
            group.times_ns.push(one.time_ns);
        }
        group.always_followed &= !followed.is_empty();
        group.followed.join(followed);
    }
    let judged = groups.values().filter(|group| is_found(scene, errors, events, group));
    judged.map(|group| of_group(scene, errors, events, group)).collect()
}

/// Whether errors are worth a finding.
fn is_found(scene: &Scene<'_>, errors: &Errors, events: &Events, group: &Group) -> bool {
    let (error, followed) = (&group.first, &group.followed);
    match error.kind {
        // The cgroup counts the kills of its own processes, and MemoryNearLimit reports them. That
        // another program was killed only matters if the whole machine lacked memory, and not that
        // program's cgroup, and if the job slowed down.
        MachineErrorKind::OomKill => {
            let is_counted = Cgroup::of(scene.rank.file).oom_kills.get().is_some_and(|n| n > 0);
            let is_own = is_victim_own(scene, errors, error);
            !is_counted && is_own.unwrap_or(false)
                || is_own == Some(false)
                    && !error.detail.contains(OF_CGROUP)
                    && !followed.slow_steps.is_empty()
        }
        // DeviceErrors reports the call that such an error makes fail.
        MachineErrorKind::Xid(number) if XidClass::of(number).0 == XidClass::Program => {
            events.fatal_calls.is_empty() && !followed.failures.is_empty()
        }
        _ => match error.weight() {
            Weight::Fatal => true,
            Weight::Serious => !followed.is_empty(),
            Weight::Minor => !followed.is_empty() && group.always_followed,
        },
    }
}

/// Whether the kernel killed a process of the run; `None` if the pids of the kernel's log are not
/// those of the run.
fn is_victim_own(scene: &Scene<'_>, errors: &Errors, error: &MachineError) -> Option<bool> {
    let is_known = errors.machine.as_ref()?["are_pids_of_host"] == true;
    let pid = error.victim().filter(|_| is_known)?;
    Some(scene.rank.file.processes().iter().any(|process| process.pid == pid))
}

fn of_group(scene: &Scene<'_>, errors: &Errors, events: &Events, group: &Group) -> Finding {
    let Group { first, times_ns, followed, .. } = group;
    let first_ns = times_ns.first().copied().unwrap_or(0);
    let times = match times_ns.len() {
        1 => "once".to_owned(),
        times => format!("{} times", count(times as u64)),
    };
    let meaning = match first.kind {
        MachineErrorKind::Xid(number) => XidClass::of(number).1,
        _ => "",
    };
    let meaning = match (meaning.is_empty(), first.is_of_kernel) {
        (false, true) => format!(" ({meaning})"),
        _ => String::new(),
    };
    let followed_words = match events.words(followed) {
        words if words.is_empty() => " Nothing failed after it in this rank.".to_owned(),
        words => words,
    };
    let seen = format!(
        "{first}{meaning}: {times} on {}, after {}.{followed_words}",
        host(errors),
        duration(scene.clock.since_start(first_ns)),
    );
    let (what, advice) = words_of(first.kind);
    let places = times_ns.iter().map(|time_ns| Evidence {
        interval: Interval::new(*time_ns, *time_ns),
        place: Track::Idle,
        name: first.kind.to_string().into(),
    });
    // The same error of several ranks of a host is one finding.
    let subject = MachineError { detail: String::new(), is_of_kernel: false, ..first.clone() };
    let finding = scene
        .finding(what)
        .about(format!("{subject}, {}", host(errors)))
        .seen(seen)
        .advice(advice)
        .at(places);
    ranked(scene, events, finding, followed, first.weight() == Weight::Fatal)
}

/// Ranks a finding by what followed the error.
fn ranked(
    scene: &Scene<'_>,
    events: &Events,
    finding: Finding,
    followed: &Consequences,
    is_fatal: bool,
) -> Finding {
    let lost_ns = events.lost_ns(&followed.slow_steps);
    if !followed.failures.is_empty() {
        return Finding { share: Some(FAILED), ..finding.unknown_gain(NO_TIME) };
    }
    match lost_ns {
        0 if is_fatal => Finding { share: Some(FATAL), ..finding.unknown_gain(NO_TIME) },
        0 => Finding { share: Some(SLOWED), ..finding.unknown_gain(NO_TIME) },
        _ => {
            let least = if is_fatal { FATAL } else { SLOWED };
            let share = scene.share(lost_ns).clamp(least, FAILED);
            Finding { share: Some(share), keep: true, ..finding.bound(lost_ns) }
        }
    }
}

fn of_counters(scene: &Scene<'_>, errors: &Errors, events: &Events) -> Vec<Finding> {
    let mut found = Vec::new();
    // Several counters of one link rise together. The clearest difference tells of all.
    let mut clearest: BTreeMap<String, (ErrorRates, Option<u32>, &str)> = BTreeMap::new();
    for ((gpu, name), totals) in &errors.counters {
        if gpu.is_some_and(|gpu| !errors.sees_gpu(gpu)) || name == counter::TCP_SENT {
            continue;
        }
        if UNCORRECTED.contains(&quantity(name)) {
            found.extend(uncorrected(scene, errors, events, (*gpu, name), totals));
        } else if let Some(rates) = ErrorRates::of(events, totals)
            && rates.are_higher_in_slow_steps()
        {
            let link = format!("{gpu:?} {:?} {}", place(name), family(name));
            let one = clearest.entry(link).or_insert((rates, *gpu, name));
            if rates.ratio() > one.0.ratio() {
                *one = (rates, *gpu, name);
            }
        }
    }
    let of_link = |(rates, gpu, name): &(ErrorRates, Option<u32>, &str)| {
        more_in_slow_steps(scene, errors, events, (*gpu, name), *rates)
    };
    found.extend(clearest.values().map(of_link));
    found
}

/// Returns the first word of a counter's name after `gpu_`, which is that of what has the errors.
fn family(name: &str) -> &str {
    let name = name.trim_start_matches("gpu_");
    name.split_once('_').map_or(name, |(family, _)| family)
}

/// Judges a counter of errors that nothing corrected, unless an error with a time tells of the same.
fn uncorrected(
    scene: &Scene<'_>,
    errors: &Errors,
    events: &Events,
    (gpu, name): (Option<u32>, &str),
    totals: &Totals,
) -> Option<Finding> {
    let is_told = |error: &MachineError| {
        let is_of_memory = matches!(
            error.kind,
            MachineErrorKind::UncorrectedEcc | MachineErrorKind::Xid(48 | 63 | 64 | 94 | 95 | 140)
        );
        gpu.is_some() && errors.gpu_of(error) == gpu && is_of_memory
    };
    let rises = Errors::rises(totals);
    let (first, last) = (rises.first()?, totals.values().last()?);
    if errors.errors.iter().any(|one| is_told(&one.error) && one.error.weight() == Weight::Fatal) {
        return None;
    }
    let mut followed = Consequences::default();
    rises.iter().for_each(|rise| followed.join(events.after(rise.to_ns)));
    let what = match gpu {
        Some(_) => "the memory of a GPU had errors that could not be corrected",
        None => "a link of the network went down",
    };
    let advice = match gpu {
        Some(_) => words_of(MachineErrorKind::UncorrectedEcc).1,
        None => words_of(MachineErrorKind::LinkDown).1,
    };
    let followed_words = match events.words(&followed) {
        words if words.is_empty() => " Nothing failed after it in this rank.".to_owned(),
        words => words,
    };
    let seen = format!(
        "{}: {} on {}, first by {}.{followed_words}",
        named(gpu, name),
        count(*last as u64),
        host(errors),
        duration(scene.clock.since_start(first.to_ns)),
    );
    let finding = scene
        .finding(what)
        .about(format!("{}, {}", named(gpu, name), host(errors)))
        .seen(seen)
        .advice(advice)
        .at(rises.iter().map(|rise| place_of(rise.from_ns, rise.to_ns, name)));
    Some(ranked(scene, events, finding, &followed, true))
}

fn more_in_slow_steps(
    scene: &Scene<'_>,
    errors: &Errors,
    events: &Events,
    (gpu, name): (Option<u32>, &str),
    rates: ErrorRates,
) -> Finding {
    let slow = events.steps.iter().enumerate().filter(|(_, step)| events.is_slow(step));
    let slow_steps: Vec<usize> = slow.map(|(at, _)| at).collect();
    let followed = Consequences { slow_steps, failures: Vec::new() };
    let seen = format!(
        "{} on {}: {}, in {}.{}",
        named(gpu, name),
        host(errors),
        rates.words(),
        counted(followed.slow_steps.len() as u64, "slow step", "slow steps"),
        events.words(&followed).replace("What followed: ", "The slowest: "),
    );
    let advice = match gpu {
        Some(_) => {
            "Check the GPU's links: `nvidia-smi nvlink -e`, `nvidia-smi -q -d ECC`, the seating of \
             the board, and its temperature."
        }
        None => {
            "Look for congestion and for a bad cable or port on the way: `ethtool -S`, `ss -ti`, \
             the counters of the switch. Another job may use the same links."
        }
    };
    let places = followed.slow_steps.iter().map(|at| {
        let interval = events.steps[*at].interval;
        place_of(interval.start, interval.end, name)
    });
    let finding = scene
        .finding("errors are more frequent in slow steps")
        .about(format!("{}, {}", named(gpu, name), host(errors)))
        .seen(seen)
        .advice(advice)
        .at(places);
    ranked(scene, events, finding, &followed, false)
}

fn place_of(start_ns: u64, end_ns: u64, name: &str) -> Evidence<'static> {
    Evidence {
        interval: Interval::new(start_ns, end_ns),
        place: Track::Idle,
        name: title(quantity(name)).to_owned().into(),
    }
}

/// Formats a counter with its device and link: `NVLink replays of GPU 0, link 3`.
fn named(gpu: Option<u32>, name: &str) -> String {
    let title = title(quantity(name));
    match (gpu, place(name)) {
        (Some(gpu), Some(link)) => format!("{title} of GPU {gpu}, link {link}"),
        (Some(gpu), None) => format!("{title} of GPU {gpu}"),
        (None, Some(place)) => format!("{title} of {place}"),
        (None, None) => title.to_owned(),
    }
}

fn host(errors: &Errors) -> &str {
    if errors.host.is_empty() { "this host" } else { &errors.host }
}

/// Returns the problem, and what to do about it.
fn words_of(kind: MachineErrorKind) -> (&'static str, &'static str) {
    use MachineErrorKind::*;
    match kind {
        Xid(number) if XidClass::of(number).0 == XidClass::Program => (
            "a GPU reported an error of a program",
            "Run the program under compute-sanitizer. If the same error comes with other programs on \
             this GPU only, have the GPU examined.",
        ),
        Xid(74) | Switch(_) => (
            "a link of NVLink failed",
            "Drain the node and have NVLink examined: `nvidia-smi nvlink -s -e`, the fabric manager's \
             log. Go on from the last checkpoint on another node.",
        ),
        Xid(79) => (
            "a GPU was lost",
            "Drain the node: it has to be restarted. Power, heat, the PCIe slot or the board may be \
             the cause. Go on from the last checkpoint on another node.",
        ),
        Xid(_) | UncorrectedEcc => (
            "a GPU had a fault",
            "Drain the node and have the GPU examined: `nvidia-smi -q -d ECC,ROW_REMAPPER`, and \
             NVIDIA's catalogue of XIDs says what to do. Go on from the last checkpoint on another \
             node.",
        ),
        OomKill => (
            "the kernel killed a process for lack of memory",
            "Ask for more memory, start fewer workers, or shrink batches and caches; other programs \
             on the host may have taken the memory. `tprof report memory` has the sites.",
        ),
        LinkDown | NetworkDevice => (
            "a network device had an error",
            "Check the cable, the transceiver and the switch's port: `ethtool -S`, `ibstat`, \
             `dmesg`.",
        ),
        Storage | FileSystem => (
            "a disk or a file system had an error",
            "Drain the node and check the disk: `smartctl -a`, `nvme smart-log`, `dmesg`. Data on it \
             may be lost, checkpoints too.",
        ),
        FileServer => (
            "a server of files did not respond",
            "Check the server and the network to it. Copies of the data on local disks, or in the \
             workers' caches, make the job independent of it.",
        ),
        StuckTask => (
            "the kernel reported a task that was stuck",
            "The lines around it in `dmesg` have its stack: most often it waits for a disk or a \
             server of files.",
        ),
        Hardware | Pcie => (
            "the hardware of the host had an error",
            "Drain the node and have it examined: `dmesg`, `ras-mc-ctl --errors`, the log of its \
             management controller.",
        ),
        Overheated => {
            ("a processor was slowed down because of heat", "Check the cooling of the node.")
        }
    }
}

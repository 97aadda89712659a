//! DeviceErrors: calls of CUDA, cuBLAS, cuDNN or NCCL failed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_facts::units::{bytes, counted, duration, percent, signal};
use tprof_metrics::gpu::device_memory::{HeldOfDevice, OutOfMemory, failed_requests, held_until};
use tprof_rank::base::intervals::Interval;
use tprof_trace::calls::function;
use tprof_trace::model::{CallStatus, NameId, ProcessEnd, ProcessIndex};

use super::statuses::Library;
use crate::finding::{Evidence, Finding, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::scene::calls::is_pinned_allocation;
use crate::verdict::Verdict;

/// The rule that judges calls of the device's libraries that returned a status other than success.
pub(super) struct DeviceErrors;

/// If a process fails within this time after an error, ns, the error may be the reason.
const MOST_AFTER_NS: u64 = 10_000_000_000;
/// A framework's allocator reports a lack of memory at most this long after the driver's refusal, ns.
/// Between them it gives back what it has cached.
const MOST_UNTIL_REPORTED_NS: u64 = 1_000_000_000;
/// The share of an out-of-memory error that the job survived because a later call got memory. It
/// makes a finding of at most medium severity. [`SURVIVED`] is the share of any other error that
/// the job survived; it makes a low finding.
const RETRIED: f64 = 0.099;
const SURVIVED: f64 = 0.01;

/// Words for an out-of-memory error of a call that pins host memory, such as `cudaMallocHost`.
const OUT_OF_HOST: &str = "out of host memory";

const NO_TIME: &str = "an error costs the job, or nothing";

/// A call that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) call: CallStatus,
    pub(super) library: Library,
    pub(super) status: u32,
    /// Whether a later call of the function in the same process succeeded.
    retried: bool,
}

impl Rule for DeviceErrors {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DeviceErrors",
            found_if: "a function of CUDA, cuBLAS, cuDNN or NCCL returned an error; statuses that only \
                 answer a question don't count, see below",
            gain: "none in time; critical where the job could not go on or may have died of it",
            needs: "a call with a status",
            remedy: "hold less memory, pin less, or mend the call that failed",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let (mut failures, read) = failures(scene);
        failures.retain(|one| !one.library.is_refusal(one.status) || died(scene, one).is_some());
        let reported = failed_requests(scene.rank);
        failures.retain(|one| pins(scene, one) || !is_reported(one, &reported));
        if failures.is_empty() {
            return match read {
                0 => scene.no_device().unwrap_or_else(|| {
                    Verdict::nothing_recorded(
                        "no call with its status was recorded",
                        "statuses of calls: a tprof recording of a job that uses a GPU",
                    )
                }),
                read => Verdict::no_problem(format!(
                    "none of {} failed",
                    counted(read, "call with a status", "calls with a status")
                )),
            };
        }
        let mut groups: BTreeMap<(bool, String), Vec<Failure>> = BTreeMap::new();
        for failure in failures {
            // The libraries use different names for a lack of memory, so group these errors under
            // one name.
            let of_memory = failure.library.is_out_of_memory(failure.status);
            let words = match of_memory {
                true if pins(scene, &failure) => OUT_OF_HOST.to_owned(),
                true => "out of memory".to_owned(),
                false => failure.library.words(failure.status),
            };
            groups.entry((!of_memory, words)).or_default().push(failure);
        }
        let found = groups.into_iter().map(|((not_memory, words), failures)| {
            match (not_memory, words.as_str()) {
                (true, _) => other(scene, words, &failures),
                (false, OUT_OF_HOST) => out_of_host_memory(scene, &failures),
                _ => out_of_memory(scene, &failures),
            }
        });
        Verdict::Found(found.collect())
    }
}

/// Whether a framework's allocator reported this lack of memory, so that OutOfDeviceMemory judges it.
fn is_reported(one: &Failure, reported: &[OutOfMemory]) -> bool {
    let from_ns = one.call.start_ns;
    let times = from_ns..=from_ns.saturating_add(one.call.duration_ns + MOST_UNTIL_REPORTED_NS);
    let is_same = |error: &OutOfMemory| {
        error.process == one.call.process && error.time_ns.is_some_and(|at| times.contains(&at))
    };
    one.library.is_out_of_memory(one.status) && reported.iter().any(is_same)
}

/// Returns the failed calls in order of time, and the number of calls whose status was recorded.
pub(super) fn failures(scene: &Scene<'_>) -> (Vec<Failure>, u64) {
    let rank = scene.rank;
    let mut libraries: FxHashMap<(NameId, NameId), Option<Library>> = FxHashMap::default();
    let mut succeeded: FxHashMap<(ProcessIndex, NameId), u64> = FxHashMap::default();
    let (mut failed, mut read): (Vec<Failure>, u64) = (Vec::new(), 0);
    for call in rank.file.blocks::<CallStatus>().flatten() {
        let Some(status) = call.status else { continue };
        let (name, category) = (rank.name(call.name), rank.name(call.category));
        let library = libraries
            .entry((call.name, call.category))
            .or_insert_with(|| Library::of(call.kind, category, name));
        let Some(library) = *library else { continue };
        read += 1;
        if status == 0 {
            let last = succeeded.entry((call.process, call.name)).or_default();
            *last = (*last).max(call.start_ns);
        } else if !library.is_answer(name, status) {
            failed.push(Failure { call, library, status, retried: false });
        }
    }
    // If a runtime call and the driver call within it both fail, only the outer one counts.
    let end = |call: &CallStatus| call.start_ns.saturating_add(call.duration_ns);
    failed.sort_by_key(|one| (one.call.thread, one.call.start_ns, Reverse(end(&one.call))));
    let mut outer: Option<CallStatus> = None;
    failed.retain(|one| {
        let is_inner = outer
            .is_some_and(|outer| outer.thread == one.call.thread && end(&one.call) <= end(&outer));
        if !is_inner {
            outer = Some(one.call);
        }
        !is_inner
    });
    for one in &mut failed {
        let last = succeeded.get(&(one.call.process, one.call.name));
        one.retried = last.is_some_and(|last| *last > one.call.start_ns);
    }
    failed.sort_by_key(|one| one.call.start_ns);
    (failed, read)
}

/// Describes the failure of a process soon after an error in it; `None` if the process didn't fail
/// soon.
fn died(scene: &Scene<'_>, one: &Failure) -> Option<String> {
    let (time_ns, end) = scene.rank.file.process_end(one.call.process)?;
    let how = match end {
        ProcessEnd::Exited(status) if status != 0 => format!("ended with status {status}"),
        ProcessEnd::Signal(number) => format!("was ended by {}", signal(number)),
        _ => return None,
    };
    let after_ns = time_ns.saturating_sub(one.call.start_ns);
    (after_ns <= MOST_AFTER_NS).then(|| format!(" Its process {how} {} later.", duration(after_ns)))
}

/// Returns the share by which the errors are ranked: 1 if the job could not continue.
fn worth(scene: &Scene<'_>, failures: &[Failure], survived: f64) -> f64 {
    let is_lost = |one: &Failure| {
        let of_memory = one.library.is_out_of_memory(one.status);
        let died = || died(scene, one).is_some();
        one.library.is_fatal(one.status) || !one.retried && (of_memory || died())
    };
    if failures.iter().any(is_lost) { 1.0 } else { survived }
}

/// Describes how the process failed soon after its last failed call; empty if it didn't fail soon.
fn end(scene: &Scene<'_>, failures: &[Failure]) -> String {
    failures.last().and_then(|one| died(scene, one)).unwrap_or_default()
}

/// Formats how often each function failed: `cuMemCreate, cudaMalloc (2 times)`.
fn calls(scene: &Scene<'_>, failures: &[Failure]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for one in failures {
        *counts.entry(function(scene.rank.name(one.call.name))).or_default() += 1;
    }
    let shown = counts.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{name} ({count} times)"),
    });
    shown.collect::<Vec<String>>().join(", ")
}

/// Says how many bytes the failed calls requested.
fn asked(scene: &Scene<'_>, failures: &[Failure]) -> String {
    let of_call = |one: &Failure| {
        let args = scene.rank.name(one.call.args);
        let args: serde_json::Value = serde_json::from_str(args).ok()?;
        args.get("bytes")?.as_u64()
    };
    let known: Vec<u64> = failures.iter().filter_map(of_call).collect();
    let [Some(least), Some(most)] = [known.iter().min(), known.iter().max()] else {
        return "How much was asked for is not recorded.".to_owned();
    };
    let one = if known.len() == 1 { "It" } else { "Each" };
    let of_known = match failures.len() - known.len() {
        0 => one.to_owned(),
        unknown => format!(
            "How much {} of them asked for is not recorded; {}",
            unknown,
            if known.len() == 1 { "the other" } else { "each other" }
        ),
    };
    match least == most {
        true => format!("{of_known} asked for {}.", bytes(*most)),
        false => format!("{of_known} asked for {} to {}.", bytes(*least), bytes(*most)),
    }
}

/// Formats the time of the first failure since the run began.
fn first_at(scene: &Scene<'_>, failures: &[Failure]) -> String {
    let first = failures.first().map_or(0, |one| one.call.start_ns);
    duration(scene.clock.since_start(first))
}

/// Returns the line of the last failure whose stack has a line. Otherwise it returns the line of a
/// sample. Samples within the failed calls come first, then samples within earlier calls of the
/// same function by the last failure's thread, then the sample closest to the last failure.
fn line(scene: &Scene<'_>, failures: &[Failure]) -> Option<SourceLine> {
    if scene.is_brief {
        return None;
    }
    let within = |call: &CallStatus| {
        let end = call.start_ns.saturating_add(call.duration_ns);
        (call.thread, Interval::new(call.start_ns, end))
    };
    let mut stacks = failures.iter().rev().filter(|one| one.call.stack != 0);
    let of_stack = stacks.find_map(|one| scene.line_of_stack(one.call.process, one.call.stack));
    if of_stack.is_some() {
        return of_stack;
    }
    let failed = scene.sampled(failures.iter().map(|one| within(&one.call)), |_| false);
    let last = failures.last()?.call;
    let same = || {
        let same = scene.rank.calls.iter().filter(|call| {
            call.thread == last.thread && call.name == last.name && call.start_ns < last.start_ns
        });
        scene.sampled(same.map(|call| (call.thread, call.interval())), |_| false).line()
    };
    failed.line().or_else(same).or_else(|| scene.line_near(last.thread, last.start_ns))
}

fn places<'s>(scene: &'s Scene<'_>, failures: &'s [Failure]) -> impl Iterator<Item = Evidence<'s>> {
    failures.iter().map(|one| Evidence {
        interval: Interval::new(
            one.call.start_ns,
            one.call.start_ns.saturating_add(one.call.duration_ns),
        ),
        place: Track::Thread(one.call.thread),
        name: scene.rank.name(one.call.name).into(),
    })
}

/// Whether the call pins host memory.
fn pins(scene: &Scene<'_>, one: &Failure) -> bool {
    is_pinned_allocation(scene.rank.name(one.call.name))
}

/// Says how the job continued after calls failed for lack of memory.
fn went_on(failures: &[Failure]) -> &'static str {
    match failures.iter().all(|one| one.retried) {
        true => {
            " Later calls had memory again: the allocator gave back what it had cached, or the \
                 program tried with less."
        }
        false => " No later call had memory.",
    }
}

/// Formats the failed calls and the bytes that they requested. `then` is a sentence on the memory
/// that was held at that time.
fn failed(scene: &Scene<'_>, failures: &[Failure], lack: &str, then: &str) -> String {
    format!(
        "Failed for lack of {lack}: {}, first after {}. {}{then}{}{}",
        calls(scene, failures),
        first_at(scene, failures),
        asked(scene, failures),
        went_on(failures),
        end(scene, failures),
    )
}

fn out_of_host_memory(scene: &Scene<'_>, failures: &[Failure]) -> Finding {
    let seen = failed(scene, failures, "memory of the host", "");
    let share = worth(scene, failures, RETRIED);
    let finding = scene
        .finding("memory of the host could not be pinned")
        .local()
        .about(OUT_OF_HOST)
        .seen(seen)
        .advice(
            "Pin fewer and smaller buffers, and use them again. How much may be pinned is limited by \
             the host's free memory, the cgroup's limit and `ulimit -l`.",
        )
        .on_line(line(scene, failures))
        .at(places(scene, failures));
    Finding { share: Some(share), keep: true, ..finding.unknown_gain(NO_TIME) }
}

fn out_of_memory(scene: &Scene<'_>, failures: &[Failure]) -> Finding {
    let last = failures[failures.len() - 1].call;
    let memory_bytes = |process, device| {
        let devices = scene.rank.file.devices();
        let is = |(of, number)| of == process && Some(number) == device;
        devices.iter().rfind(|row| is((row.process, row.device)))?.memory_bytes
    };
    // The device of a failed call isn't recorded, so assume the fullest device of its process.
    let held: Option<HeldOfDevice> =
        held_until(scene.rank, last.process, last.start_ns).into_iter().max_by(|a, b| {
            let full = |one: &HeldOfDevice| {
                let of = memory_bytes(last.process, one.device);
                one.bytes as f64 / of.unwrap_or(u64::MAX) as f64
            };
            full(a).total_cmp(&full(b))
        });
    let then = match &held {
        None => "What the process held of the device then was not recorded.".to_owned(),
        Some(held) => {
            let of = match memory_bytes(last.process, held.device) {
                Some(of) => {
                    format!(" of its {} ({})", bytes(of), percent(held.bytes as f64 / of as f64))
                }
                None => String::new(),
            };
            let of_site = |(blocks, sum, site): &(u64, u64, String)| {
                format!(
                    "{} of together {} by {site}",
                    counted(*blocks, "block", "blocks"),
                    bytes(*sum)
                )
            };
            let sites: Vec<String> = held.sites.iter().map(of_site).collect();
            let most = match sites.is_empty() {
                true => String::new(),
                false => format!("; most of it: {}", sites.join(", ")),
            };
            format!(
                "The process held {} of device {}{of} then, in {}{most}.",
                bytes(held.bytes),
                held.device.map_or("?".to_owned(), |device| device.to_string()),
                counted(held.blocks, "block", "blocks"),
            )
        }
    };
    let seen = failed(scene, failures, "memory", &format!(" {then}"));
    let share = worth(scene, failures, RETRIED);
    let mut finding = scene
        .finding("the device ran out of memory")
        .local()
        .about("out of memory")
        .seen(seen)
        .advice(
            "Hold less: a smaller batch, activation checkpointing, lists that keep no tensors with \
             their graphs, torch.no_grad() where nothing is learnt, a sharded optimizer. \
             `tprof report device-memory` has what held it.",
        )
        .on_line(line(scene, failures))
        .at(places(scene, failures));
    finding = match held {
        Some(held) => finding.bytes(held.bytes, share),
        None => Finding { share: Some(share), ..finding.unknown_gain(NO_TIME) },
    };
    finding.keep = true;
    finding
}

fn other(scene: &Scene<'_>, words: String, failures: &[Failure]) -> Finding {
    let first = failures[0];
    let after = match first.library.is_fatal(first.status) {
        true => " After it the device, or the communicator, is of no more use to the process.",
        false => "",
    };
    let seen = format!(
        "{}: {}, status {}, first after {}.{after}{}",
        counted(failures.len() as u64, "call failed", "calls failed"),
        calls(scene, failures),
        first.status,
        first_at(scene, failures),
        end(scene, failures),
    );
    let advice = match first.library {
        Library::Nccl => {
            "See the other ranks' findings: the first that failed is the cause. NCCL_DEBUG=WARN \
             prints NCCL's own reason."
        }
        _ => {
            "A kernel's failure is returned by a later call: run with CUDA_LAUNCH_BLOCKING=1 for \
             the call that started it, and under compute-sanitizer for an illegal address."
        }
    };
    let finding = scene
        .finding("a call of the device's libraries failed")
        .local()
        .about(words)
        .seen(seen)
        .advice(advice)
        .on_line(line(scene, failures))
        .at(places(scene, failures))
        .unknown_gain(NO_TIME);
    Finding { share: Some(worth(scene, failures, SURVIVED)), ..finding }
}

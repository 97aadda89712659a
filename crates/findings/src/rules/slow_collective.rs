//! SlowCollective: collectives with large messages use little of the bandwidth of the links between
//! devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tprof_facts::flops::peaks::Peaks;
use tprof_facts::units::{bytes, counted, percent};
use tprof_metrics::gpu::comm::{Connections, Links, Transports};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::collectives::{Operation, operations};

use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The rule that judges collectives far below the peak of NVLink.
pub(super) struct SlowCollective;

/// Smaller messages are limited by latency, not by the links, so they aren't judged.
const LEAST_BYTES: u64 = 64 << 20;
/// Links that reach this share of their peak are well used.
const WELL: f64 = 0.5;

/// The key of messages that are compared: operation, element type, bytes and number of ranks.
type MessageKind = (String, String, u64, u32);

/// The calls whose messages have the same key.
#[derive(Default)]
struct MessageCalls {
    count: u64,
    /// Duration of the shortest call, ns. This call waited the least for other ranks.
    best_ns: u64,
    /// Time that such a call would take at the links' peak, ns.
    least_ns: f64,
    /// Indices of the calls' device work.
    works: Vec<u32>,
    /// Numbers of the communicators on which the calls were made.
    communicators: BTreeSet<u64>,
}

impl MessageCalls {
    /// Returns the share of the links' peak that the shortest call reaches.
    fn share(&self) -> f64 {
        self.least_ns / self.best_ns.max(1) as f64
    }
}

const NEEDS: &str = "sizes of messages and groups (torch.profiler, NCCL's hooks), a device with links in \
                     docs/metrics.md, and groups of four ranks or more on one host";

impl Rule for SlowCollective {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SlowCollective",
            found_if: "messages of 64 MiB and more that carry less than half of the links' \
                       [peak](#peaks), where they wait least",
            gain: "min(Σ (shortest time of its kind − least time), exposed communication)",
            needs: "device work; known sizes, groups and links; four ranks or more on one host",
            remedy: "check how NCCL connected the ranks (`--nccl log`) and other traffic on the links",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let in_window = |one: &Operation| {
            one.work.is_some_and(|work| scene.work_in_window_ns[work as usize] > 0)
        };
        let all: Vec<Operation> = operations(scene.rank).0.into_iter().filter(in_window).collect();
        if all.is_empty() {
            return Verdict::nothing_to_judge(format!(
                "no collective ran on the device {}",
                scene.place()
            ));
        }
        let links = Links::of(scene.rank, link(scene, &all[0]), false);
        // Treat an operation of unknown size as large, so that `kinds` reports why it can't be
        // judged.
        let is_large = |one: &&Operation| one.bytes.is_none_or(|bytes| bytes >= LEAST_BYTES);
        let large: Vec<&Operation> = all.iter().filter(is_large).collect();
        let (kinds, unknown) = kinds(&links, &large);
        let slow: Vec<(&MessageKind, &MessageCalls)> =
            kinds.iter().filter(|(_, calls)| calls.share() < WELL).collect();
        if slow.is_empty() {
            return not_found(&kinds, unknown, large.is_empty());
        }
        found(scene, &slow)
    }
}

/// Returns the peak bandwidth of the links of the device on which an operation ran, in bytes per
/// second.
fn link(scene: &Scene<'_>, one: &Operation) -> Option<f64> {
    let number = scene.rank.stream(&scene.rank.work[one.work? as usize]).device;
    let device = scene.rank.file.devices().iter().find(|device| device.device == number)?;
    Peaks::of(scene.rank.name(device.name), device.memory_bytes)?.link
}

/// Groups the calls by the key of their messages. If some calls can't be judged, also returns the
/// first reason and the number of such calls.
fn kinds(
    links: &Links<'_>,
    large: &[&Operation],
) -> (BTreeMap<MessageKind, MessageCalls>, Option<(&'static str, u64)>) {
    let mut kinds: BTreeMap<MessageKind, MessageCalls> = BTreeMap::new();
    let mut unknown: Option<(&'static str, u64)> = None;
    for one in large {
        let least_ns = match links.least_ns(one) {
            Ok(least_ns) => least_ns,
            Err(why) => {
                unknown = Some(unknown.map_or((why, 1), |(first, count)| (first, count + 1)));
                continue;
            }
        };
        let (Some(bytes), Some(ranks)) = (one.bytes, one.group_size) else { continue };
        let key = (one.name.clone(), one.element_type.clone(), bytes, ranks);
        let calls = kinds.entry(key).or_default();
        let is_first = calls.count == 0;
        calls.count += 1;
        calls.least_ns = least_ns;
        calls.works.extend(one.work);
        calls.communicators.extend(one.communicator);
        if is_first || one.duration_ns < calls.best_ns {
            calls.best_ns = one.duration_ns;
        }
    }
    (kinds, unknown)
}

fn not_found(
    kinds: &BTreeMap<MessageKind, MessageCalls>,
    unknown: Option<(&'static str, u64)>,
    is_none_large: bool,
) -> Verdict {
    if is_none_large {
        return Verdict::no_problem(format!("no message has {} or more", bytes(LEAST_BYTES)));
    }
    if let Some((why, count)) = unknown {
        let collectives = counted(count, "collective", "collectives");
        return Verdict::unchecked(format!("{collectives} not judged: {why}"), NEEDS);
    }
    let least = kinds.values().map(MessageCalls::share).fold(f64::MAX, f64::min);
    Verdict::no_problem(format!(
        "large collectives reach {} of the links' peak or more where they wait least",
        percent(least)
    ))
}

fn found(scene: &Scene<'_>, slow: &[(&MessageKind, &MessageCalls)]) -> Verdict {
    let excess_ns =
        |calls: &MessageCalls| (calls.best_ns as f64 - calls.least_ns) * calls.count as f64;
    let all: f64 = slow.iter().map(|(_, calls)| excess_ns(calls)).sum();
    let exposed = scene.communication.without(&scene.compute).length();
    let mut longest: Vec<&(&MessageKind, &MessageCalls)> = slow.iter().collect();
    longest.sort_rows_by(|a, b| excess_ns(b.1).total_cmp(&excess_ns(a.1)));
    let text = |((name, element, size, ranks), calls): &(&MessageKind, &MessageCalls)| {
        let element = if element.is_empty() { String::new() } else { format!(" {element}") };
        format!(
            "{name}{element} of {} over {ranks} ranks at {} of the links' peak",
            bytes(*size),
            percent(calls.share())
        )
    };
    let kinds: Vec<String> = longest.iter().take(3).map(|one| text(one)).collect();
    let works = slow.iter().flat_map(|(_, calls)| &calls.works);
    let mut seen = format!(
        "Where they wait least for other ranks: {}. At the peak all would take {} less.",
        kinds.join("; "),
        time(scene, all as u64),
    );
    let communicators = slow.iter().flat_map(|(_, calls)| &calls.communicators).copied().collect();
    if let Some(transports) = Connections::of(scene.rank).text(&communicators) {
        let _ = write!(seen, " NCCL connected the ranks by {transports}.");
    } else if let Some(transport) = Transports::of(scene.rank).text() {
        let _ = write!(seen, " NCCL moved data {transport}.");
    }
    Verdict::Found(vec![
        scene
            .finding("large collectives use little of the links between devices")
            .seen(seen)
            .advice(
                "Check how NCCL connected the ranks (`tprof run --nccl log`, then `tprof report \
                 comm`: P2P in use and no NCCL_P2P_DISABLE, enough channels), other traffic on the \
                 links, and kernels that take the multiprocessors meanwhile.",
            )
            .bound((all as u64).min(exposed))
            .at(works.map(|at| scene.work_place(&scene.rank.work[*at as usize]))),
    ])
}

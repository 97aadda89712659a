//! ExposedCommunication: the device communicates while it doesn't compute.

use tprof_facts::units::{bytes, duration, percent};
use tprof_rank::base::intervals::Cover;
use tprof_rank::base::stats::median;
use tprof_rank::{Class, Work};
use tprof_trace::model::Collective;

use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{by_name, time, times, top};

/// Below this many bytes, the time of a collective depends on latency and not on bandwidth: NCCL's
/// ring needs about a mebibyte per rank to fill a link.
const SMALL_BYTES: u64 = 1 << 20;

/// The rule that judges communication that no computation hides.
pub(super) struct ExposedCommunication;

const KERNEL: SearchTarget = SearchTarget::new("communication kernel");

impl Rule for ExposedCommunication {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "ExposedCommunication",
            found_if: "kernels that communicate while none computes",
            gain: "length of that time: computation and idle time remain",
            needs: "device work",
            remedy: "overlap it with backward, larger buckets, fewer or smaller messages",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if scene.communication.is_empty() {
            let mut work = scene.rank.work.iter();
            let is_recorded = work.any(|work| work.class == Class::Communication);
            return Verdict::nothing_to_judge(scene.none(&KERNEL, is_recorded));
        }
        let exposed = scene.communication.without(&scene.compute);
        let kernels: Vec<(&Work, u64)> = kernels(scene, &exposed);
        let names = by_name(scene, kernels.iter().copied());
        let hidden = scene.communication.length() - exposed.length();
        let seen = format!(
            "Communication takes {}; computation hides {} of it, and for {} the device does \
             nothing else. Most exposed: {}.{} This includes waiting for late ranks.",
            time(scene, scene.communication.length()),
            percent(hidden as f64 / scene.communication.length().max(1) as f64),
            time(scene, exposed.length()),
            top(scene, &names, 3),
            small(scene, &kernels),
        );
        let places = kernels.iter().filter(|(_, ns)| *ns > 0);
        Verdict::Found(vec![
            scene
                .finding("communication is not hidden")
                .seen(seen)
                .advice(advice(scene, &kernels))
                .bound(exposed.length())
                .at(places.map(|(work, _)| scene.work_place(work))),
        ])
    }
}

/// Returns the communication kernels in the window, each with its exposed time.
fn kernels<'s>(scene: &'s Scene<'_>, exposed: &Cover) -> Vec<(&'s Work, u64)> {
    let exposed = exposed.measure();
    let mut exposed = exposed.walk();
    let work = scene.work().filter(|work| work.class == Class::Communication);
    work.map(|work| (work, exposed.within(work.interval()))).collect()
}

/// Returns the median size of the collectives in bytes, if sizes were recorded.
fn median_bytes(scene: &Scene<'_>) -> Option<u64> {
    let sizes: Vec<u64> =
        scene.rank.collectives.iter().filter_map(|row: &Collective| row.bytes).collect();
    (!sizes.is_empty()).then(|| median(sizes))
}

fn small(scene: &Scene<'_>, kernels: &[(&Work, u64)]) -> String {
    let middle = median(kernels.iter().map(|(work, _)| work.duration_ns).collect());
    let sizes = match median_bytes(scene) {
        Some(size) => format!(", the median one of {}", bytes(size)),
        None => String::new(),
    };
    let number = times(scene, kernels.len(), "kernels");
    format!(" There are {number}{sizes}; the median takes {}.", duration(middle))
}

fn advice(scene: &Scene<'_>, kernels: &[(&Work, u64)]) -> String {
    let many = kernels.len() >= 50 * scene.steps.max(1);
    let small = median_bytes(scene).is_some_and(|size| size < SMALL_BYTES);
    let bucket = match (many, small) {
        (_, true) => {
            "Most are small: join them (bucket_cap_mb of DDP, coalescing of all_reduce and \
             all_gather). "
        }
        (true, false) => {
            "They are many: check in `tprof report comm` whether they are small enough to join in \
             buckets. "
        }
        (false, false) => "",
    };
    format!(
        "{bucket}Start communication earlier and let computation run beside it (DDP's overlap, \
         FSDP's prefetch, asynchronous collectives). Send fewer bytes (bf16 gradients, fewer \
         synchronisations by accumulation). `tprof report stragglers` has the part that is \
         waiting."
    )
}

//! MemoryNearLimit: the job's memory cgroup is nearly full.

use tprof_facts::units::{bytes, count, percent};

use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::memory::killed::NEAR_LIMIT;
use crate::memory::timeline::Cgroup;

/// What a job that is killed, or nearly, stands to lose: more than any medium finding.
const SHARE: f64 = 0.2;

/// The cgroup's use, against its limit.
pub(super) struct MemoryNearLimit;

impl Rule for MemoryNearLimit {
    fn name(&self) -> &'static str {
        "MemoryNearLimit"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let cgroup = Cgroup::of(scene.rank.file);
        let Some(peak) = cgroup.peak_bytes.get() else {
            return Verdict::unchecked(
                "no memory of a cgroup was recorded",
                "a memory cgroup (a container's, or a batch job's) with its files readable",
            );
        };
        let Some(limit) = cgroup.limit_bytes.get().filter(|limit| *limit > 0) else {
            return Verdict::none(format!(
                "at most {} in use; the cgroup has no limit",
                bytes(peak)
            ));
        };
        let share = peak as f64 / limit as f64;
        let used = format!("{} of {} ({})", bytes(peak), bytes(limit), percent(share));
        let kills = cgroup.oom_kills.get().unwrap_or(0);
        if share < NEAR_LIMIT && kills == 0 {
            return Verdict::clear(format!("at most {used} in use"));
        }
        let killed = match kills {
            0 => "No process was killed for it.".to_owned(),
            kills => format!("It killed processes for it: {}.", count(kills)),
        };
        let mut finding = scene
            .finding("the job's memory is nearly full")
            .bytes(peak, SHARE)
            .seen(format!("At most {used} of the cgroup are in use. {killed}"))
            .advice(
                "Ask for more memory, start fewer workers, or shrink batches and caches; the page \
                 cache of files counts too, and is given back. `tprof report memory` has the sites.",
            );
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

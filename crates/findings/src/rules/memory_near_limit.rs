//! MemoryNearLimit: the job's memory cgroup is nearly full.

use tprof_facts::units::{bytes, counted, percent};
use tprof_metrics::memory::killed::NEAR_LIMIT;
use tprof_metrics::memory::timeline::Cgroup;

use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The share of the finding. The job was killed, or nearly, so it is higher than the share of any
/// medium finding.
const SHARE: f64 = 0.2;

const WITHOUT_CACHE: &str = " without page cache";

/// The rule that compares the cgroup's use of memory with its limit.
pub(super) struct MemoryNearLimit;

impl Rule for MemoryNearLimit {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "MemoryNearLimit",
            found_if: "the memory cgroup is used to 95 % of its limit without page cache, or the kernel \
                 killed a process for memory",
            gain: "none in time: `size_bytes` is the most in use; the share counts as 20 %",
            needs: "a cgroup's memory",
            remedy: "more memory, fewer workers, smaller batches and caches",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let cgroup = Cgroup::of(scene.rank.file);
        let Some(peak) = cgroup.peak_bytes.get() else {
            return Verdict::unchecked(
                "no memory of a cgroup was recorded",
                "a memory cgroup (a container's, or a batch job's) with its files readable",
            );
        };
        let limit = cgroup.limit_bytes.get().filter(|limit| *limit > 0);
        let kills = cgroup.oom_kills.get().unwrap_or(0);
        let in_use = read(peak, limit, "");
        let is_near =
            |bytes: u64| limit.is_some_and(|limit| bytes as f64 >= NEAR_LIMIT * limit as f64);
        let held = cgroup.held_peak_bytes.get();
        let is_full = is_near(peak) && held.is_none_or(is_near);
        if kills == 0 && !is_full {
            return match (limit, held.filter(|_| is_near(peak))) {
                (None, _) => {
                    Verdict::nothing_to_judge(format!("{in_use}; the cgroup has no limit"))
                }
                (Some(_), None) => Verdict::no_problem(in_use),
                // The kernel reclaims page cache when memory is needed, so page cache doesn't count
                // as used.
                (Some(_), Some(held)) => Verdict::no_problem(read(held, limit, WITHOUT_CACHE)),
            };
        }
        let of_cache = match held {
            Some(held) if is_full => format!(" {} are not page cache.", bytes(held)),
            None if is_full => " How much of it is page cache was not read.".to_owned(),
            _ => String::new(),
        };
        let killed = match kills {
            0 => "No process was killed for it.".to_owned(),
            kills => format!(
                "The kernel killed {} of the cgroup for lack of memory; use between two readings \
                 may be higher.",
                counted(kills, "process", "processes")
            ),
        };
        let what = match kills {
            0 => "the job's memory is nearly full",
            _ => "the job ran out of memory",
        };
        let mut finding = scene
            .finding(what)
            .bytes(peak, SHARE)
            .seen(format!("{}.{of_cache} {killed}", capital(&in_use)))
            .advice(
                "Ask for more memory, start fewer workers, or shrink batches and caches; \
                 `tprof report memory` has the sites.",
            );
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Formats the use: `at most 199.8 MiB of 200.0 MiB (99.9 %) of the cgroup in use`.
fn read(peak: u64, limit: Option<u64>, what: &str) -> String {
    match limit {
        None => format!("at most {} in use", bytes(peak)),
        Some(limit) => format!(
            "at most {} of {} ({}) of the cgroup in use{what}",
            bytes(peak),
            bytes(limit),
            percent(peak as f64 / limit as f64)
        ),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

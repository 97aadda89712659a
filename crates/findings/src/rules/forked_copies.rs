//! ForkedCopies: forked workers write to pages that they share with their parent, so the kernel
//! copies these pages.

use tprof_facts::units::{bytes, counted, percent};
use tprof_metrics::memory::forked::{self, ForkedMemory};

use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The smallest number of copied bytes that counts, because any forked process copies some.
const LEAST_BYTES: u64 = 32 << 20;
/// The smallest share of copied memory in the PSS of the processes that counts.
const LEAST_SHARE: f64 = 0.1;
/// Memory costs no time until it is full, so this share keeps the severity at medium or below.
const MOST_SHARE: f64 = 0.099;

/// The rule that compares the PSS of a process and its forked workers with the process's PSS before
/// the fork.
pub(super) struct ForkedCopies;

impl Rule for ForkedCopies {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "ForkedCopies",
            found_if: "a process and its forked workers copied 32 MiB and 10 % of their memory",
            gain: "none in time: `size_bytes` is what was copied, the share that of all memory, 9.9 \
                 % at most",
            needs: "PSS",
            remedy: "keep the data in arrays or shared memory; `gc.freeze()` before the fork",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.rank.file.part().is_some() {
            let why = "what workers copy is judged from their fork on";
            return Verdict::unchecked(why, "the whole run: no --cycle, --from-time or --keep");
        }
        let copies = match forked::copies(scene.rank.file) {
            Ok(Some(copies)) => copies,
            Ok(None) => {
                return Verdict::nothing_to_judge("no process kept forked workers");
            }
            Err(why) => return Verdict::unchecked(why, "proportional set sizes of live workers"),
        };
        let ForkedMemory { workers, before, pss, rss, own, copied } = copies;
        let share = copied as f64 / pss.max(1) as f64;
        if copied < LEAST_BYTES || share < LEAST_SHARE {
            return Verdict::no_problem(format!(
                "{} copied {} ({} of their memory)",
                counted(workers, "forked worker", "forked workers"),
                bytes(copied),
                percent(share)
            ));
        }
        let own = match own {
            Some(own) => format!("; {} of it was allocated since", bytes(own)),
            None => "; what was allocated since is not recorded, and counts as copied".to_owned(),
        };
        let seen = format!(
            "The process had {} when it forked {}; together they have {} (PSS; their RSS sums to \
             {}){own}.",
            bytes(before),
            counted(workers, "worker", "workers"),
            bytes(pss),
            bytes(rss),
        );
        let mut finding = scene
            .finding("forked workers copy the memory that they shared")
            .bytes(copied, share.min(MOST_SHARE))
            .seen(seen)
            .advice(
                "Python's reference counts are written when objects are read: keep the data in \
                 arrays (NumPy, Arrow, torch tensors) or shared memory, load it in the workers, or \
                 call gc.freeze() before the fork.",
            );
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

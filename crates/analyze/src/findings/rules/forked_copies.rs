//! ForkedCopies: forked workers get memory of their own by writing to pages that they shared.

use tprof_facts::units::{bytes, counted, percent};

use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::memory::forked::{self, ForkedMemory};

/// Any process copies up to this many bytes.
const LEAST_BYTES: u64 = 32 << 20;
/// Least share of the ranks' whole memory.
const LEAST_SHARE: f64 = 0.1;
/// Memory takes no time until it is full: no more than the share of a medium finding.
const MOST_SHARE: f64 = 0.099;

/// Proportional set sizes of a process and its forked children, against its size before.
pub(super) struct ForkedCopies;

impl Rule for ForkedCopies {
    fn name(&self) -> &'static str {
        "ForkedCopies"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.rank.file.part().is_some() {
            let why = "what workers copy is judged from their fork on";
            return Verdict::unchecked(why, "the whole run: leave out --cycle");
        }
        let copies = match forked::copies(scene.rank.file) {
            Ok(Some(copies)) => copies,
            Ok(None) => return Verdict::none("no process forked a worker that lived on"),
            Err(why) => return Verdict::unchecked(why, "proportional set sizes of live workers"),
        };
        let ForkedMemory { workers, before, pss, rss, own, copied } = copies;
        let share = copied as f64 / pss.max(1) as f64;
        if copied < LEAST_BYTES || share < LEAST_SHARE {
            return Verdict::clear(format!(
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

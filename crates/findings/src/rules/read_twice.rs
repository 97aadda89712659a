//! ReadTwice: files are read from storage again, because the page cache doesn't keep them.

use tprof_facts::units::{bytes, count, counted};
use tprof_metrics::files::{JudgedFiles, ReadAgain};
use tprof_metrics::host::RankHost;

use super::file_part::{files, gain, whose};
use super::host_part::{finding_in, host};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// Bytes read again below which nothing is reported: shares of readings that are told by counters of
/// threads are not exact.
const LEAST_BYTES: u64 = 16 << 20;
/// The share of what was read from storage that must have been read again.
const LEAST_SHARE: f64 = 0.1;

/// The rule that judges repeated reads from storage.
pub(super) struct ReadTwice;

impl Rule for ReadTwice {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "ReadTwice",
            found_if: "files that are read from their beginning without jumps: at least 16 MiB and \
                 10 % of what was read from storage exceed the largest reading of each",
            gain: "the share of the reads' time that these bytes have; of other threads as SmallReads",
            needs: "as SmallReads, and the kernel's counts of what threads read from storage",
            remedy: "keep the data in memory or on a local disk, or make them smaller",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let (files, host) = match (files(scene), host(scene)) {
            (Ok(files), Ok(host)) => (files, host),
            (Err(verdict), _) | (_, Err(verdict)) => return verdict,
        };
        if files.again.is_empty() {
            return Verdict::nothing_to_judge(
                "no pass over a file is known to have read from storage",
            );
        }
        let found: Vec<Finding> = files
            .again
            .iter()
            .filter(|(_, of)| is_much(of))
            .map(|(file, of)| of_file(scene, host, files, file, of))
            .collect();
        match found.is_empty() {
            true => Verdict::no_problem("hardly anything was read from storage a second time"),
            false => Verdict::Found(found),
        }
    }
}

fn is_much(of: &ReadAgain) -> bool {
    let share = of.again_bytes() as f64 / of.storage_bytes.max(1) as f64;
    of.again_bytes() >= LEAST_BYTES && share >= LEAST_SHARE
}

fn of_file(
    scene: &Scene<'_>,
    host: &RankHost,
    files: &JudgedFiles,
    file: &str,
    of: &ReadAgain,
) -> Finding {
    let time = of.time.times(of.again_share());
    let memory = scene.machine.memory_bytes;
    let fits = memory.map(|memory| of.distinct_bytes < memory / 2);
    let of_memory = memory.map(|memory| format!(" The machine has {} of memory.", bytes(memory)));
    let seen = format!(
        "{file}: {} opened {} times, with at most {} to read, but {} came from storage: {} of it again, in {}.{}",
        counted(of.files, "file", "files"),
        count(of.opens),
        bytes(of.distinct_bytes),
        bytes(of.storage_bytes),
        bytes(of.again_bytes()),
        whose(files, time),
        of_memory.unwrap_or_default(),
    );
    let advice = match fits {
        Some(false) => {
            "They don't fit into memory beside the job: keep them on a local disk, store them smaller \
             (compressed, decoded to fewer bits), or shuffle within shards so that a pass reads each \
             part once."
        }
        _ => {
            "Keep them in memory after the first pass: a copy on /dev/shm, a cache in the data set, \
             persistent workers. The kernel drops pages of files if the job's cgroup or the machine \
             is short of memory, or if the program asks for it (O_DIRECT, posix_fadvise): look at the \
             container's limit."
        }
    };
    let bound_ns = gain(scene, host, files, time);
    let set = files.data_sets().into_iter().find(|set| set.file == file);
    finding_in(
        scene,
        host,
        "the same files are read from storage again",
        bound_ns,
        std::iter::empty(),
    )
    .about(file)
    .seen(seen)
    .advice(advice)
    .on_line(set.and_then(|set| set.line().cloned()).map(Into::into))
}

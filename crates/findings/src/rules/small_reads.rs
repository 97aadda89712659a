//! SmallReads: many small reads, each of which costs a call and often a trip to storage.

use tprof_facts::units::{bytes, count, percent, rate};
use tprof_metrics::files::{DataSet, JudgedFiles};
use tprof_metrics::host::RankHost;

use super::file_part::{files, gain, whose};
use super::host_part::{finding_in, host};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// Mean bytes of a read below which it is small. Storage and network file systems reach their rate
/// with requests that are larger than this.
const SMALL: f64 = 16.0 * 1024.0;
/// Mean bytes of a file below which many files are better stored together.
const SMALL_FILE: u64 = 1 << 20;
/// Number of reads from which on a mean says something.
const LEAST_READS: u64 = 1_000;
/// If this share of the reads begins elsewhere than the read before ended, access is random.
const RANDOM: f64 = 0.5;

/// The rule that judges reads of files in small pieces, and of many small files.
pub(super) struct SmallReads;

impl Rule for SmallReads {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SmallReads",
            found_if: "at least 1,000 reads of one file, or of files of one directory, with less than \
                 16 KiB each on average; or at least 1,000 opened files with less than 1 MiB each",
            gain: "time in these calls, less what the bytes take at the rate of the file system's \
                   large requests, if that is known; other threads' time divided by their number, up \
                   to the driving thread's wait for data",
            needs: "calls on files (not `--io off`) and CPU samples",
            remedy: "larger buffers, or files that hold many samples",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let (files, host) = match (files(scene), host(scene)) {
            (Ok(files), Ok(host)) => (files, host),
            (Err(verdict), _) | (_, Err(verdict)) => return verdict,
        };
        let sets = files.data_sets();
        let found: Vec<Finding> = sets
            .iter()
            .filter(|set| is_small(set))
            .map(|set| of_set(scene, host, files, set))
            .collect();
        match found.is_empty() {
            true => Verdict::no_problem("no file is read often and in small pieces"),
            false => Verdict::Found(found),
        }
    }
}

/// Bytes of a file that is opened; `None` if none is.
fn bytes_per_file(set: &DataSet) -> Option<u64> {
    (set.opens > 0).then(|| set.reads.bytes / set.opens)
}

/// Whether the files are many and small, so that opening them costs as much as reading them.
fn has_small_files(set: &DataSet) -> bool {
    set.opens >= LEAST_READS && bytes_per_file(set).is_some_and(|bytes| bytes < SMALL_FILE)
}

fn is_small(set: &DataSet) -> bool {
    let is_small = set.reads.bytes_per_call().is_some_and(|bytes| bytes < SMALL);
    has_small_files(set) || (set.reads.calls >= LEAST_READS && is_small)
}

fn of_set(scene: &Scene<'_>, host: &RankHost, files: &JudgedFiles, set: &DataSet) -> Finding {
    let small_files = has_small_files(set);
    // Where files are large or few, opening them isn't what takes time.
    let time = match small_files {
        true => set.read_time.plus(set.open_time),
        false => set.read_time,
    };
    let best = files.rates.iter().find(|of| !of.writes && of.file_system == set.file_system);
    let best = best.and_then(|rates| rates.best);
    let left =
        best.map_or(0.0, |best| set.reads.bytes as f64 * 1e9 / best / time.all_ns().max(1) as f64);
    let bound_ns = gain(scene, host, files, time.times(1.0 - left.min(1.0)));
    let reads = &set.reads;
    let per_file = bytes_per_file(set).filter(|_| small_files);
    let of_files = per_file.map(|mean| {
        format!(", and opening files with {} on average {} times,", bytes(mean), count(set.opens))
    });
    let jumps = reads.jumps as f64 / reads.calls.max(1) as f64;
    let cached = reads.cached_share().map(|share| format!("; {} from memory", percent(share)));
    let seen = format!(
        "{}: {} reads of {} on average{} take {}{}.{}",
        set.file,
        count(reads.calls),
        bytes(reads.bytes_per_call().unwrap_or(0.0).round() as u64),
        of_files.unwrap_or_default(),
        whose(files, time),
        cached.unwrap_or_default(),
        match best {
            Some(best) => format!(
                " Large requests to the same file system ({}) reached {}.",
                set.file_system,
                rate(best)
            ),
            None => String::new(),
        }
    );
    let (what, advice) = match (small_files, jumps >= RANDOM) {
        (true, _) => (
            "data are read from many small files",
            "Store many samples in one file that is read from its beginning to its end (tar shards as \
             WebDataset's, Parquet, Arrow, TFRecord, an LMDB), shuffled when it is written and in a \
             buffer when it is read: then a call reads a megabyte and nothing is opened for a sample. \
             Until then, read more files at once (workers, threads).",
        ),
        (false, true) => (
            "a file is read in small pieces at random places",
            "Read neighbouring samples together: sort the indices of a batch, shuffle blocks of \
             samples in place of single ones, or keep the file in memory (numpy.load, a copy on \
             /dev/shm) if it fits.",
        ),
        (false, false) => (
            "a file is read in small pieces",
            "Read more at once: a buffer of a megabyte (open(path, \"rb\", buffering=1 << 20), \
             setvbuf), or the whole file, and take the pieces from memory.",
        ),
    };
    finding_in(scene, host, what, bound_ns, std::iter::empty())
        .about(set.file.as_str())
        .seen(seen)
        .advice(advice)
        .on_line(set.line().cloned().map(Into::into))
}

//! Shares verdicts and gains among the rules on calls on files.

use tprof_facts::units::{bytes, count, counted, duration, percent, rate};
use tprof_metrics::files::{FileSums, JudgedFiles, ReaderTime, Use};
use tprof_metrics::host::RankHost;
use tprof_rank::samples::Part;
use tprof_trace::model::{FileKind, FileOperation};

use super::read_twice::ReadTwice;
use super::slow_storage::SlowStorage;
use super::small_reads::SmallReads;
use crate::rule::Rule;
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The share of the time of all calls from which on calls on a file are listed.
const LEAST_SHOWN: f64 = 0.02;

/// Why a wait for data isn't reported of which [`is_explained`] holds.
pub(super) const READS_EXPLAIN: &str =
    "it waits for data, and another finding says how they are read from files";

/// Returns the calls on files, or a verdict with the reason why they aren't judged.
pub(super) fn files<'s>(scene: &'s Scene<'_>) -> Result<&'s JudgedFiles, Verdict> {
    scene.files().ok_or_else(|| {
        Verdict::nothing_recorded(
            "calls on files were not recorded",
            "a recording by tprof without `--io off`",
        )
    })
}

/// Returns the time that the job saves at most if calls with this time took none, ns. The driving
/// thread may get its data from the other threads.
///
/// If the driving thread waits for what others read, then a read that takes no time shortens its
/// wait by that reader's share; without such waits, readers delay nobody.
pub(super) fn gain(
    scene: &Scene<'_>,
    host: &RankHost,
    files: &JudgedFiles,
    time: ReaderTime,
) -> u64 {
    let places = host.ledger.places(Some(Part::Data)).into_iter();
    let waits = places.filter(|(place, _)| !place.is_inline);
    let waits_ns: u64 = waits.map(|(_, time)| time.ns - time.running_ns).sum();
    let of_others = (time.others_ns / files.other_readers.max(1)).min(waits_ns);
    let ns = time.driving_ns.min(host.ledger.wall_ns) + of_others;
    if scene.has_device() { ns.min(scene.late.length()) } else { ns }
}

/// Whether a rule that says how files are read explains at least half of a wait for them, or for the
/// data that other threads or processes make of them.
pub(super) fn is_explained(scene: &Scene<'_>, ns: u64) -> bool {
    let rules: [&dyn Rule; 3] = [&SmallReads, &ReadTwice, &SlowStorage];
    rules.iter().any(|rule| match rule.judge(scene) {
        Verdict::Found(found) => found.iter().any(|finding| finding.bound_ns * 2 >= ns),
        _ => false,
    })
}

/// Says how much of the time of reads is whose: `1.2 s of the driving thread and 7.5 s of 4 other
/// threads`.
pub(super) fn whose(files: &JudgedFiles, time: ReaderTime) -> String {
    let ReaderTime { driving_ns, others_ns } = time;
    let of_driving = format!("{} of the driving thread", duration(driving_ns));
    let of_others = || {
        let readers = counted(files.other_readers, "other thread", "other threads");
        format!("{} of {readers}", duration(others_ns))
    };
    match (driving_ns, others_ns) {
        (_, 0) => of_driving,
        (0, _) => of_others(),
        _ => format!("{of_driving} and {}", of_others()),
    }
}

/// Lists what calls transferred, those of most time first: ` Its calls: read 1.2 GiB of /data/a.bin in
/// 3,000 calls at 300 MiB/s (12 % from the page cache).` The calls on other files than the first `most`
/// are added up. Empty without calls.
pub(super) fn transferred(files: &JudgedFiles, most: usize, is: impl Fn(&Use) -> bool) -> String {
    let mut sums: Vec<(&str, FileOperation, FileSums)> = Vec::new();
    for (of, sum) in files.driving.iter().filter(|(of, _)| is(of)) {
        let is_same = |known: &&mut (&str, FileOperation, FileSums)| {
            (known.0, known.1) == (of.file.as_str(), of.operation)
        };
        match sums.iter_mut().find(is_same) {
            Some((_, _, known)) => known.join(sum),
            None => sums.push((&of.file, of.operation, sum.clone())),
        }
    }
    sums.retain(|(_, operation, sum)| word(*operation).is_some() && sum.ns > 0);
    sums.sort_by_key(|(.., sum)| std::cmp::Reverse(sum.ns));
    let all_ns: u64 = sums.iter().map(|(.., sum)| sum.ns).sum();
    let is_much = |ns: u64| ns as f64 >= LEAST_SHOWN * all_ns as f64;
    let listed = sums.iter().take_while(|(.., sum)| is_much(sum.ns)).count().min(most);
    let mut shown: Vec<String> = sums[..listed]
        .iter()
        .map(|(file, operation, sum)| {
            line(file, *operation, sum, &files.recorded_on(file, *operation))
        })
        .collect();
    let others: Vec<String> = by_operation(&sums[listed..])
        .iter()
        .filter(|(_, sum)| is_much(sum.ns))
        .map(|(operation, sum)| others(*operation, sum))
        .collect();
    if !others.is_empty() && !shown.is_empty() {
        let is_of_peers = files.driving.iter().any(|(of, _)| is(of) && of.kind == FileKind::Socket);
        let whose = if is_of_peers { "with other peers" } else { "on other files" };
        shown.push(format!("{whose}: {}", others.join(", ")));
    }
    match shown.is_empty() {
        true => String::new(),
        false => format!(" Its calls: {}.", shown.join("; ")),
    }
}

/// Adds up calls by operation, those of most time first.
fn by_operation(sums: &[(&str, FileOperation, FileSums)]) -> Vec<(FileOperation, FileSums)> {
    let mut all: Vec<(FileOperation, FileSums)> = Vec::new();
    for (_, operation, sum) in sums {
        match all.iter_mut().find(|(known, _)| known == operation) {
            Some((_, known)) => known.join(sum),
            None => all.push((*operation, sum.clone())),
        }
    }
    all.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ns));
    all
}

/// Says what calls of an operation did on several files: `wrote 192.0 MiB in 192 calls (1.8 s)`.
fn others(operation: FileOperation, sum: &FileSums) -> String {
    let verb = word(operation).unwrap_or_default();
    let moved = match operation {
        FileOperation::Read | FileOperation::Write => format!(" {}", bytes(sum.bytes)),
        _ => String::new(),
    };
    let verb = verb.split(' ').next().unwrap_or(verb);
    let calls = counted(sum.calls, "call", "calls");
    format!("{verb}{moved} in {calls} ({})", duration(sum.ns))
}

/// The verb for what calls of an operation did; `None` for calls that take no time that matters.
fn word(operation: FileOperation) -> Option<&'static str> {
    Some(match operation {
        FileOperation::Open => "opened",
        FileOperation::Read => "read",
        FileOperation::Write => "wrote",
        FileOperation::Sync => "synced",
        FileOperation::Connect => "connected to",
        FileOperation::Accept => "accepted from",
        FileOperation::Map | FileOperation::Close | FileOperation::Fault => return None,
    })
}

/// Says what calls of an operation did on a file. If `recorded` has more of them, says how many, since
/// `tprof report io` lists all of them.
fn line(file: &str, operation: FileOperation, sum: &FileSums, recorded: &FileSums) -> String {
    let file = if file.is_empty() { "unknown files" } else { file };
    let verb = word(operation).unwrap_or_default();
    let (calls, time) = match recorded.calls > sum.calls {
        false => (counted(sum.calls, "call", "calls"), duration(sum.ns)),
        true => (
            format!(
                "{} of the run's {}",
                count(sum.calls),
                counted(recorded.calls, "call", "calls")
            ),
            format!("{} of {}", duration(sum.ns), duration(recorded.ns)),
        ),
    };
    let what = match (sum.rate(), operation) {
        (Some(of_calls), FileOperation::Read | FileOperation::Write) => {
            let of = if operation == FileOperation::Read { "of" } else { "to" };
            let (moved, rate) = (bytes(sum.bytes), rate(of_calls));
            format!("{verb} {moved} {of} {file} in {calls} at {rate}")
        }
        _ => format!("{verb} {file} in {calls}"),
    };
    let cached = sum.cached_share().filter(|_| operation == FileOperation::Read);
    let cached = cached.map(|share| format!(", {} from memory", percent(share)));
    format!("{what} ({time}{})", cached.unwrap_or_default())
}

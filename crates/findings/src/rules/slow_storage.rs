//! SlowStorage: reads from a file system that was faster at other times of the run.

use tprof_facts::units::{duration, rate};
use tprof_metrics::files::{JudgedFiles, Rates, ReaderTime, SumsByUse};
use tprof_metrics::host::RankHost;
use tprof_trace::model::{FileKind, FileOperation};

use super::file_part::{files, gain};
use super::host_part::{finding_in, host};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that compares the rate of a file system with what it gave at best.
pub(super) struct SlowStorage;

impl Rule for SlowStorage {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SlowStorage",
            found_if: "large reads from a file system's storage in seconds with less than half of the \
                 rate that it held for two seconds of the run",
            gain: "the share of the reads' time that the best rate would save; of other threads as \
                   SmallReads",
            needs: "as SmallReads",
            remedy: "find what else uses the storage; a copy on a local disk; read ahead",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let (files, host) = match (files(scene), host(scene)) {
            (Ok(files), Ok(host)) => (files, host),
            (Err(verdict), _) | (_, Err(verdict)) => return verdict,
        };
        let slow = files.rates.iter().filter(|rates| !rates.writes && rates.slow_ns > 0);
        let found: Vec<Finding> =
            slow.filter_map(|rates| of_file_system(scene, host, files, rates)).collect();
        match found.is_empty() {
            true => Verdict::no_problem("no file system read at less than half of its best rate"),
            false => Verdict::Found(found),
        }
    }
}

fn of_file_system(
    scene: &Scene<'_>,
    host: &RankHost,
    files: &JudgedFiles,
    rates: &Rates,
) -> Option<Finding> {
    let (best, slow) = (rates.best?, rates.slow()?);
    let reads = |sums: &SumsByUse| {
        let of_it = sums.iter().filter(|(of, _)| {
            (of.kind, of.operation) == (FileKind::File, FileOperation::Read)
                && of.file_system == rates.file_system
        });
        of_it.map(|(_, sum)| sum.ns).sum::<u64>()
    };
    let time = ReaderTime { driving_ns: reads(&files.driving), others_ns: reads(&files.others) };
    let bound_ns = gain(scene, host, files, time.times(rates.saved_share()));
    let slowest = rates.slowest.map(|period| {
        format!(
            " The slowest second begins {} after the start of the run.",
            duration(scene.clock.since_start(period.start))
        )
    });
    let set = files.data_sets().into_iter().find(|set| set.file_system == rates.file_system);
    let seen = format!(
        "{} gave {} at best, and {} in {} of reading.{}{}",
        rates.file_system,
        rate(best),
        rate(slow),
        duration(rates.slow_ns),
        slowest.unwrap_or_default(),
        set.as_ref().map_or_else(String::new, |set| format!(" Most is read from {}.", set.file)),
    );
    Some(
        finding_in(scene, host, "storage reads more slowly than it can", bound_ns, std::iter::empty())
            .about(rates.file_system.as_str())
            .seen(seen)
            .advice(
                "Find out what else uses this storage then (other jobs, checkpoints of other ranks, a \
                 limit of the cloud's volume that is used up). Copy the data to a local disk before \
                 the run, or read further ahead, so that slow times don't matter.",
            )
            .not_local()
            .on_line(set.and_then(|set| set.line().cloned()).map(Into::into)),
    )
}

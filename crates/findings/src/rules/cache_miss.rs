//! CacheMiss: graphs are compiled although a cache could have contained them.

use std::collections::BTreeSet;

use tprof_facts::compile::ReadLog;
use tprof_facts::units::{count, duration};
use tprof_trace::compile_log::{CacheOutcome, CacheUse, CompileId, CompiledFrame};

use super::compiled::{clear, frames, line_of, logged_ns, no_log};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges misses in the caches of compiled graphs.
pub(super) struct CacheMiss;

/// Name of AOTAutograd's cache in the log.
const OF_AOT: &str = "aotautograd";

/// Whether a log contains a cache look-up that found nothing.
pub(super) fn has_misses(scene: &Scene<'_>) -> bool {
    let all = scene.rank.compile.logs.iter().flat_map(decisive);
    all.into_iter().any(|one| matches!(one.outcome, CacheOutcome::Miss | CacheOutcome::Bypass))
}

impl Rule for CacheMiss {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "CacheMiss",
            found_if: "look-ups of graphs in Inductor's cache are misses or bypasses; of AOTAutograd's \
                 where a compilation has none in Inductor's",
            gain: "AOTAutograd's (where its cache missed), Inductor's and its compilers' time for \
                   these graphs, once, as a share of the job's life",
            needs: "a log with look-ups",
            remedy: "keep `TORCHINDUCTOR_CACHE_DIR` from run to run; compile one block that repeats",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_log(scene) {
            return verdict;
        }
        let logs = &scene.rank.compile.logs;
        let decisive: Vec<Vec<&CacheUse>> = logs.iter().map(decisive).collect();
        let count_of =
            |wanted| decisive.iter().flatten().filter(|one| one.outcome == wanted).count() as u64;
        let all = decisive.iter().map(Vec::len).sum::<usize>() as u64;
        let [missed, bypassed] = [CacheOutcome::Miss, CacheOutcome::Bypass].map(count_of);
        if all == 0 {
            return Verdict::unchecked(
                "the log of torch.compile has no look-up in a cache",
                "a PyTorch that logs them (2.8 does, 2.4 does not), with its caches on",
            );
        }
        if missed + bypassed == 0 {
            return clear(
                scene,
                format!("all {} look-ups of compiled graphs are hits", count(all)),
            );
        }
        // Count the functions of each log separately, because each process numbers its own
        // functions.
        let ids: Vec<BTreeSet<CompileId>> = decisive
            .iter()
            .map(|look_ups| {
                let look_ups = look_ups.iter().filter(|one| one.outcome != CacheOutcome::Hit);
                look_ups.map(|one| one.id).collect()
            })
            .collect();
        let is_of = |read: &ReadLog, id: &CompileId| {
            let logs = logs.iter().zip(&ids);
            logs.filter(|(log, _)| std::ptr::eq(*log, read)).any(|(_, ids)| ids.contains(id))
        };
        let matching_frames = || frames(scene).filter(|(read, frame)| is_of(read, &frame.id));
        // A hit in AOTAutograd's own cache also saves AOTAutograd's tracing. So the tracing time
        // counts only if that cache missed.
        let is_traced = |read: &ReadLog, id: &CompileId| {
            let missed = |one: &&CacheUse| one.cache == OF_AOT && one.outcome != CacheOutcome::Hit;
            read.log.caches.iter().filter(missed).any(|one| one.id == *id)
        };
        let spent = |read: &ReadLog, frame: &CompiledFrame| {
            let aot_us = frame.phases.aot_us.filter(|_| is_traced(read, &frame.id));
            let phases = [aot_us, frame.phases.inductor_us, frame.phases.kernels_us];
            phases.into_iter().flatten().sum::<u64>().saturating_mul(1000)
        };
        let bound = matching_frames()
            .fold(0_u64, |sum, (read, frame)| sum.saturating_add(spent(read, frame)));
        let longest = matching_frames().max_by_key(|(read, frame)| spent(read, frame));
        let all_us: u64 = frames(scene).filter_map(|(_, frame)| frame.total_us).sum();
        let life_ns = life_ns(scene).max(bound);
        let reasons: BTreeSet<&str> =
            decisive.iter().flatten().filter_map(|one| one.why.as_deref()).collect();
        let why = match reasons.first() {
            Some(why) => format!(" (first reason: {why})"),
            None => String::new(),
        };
        let seen = format!(
            "torch.compile takes {} of the job's {}. Of {} look-ups in its caches {} are misses and {} \
             bypasses{why}; AOTAutograd, Inductor and its compilers work {} for these graphs.",
            duration(all_us.saturating_mul(1000)),
            duration(life_ns),
            count(all),
            count(missed),
            count(bypassed),
            duration(bound),
        );
        let finding = scene
            .finding("graphs are compiled that no cache had")
            .seen(seen)
            .advice(
                "Keep the directory TORCHINDUCTOR_CACHE_DIR from run to run, and share it between \
                 ranks and hosts (a container's /tmp is lost), or use the remote cache. A first run \
                 misses in any case: there compile one block that repeats in place of the whole \
                 model (regional compilation).",
            )
            .on_line(longest.and_then(|(_, frame)| line_of(frame)))
            .bound(bound)
            .spent_once(life_ns);
        Verdict::Found(vec![finding])
    }
}

/// Returns the time from the first process's start to the end of the recording, or the time that
/// the logs cover if that is longer.
fn life_ns(scene: &Scene<'_>) -> u64 {
    let file = scene.rank.file;
    let first_ns = file.processes().iter().map(|process| process.start_ns).min();
    let life_ns = first_ns.map_or(0, |first_ns| file.last_ns().saturating_sub(first_ns));
    life_ns.max(logged_ns(scene))
}

/// Returns the look-ups that decide whether Inductor compiles a graph. PyTorch first asks
/// AOTAutograd's cache, for the whole function. If that misses but Inductor's cache contains each
/// graph, the function is only traced again. So if a log has look-ups in Inductor's cache, those
/// decide.
fn decisive(read: &ReadLog) -> Vec<&CacheUse> {
    let caches = &read.log.caches;
    let is_graph = |one: &CacheUse| one.cache == "fx_graph";
    let with_graphs: BTreeSet<CompileId> =
        caches.iter().filter(|one| is_graph(one)).map(|one| one.id).collect();
    caches.iter().filter(|one| is_graph(one) || !with_graphs.contains(&one.id)).collect()
}

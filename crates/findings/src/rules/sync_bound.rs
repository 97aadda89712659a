//! SyncBound: the host waits for the device, and afterwards the device waits for the host. The rule
//! "CUDA synchronization APIs" of Nsight Systems finds the same calls, but not what they cost.

use tprof_facts::units::duration;
use tprof_metrics::gpu::gpu_time::IdleCause;
use tprof_rank::HostSpan;
use tprof_rank::base::sort_rows::SortRows;

use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::calls::is_wait;
use crate::scene::{Scene, moment_of_call};
use crate::verdict::Verdict;
use crate::words::{time, times, top};

/// The rule that judges calls that wait for a device, if gaps on the device follow them.
pub(super) struct SyncBound;

const WAIT: SearchTarget = SearchTarget::of_main_threads("call that waits for the device");

impl Rule for SyncBound {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SyncBound",
            found_if: "at least 1 % of the window is idle by `sync`",
            gain: "that time: with no wait the thread launches ahead",
            needs: "device work and calls",
            remedy: "read no device results in every step (`.item()`, `.cpu()`, `print`); log every \
                 n-th step",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if let Some(verdict) = scene.no_calls() {
            return verdict;
        }
        // Copies that return only when they are done, and copies that read values, are waits too.
        let mut calls = scene.calls_named(is_wait);
        calls.extend(scene.idle_calls(IdleCause::Sync));
        calls.sort_unstable();
        calls.dedup();
        if calls.is_empty() {
            return Verdict::nothing_to_judge(scene.none(&WAIT, scene.has_calls(is_wait)));
        }
        let (wait, direct) =
            (scene.cover_of_calls(&calls).length(), scene.idle_ns(IdleCause::Sync));
        if scene.share(direct) < 0.01 {
            return Verdict::no_problem(format!(
                "waits of {} {}; the device then idles for {}",
                duration(scene.per_step(wait)),
                scene.per_step_word(),
                duration(scene.per_step(direct)),
            ));
        }
        let spans: Vec<&HostSpan> = calls.iter().map(|&at| &scene.rank.calls[at]).collect();
        let moments = spans.iter().map(|call| moment_of_call(call, call.duration_ns));
        let within = top(scene, &scene.around(moments), 3);
        let mut names: Vec<(String, u64)> = Vec::new();
        for call in &spans {
            let name = scene.rank.name(call.name);
            match names.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += call.duration_ns,
                None => names.push((name.to_owned(), call.duration_ns)),
            }
        }
        names.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let mut seen = format!(
            "{} wait for the device, {} of host time: {}. When they return, the device has no work; \
             it is idle until the host has launched more, {}.",
            times(scene, spans.len(), "calls"),
            duration(scene.per_step(wait)),
            top(scene, &names, 3),
            time(scene, direct),
        );
        if !within.is_empty() {
            seen += &format!(" They are called in {within}.");
        }
        Verdict::Found(vec![
            scene
                .finding("host and device wait for each other")
                .seen(seen)
                .advice(
                    "Do not read device results in every step. Log every n-th step, or from an \
                     asynchronous copy into pinned memory.",
                )
                .in_pytorch(
                    "no .item(), .cpu(), print, nonzero or masked indexing on device tensors; copy \
                     with non_blocking=True.",
                )
                .bound(direct)
                .local()
                .on_line(scene.idle_line(IdleCause::Sync))
                .at(scene.call_places(&calls)),
        ])
    }
}

//! Compilation: the job compiles for a large part of its life, before its steps, or without having
//! steps.

use tprof_facts::units::duration;
use tprof_rank::base::intervals::{Cover, Interval};

use super::cache_miss;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::severity::Severity;
use crate::verdict::Verdict;

/// If a job compiles for a smaller share of its life than this, a cache isn't worth the effort.
const LEAST_SHARE: f64 = 0.05;

/// If compilation takes at least this share of the job's life, it matters more than what steps
/// lose, so the severity isn't capped.
const LEAST_OF_LIFE: f64 = 0.25;

fn is_much(ns: u64, life: Interval) -> bool {
    ns as f64 >= LEAST_SHARE * life.length() as f64
}

/// Returns the time outside of the judged time in which devices wait for compilers, if this rule or
/// CacheMiss reports it. Other rules must not count that time again.
pub(super) fn counted<'s>(scene: &'s Scene<'_>) -> Option<&'s Cover> {
    if !scene.has_device() {
        return None;
    }
    let (compiling, _) = scene.compiled_outside();
    let is_counted = match scene.rank.compile.logs.is_empty() {
        true => is_much(compiling.length(), scene.life()?),
        false => cache_miss::has_misses(scene),
    };
    is_counted.then_some(compiling)
}

/// The rule that judges devices waiting for compilers outside of the judged time.
pub(super) struct Compilation;

impl Rule for Compilation {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "Compilation",
            found_if: "devices wait for compilers for 5 % of the job's life and more outside of the \
                 window, and there is no log of `torch.compile`",
            gain: "idle time by `compile` of [`report gpu-time`](#gpu-time) from the first process \
                   to the last event, once, as a share of that",
            needs: "device work; a process",
            remedy: "keep compilers' caches from run to run; let fewer shapes be compiled",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if !scene.rank.compile.logs.is_empty() {
            return Verdict::nothing_to_judge(
                "a job with a log of torch.compile: CacheMiss judges that",
            );
        }
        let Some(life) = scene.life() else {
            return Verdict::unchecked(
                "when the process began was not recorded",
                "a run that tprof recorded itself",
            );
        };
        let (compiling, place) = scene.compiled_outside();
        let ns = compiling.length();
        if !is_much(ns, life) {
            return Verdict::no_problem(format!(
                "devices wait for compilers for {} outside of the judged time",
                duration(ns)
            ));
        }
        let seen = format!(
            "Devices wait for {} of the job's {} while code for them is compiled, tuned or loaded, \
             outside of the judged time.",
            duration(ns),
            duration(life.length())
        );
        let mut finding = scene
                .finding("much of the job is compilation")
                .seen(seen)
                .advice(
                    "Keep what is compiled from run to run: JAX has \
                     jax.config.update(\"jax_compilation_cache_dir\", …), PyTorch \
                     TORCHINDUCTOR_CACHE_DIR, Triton TRITON_CACHE_DIR, Numba cache=True. A first run \
                     compiles in any case. Let fewer shapes be compiled, and tune once.",
                )
                .bound(ns)
                .spent_once(life.length())
                .on_line(place.clone())
                .local();
        // A first run must compile in any case, and in a longer run the share is smaller. So cap
        // the severity.
        if (ns as f64) < LEAST_OF_LIFE * life.length() as f64 {
            finding.max_severity = Some(Severity::Medium);
        }
        Verdict::Found(vec![finding])
    }
}

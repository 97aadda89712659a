//! Compilation: the job compiles for a large part of its life, before its steps or without any.

use tprof_facts::units::duration;

use super::cache_miss;
use crate::base::intervals::{Cover, Interval};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::severity::Severity;
use crate::findings::verdict::Verdict;

/// A job that compiles for less than this share of its life needs no cache.
const LEAST_SHARE: f64 = 0.05;

/// From this share on, compilation outweighs what steps lose.
const LEAST_OF_LIFE: f64 = 0.25;

fn is_much(ns: u64, life: Interval) -> bool {
    ns as f64 >= LEAST_SHARE * life.length() as f64
}

/// The time in which devices wait for compilers outside of the judged time, as far as this rule
/// counts it, or CacheMiss where there is a log. Other rules do not count that time.
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

/// Judges the time in which devices wait for compilers outside of the judged time.
pub(super) struct Compilation;

impl Rule for Compilation {
    fn name(&self) -> &'static str {
        "Compilation"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if !scene.rank.compile.logs.is_empty() {
            return Verdict::none("a job with a log of torch.compile: CacheMiss judges that");
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
            return Verdict::clear(format!(
                "devices wait for compilers for {} outside of what is judged",
                duration(ns)
            ));
        }
        let seen = format!(
            "Devices wait for {} of the job's {} while code for them is compiled, tuned or loaded, \
             outside of what is judged.",
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
        // A first run compiles in any case, and a longer one as little.
        if (ns as f64) < LEAST_OF_LIFE * life.length() as f64 {
            finding.most = Some(Severity::Medium);
        }
        Verdict::Found(vec![finding])
    }
}

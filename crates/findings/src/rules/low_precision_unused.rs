//! LowPrecisionUnused: matrix products in `float32` on a device that multiplies shorter types much
//! faster.

use std::collections::BTreeMap;

use tprof_facts::flops::ElementType::{BFloat16, Float16, Float32};
use tprof_facts::flops::peaks::Peaks;
use tprof_facts::units::{counted, duration, percent};
use tprof_metrics::program::flops::ModelledRun;

use super::modelled::{cover, no_sizes, work_of};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::severity::Severity;
use crate::verdict::Verdict;
use crate::words::{by_name, time, top};

/// The rule that judges products in `float32`. These run on tensor cores, which round to TF32, or
/// on ordinary units.
pub(super) struct LowPrecisionUnused;

/// The smallest ratio of the two peaks with which a conversion is worth a finding.
const MUCH: f64 = 1.9;

/// Returns the peak of the two-byte type that the device multiplies, and the type's name: bf16, or
/// fp16 if the device lacks bf16.
fn shorter(peaks: &Peaks) -> Option<(f64, &'static str)> {
    peaks.of_product(BFloat16, false).or_else(|| peaks.of_product(Float16, false))
}

/// Returns a run's least time in the shorter type as a share of its least time in `float32`. In the
/// shorter type, the run moves half of the bytes. Returns `None` if the rule doesn't judge the run.
fn ratio(run: &ModelledRun, peak: f64) -> Option<f64> {
    let is_meant = run.work.of == Some(Float32) && run.work.is_product() && run.device_ns > 0;
    let now = run.compute_ns().filter(|now| is_meant && *now > 0.0)?;
    let then = run.work.needed as f64 / peak * 1e9;
    if now < MUCH * then {
        return None;
    }
    let memory = run.memory_ns().unwrap_or(0.0);
    Some(then.max(memory / 2.0) / now.max(memory))
}

impl Rule for LowPrecisionUnused {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "LowPrecisionUnused",
            found_if: "products of `float32`, where the device's peak of bf16 or fp16 is 1.9 times \
                       theirs or more",
            gain: "**an estimate**: their time × (1 − least time with half of the bytes at the \
                   shorter type's peak / least time now)",
            needs: "device work; operators with sizes; peaks",
            remedy: "`torch.autocast`, or TF32",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_sizes(scene) {
            return verdict;
        }
        let modelled = scene.modelled();
        let Some((peak, name)) = modelled.peaks.as_ref().and_then(shorter) else {
            return Verdict::unchecked(
                "how fast the device multiplies types of two bytes is not known",
                "a device that docs/metrics.md lists under Peaks",
            );
        };
        let work = work_of(scene, |_, run| ratio(run, peak).is_some());
        if work.is_empty() {
            return Verdict::no_problem(
                "no product of float32 would be much faster in a shorter type",
            );
        }
        let (mut saved, mut all) = (0.0, 0);
        let mut by_peak: BTreeMap<&str, u64> = BTreeMap::new();
        for run in &modelled.runs {
            let Some(ratio) = ratio(run, peak) else { continue };
            saved += run.device_ns as f64 * (1.0 - ratio);
            all += run.device_ns;
            *by_peak.entry(run.peak()).or_default() += run.device_ns;
        }
        let cover = cover(scene, &work);
        let share = saved / all.max(1) as f64;
        let saved_ns = (cover.length() as f64 * share) as u64;
        let kinds: Vec<String> = by_peak
            .iter()
            .map(|(peak, ns)| format!("{} as {peak}", percent(*ns as f64 / all.max(1) as f64)))
            .collect();
        let names = by_name(scene, work.iter().map(|work| (*work, work.duration_ns)));
        let seen = format!(
            "{} of float32 products ({}) take {}: {}. Estimate: {} less in {name}, at the same share of the \
             roof.",
            counted(work.len() as u64, "kernel", "kernels"),
            kinds.join(", "),
            time(scene, cover.length()),
            top(scene, &names, 2),
            duration(scene.per_step(saved_ns)),
        );
        let mut finding = scene
            .finding("matrix products run in float32 on a device that is faster in shorter types")
            .seen(seen)
            .advice(
                "Use torch.autocast(dtype=torch.bfloat16), or fp16 with a gradient scaler; where \
                 the type must stay, torch.set_float32_matmul_precision(\"high\") for TF32. Check \
                 that the results still suffice.",
            )
            .bound(saved_ns)
            .at(work.iter().map(|work| scene.work_place(work)));
        // The user may have chosen the precision on purpose, so cap the severity.
        finding.max_severity = Some(Severity::Medium);
        Verdict::Found(vec![finding])
    }
}

//! LaunchBound: again and again, the device waits for its next kernel because the host has not
//! launched it yet.

use tprof_facts::units::duration;
use tprof_metrics::gpu::gpu_time::IdleCause;
use tprof_rank::base::intervals::Cover;
use tprof_rank::base::stats::median;

use crate::finding::idle_places;
use crate::rule::{Rule, RuleAbout};
use crate::scene::{Gap, Scene, moment_of_call};
use crate::verdict::Verdict;
use crate::words::{time, times, top};

/// The rule that judges idle time in which the host launched work, one operator at a time.
pub(super) struct LaunchBound;

impl Rule for LaunchBound {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "LaunchBound",
            found_if: "at least 1 % of the window is idle by `launch` of [`report gpu-time`](#gpu-time)",
            gain: "that time: all else remains",
            needs: "a recorded launch",
            remedy: "CUDA graphs, `torch.compile(mode=\"reduce-overhead\")`, fused optimizers, larger \
                 batches",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        if (0..scene.rank.work.len()).all(|at| scene.rank.launches.call_of(at).is_none()) {
            return Verdict::unchecked(
                "which call launched which kernel was not recorded",
                "CUDA or HIP runtime calls with the correlations of their kernels",
            );
        }
        let (idle, gaps) = launch_gaps(scene);
        let kernels = median(kernel_times(scene));
        let middle = median(gaps.iter().map(|(_, ns)| *ns).collect());
        let moments = gaps.iter().filter_map(|(gap, ns)| {
            let call = &scene.rank.calls[gap.launch()?];
            Some(moment_of_call(call, *ns))
        });
        let around = scene.around(moments);
        let mut seen = format!(
            "The device is idle for {} in {}, each until the host launches the next \
             kernel; the median gap is {}, the median kernel {}.",
            time(scene, idle.length()),
            times(scene, gaps.len(), "gaps"),
            duration(middle),
            duration(kernels),
        );
        let places = top(scene, &around, 3);
        if !places.is_empty() {
            seen += &format!(" The largest parts of that work are launched in {places}.");
        }
        seen += &recorded(scene).unwrap_or_default();
        Verdict::Found(vec![
            scene
                .finding("the host launches kernels too slowly")
                .seen(seen)
                .advice(
                    "Launch less often or faster: CUDA graphs, fused kernels, larger batches, less \
                     Python between launches.",
                )
                .in_pytorch("torch.compile(mode=\"reduce-overhead\"), fused or foreach optimizers.")
                .bound(idle.length())
                .on_line(scene.idle_line(IdleCause::Launch))
                .at(idle_places(&idle)),
        ])
    }
}

/// Says how much of the idle time the recording itself may cause, if its cost is a visible part of
/// a step.
fn recorded(scene: &Scene<'_>) -> Option<String> {
    let cost = scene.rank.recording.as_ref().filter(|cost| cost.is_visible())?;
    let (least, most) = cost.idle_without()?;
    let idle = cost.device_idle_ns.get()?;
    Some(format!(
        " But {}: without it the device would be idle, for whatever reason, for {} to {} of a step \
         and not for {}.",
        cost.taken()?,
        duration(least),
        duration(most),
        duration(idle),
    ))
}

/// Returns the idle time that this rule judges, and the gaps that contain it. Each gap comes with
/// its part of that time, ns.
fn launch_gaps<'s>(scene: &'s Scene<'_>) -> (Cover, Vec<(&'s Gap, u64)>) {
    let idle = scene.idle_by(IdleCause::Launch);
    let measure = idle.measure();
    let mut walk = measure.walk();
    let launched = scene.gaps.iter().filter(|gap| gap.launch().is_some());
    let gaps = launched.map(|gap| (gap, walk.within(gap.interval))).filter(|(_, ns)| *ns > 0);
    let gaps: Vec<(&Gap, u64)> = gaps.collect();
    (idle, gaps)
}

fn kernel_times(scene: &Scene<'_>) -> Vec<u64> {
    let kernels = scene.work().filter(|work| work.is_kernel());
    kernels.map(|work| work.duration_ns).collect()
}

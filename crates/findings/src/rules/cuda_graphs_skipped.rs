//! CudaGraphsSkipped: compiled functions for which no CUDA graph was recorded.

use tprof_facts::units::counted;

use super::compiled::{clear, frames, line_of, no_log};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges CUDA graphs that the user requested but PyTorch did not record.
pub(super) struct CudaGraphsSkipped;

impl Rule for CudaGraphsSkipped {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "CudaGraphsSkipped",
            found_if: "a compilation states why it recorded no CUDA graph",
            gain: "not known (`gain_ns` is missing)",
            needs: "a log; a PyTorch that logs it",
            remedy: "clone inputs that are changed in place, move them to the device, fix sizes",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = no_log(scene) {
            return verdict;
        }
        let skipped: Vec<_> =
            frames(scene).filter(|(_, frame)| frame.cuda_graphs_skipped.is_some()).collect();
        let Some((_, first)) = skipped.first() else {
            let states = scene.rank.compile.logs.iter().any(|read| read.log.states_cuda_graphs);
            return match states {
                true => clear(scene, "no compilation states that it skipped CUDA graphs"),
                false => Verdict::unchecked(
                    "the log does not state whether CUDA graphs were skipped",
                    "a PyTorch with `cudagraph_skip_reason` in its compilation metrics (2.8 has it not)",
                ),
            };
        };
        let seen = format!(
            "{} no CUDA graph; the first reason: {}.",
            counted(skipped.len() as u64, "compilation has", "compilations have"),
            first.cuda_graphs_skipped.as_deref().unwrap_or_default().trim_end_matches('.'),
        );
        Verdict::Found(vec![
            scene
                .finding("CUDA graphs were asked for and not recorded")
                .seen(seen)
                .advice(
                    "Inputs that are changed in place, work on the CPU and sizes that change prevent \
                     CUDA graphs: clone such inputs, move them to the device, mark sizes as static \
                     or pad them.",
                )
                .on_line(line_of(first))
                .unknown_gain("what CUDA graphs would save is not measured"),
        ])
    }
}

//! Recomputation: the backward pass runs operators of the forward pass again.

use tprof_facts::units::percent;
use tprof_rank::base::intervals::Cover;

use super::modelled::{NEEDS_SIZES, cover, work_of};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{by_name, time, top};

/// The rule that judges operators of the forward pass that run in the backward pass.
pub(super) struct Recomputation;

impl Rule for Recomputation {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "Recomputation",
            found_if: "operators of a forward pass within the backward one \
                       ([which](#operations-and-bytes))",
            gain: "time of these operators: on the device, without one on the host",
            needs: "operators with sizes",
            remedy: "checkpoint fewer layers, if memory permits",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let runs = &scene.modelled().runs;
        if runs.is_empty() {
            return Verdict::unchecked("which operators run again is not known", NEEDS_SIZES);
        }
        let needed = |again: bool| -> u128 {
            let counted = runs.iter().filter(|run| !again || run.recomputes);
            counted.map(|run| u128::from(run.work.needed)).sum()
        };
        let (again, all) = (needed(true), needed(false));
        if !runs.iter().any(|run| run.recomputes) {
            return Verdict::no_problem("the backward pass does nothing of the forward pass again");
        }
        let share = percent(again as f64 / all.max(1) as f64);
        let finding = scene.finding("the backward pass computes parts of the forward pass again");
        let advice = "Checkpoint fewer modules, those with the most memory for their time first; \
                      keep results of matrix products (selective checkpointing: \
                      torch.utils.checkpoint's context_fn). `report flops` has it by module.";
        let finding = match scene.has_device() {
            true => {
                let work = work_of(scene, |_, run| run.recomputes);
                let cover = cover(scene, &work);
                let names = by_name(scene, work.iter().map(|work| (*work, work.duration_ns)));
                let seen = format!(
                    "{share} of all operations run a second time, for {}: {}.",
                    time(scene, cover.length()),
                    top(scene, &names, 3)
                );
                let places = work.iter().map(|work| scene.work_place(work));
                finding.seen(seen).bound(cover.length()).at(places)
            }
            false => {
                let again = runs.iter().filter(|run| run.recomputes);
                let cover = Cover::of(again.map(|run| run.interval)).intersection(&scene.window);
                let seen = format!(
                    "{share} of all operations run a second time, for {}.",
                    time(scene, cover.length())
                );
                finding.seen(seen).bound(cover.length())
            }
        };
        Verdict::Found(vec![finding.advice(advice)])
    }
}

//! GpuGaps: long times in which no device does anything, without a known cause. This is the rule
//! "GPU gaps" of Nsight Systems, with a minimum length that also suits steps of milliseconds.

use tprof_facts::units::{duration, percent};
use tprof_rank::Moment;
use tprof_rank::base::intervals::Cover;

use crate::finding::idle_places;
use crate::rule::{Rule, RuleAbout};
use crate::scene::{Gap, Scene};
use crate::verdict::Verdict;
use crate::words::{time, times, top};

/// The rule that judges gaps of at least [`Scene::long_gap_ns`].
pub(super) struct GpuGaps;

impl Rule for GpuGaps {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "GpuGaps",
            found_if: "idle gaps of 1 % of a step or more, but at least 1 ms; from 500 ms on always \
                 (Nsight Systems' default); half of them without such a cause",
            gain: "length of these gaps: the devices' work remains",
            needs: "device work",
            remedy: "move the host's work in the gaps to another thread; check events of other streams",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let least = scene.long_gap_ns();
        let gaps: Vec<&Gap> =
            scene.gaps.iter().filter(|gap| gap.interval.length() >= least).collect();
        if gaps.is_empty() {
            return Verdict::no_problem(format!(
                "no gap of {} or more {}",
                duration(least),
                scene.place()
            ));
        }
        let idle = Cover::of(gaps.iter().map(|gap| gap.interval));
        // If other rules judge the causes, gaps are only a symptom, and this rule doesn't report
        // them.
        let explained = scene.explained_ns(&idle);
        if explained * 2 >= idle.length() {
            return Verdict::no_problem(format!(
                "{} of {} or more; `tprof report gpu-time` has the causes of {} of this time",
                times(scene, gaps.len(), "gaps"),
                duration(least),
                percent(explained as f64 / idle.length().max(1) as f64),
            ));
        }
        let seen = format!(
            "{} of {} or more, {}; the longest {}.{}",
            times(scene, gaps.len(), "gaps"),
            duration(least),
            time(scene, idle.length()),
            duration(gaps.iter().map(|gap| gap.interval.length()).max().unwrap_or(0)),
            causes(scene, &gaps),
        );
        Verdict::Found(vec![
            scene
                .finding("the device has long idle gaps")
                .seen(seen)
                .advice(
                    "Open the gaps in the timeline. Where the host is late, move its work there to \
                     another thread or process, do it less often, or launch device work before it. \
                     Where launched work waits, check its dependencies: events of other streams, \
                     host callbacks, nodes of a graph.",
                )
                .bound(idle.length())
                .at(idle_places(&idle)),
        ])
    }
}

/// Says how long the host was late, and how long launched work waited.
fn causes(scene: &Scene<'_>, gaps: &[&Gap]) -> String {
    let late: u64 = gaps.iter().map(|gap| gap.late().length()).sum();
    let held = gaps.iter().map(|gap| gap.interval.length()).sum::<u64>() - late;
    let mut text = String::new();
    if held > 0 {
        text += &format!(
            " For {} of this time the next work was launched already, and waited on the device.",
            duration(scene.per_step(held))
        );
    }
    let late_gaps: Vec<&Gap> = gaps.iter().filter(|gap| gap.late().length() > 0).copied().collect();
    let other = host_activity(scene, &late_gaps);
    if late > 0 {
        let host = duration(scene.per_step(late));
        text += &match other.as_str() {
            "" => format!(" For {host} the host had launched nothing."),
            other => format!(" For {host} the host had launched nothing; it was in {other}."),
        };
    }
    text
}

/// For the middle of each delay, says in which range the thread was that ended the gap.
fn host_activity(scene: &Scene<'_>, gaps: &[&Gap]) -> String {
    let moments = gaps.iter().filter_map(|gap| {
        let (late, thread) = (gap.late(), scene.rank.calls[gap.launch()?].thread);
        let middle_ns = late.start + late.length() / 2;
        Some(Moment { thread, time_ns: middle_ns, of: late.length() })
    });
    top(scene, &scene.around(moments), 3)
}

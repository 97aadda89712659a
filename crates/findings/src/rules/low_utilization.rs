//! LowUtilization: in large parts of the time, the devices are mostly idle without a known cause.
//! This is the rule "GPU low utilization" of Nsight Systems, with its defaults.

use tprof_facts::units::percent;
use tprof_rank::base::intervals::{Cover, Interval};

use crate::finding::{Evidence, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The time is divided into this many equal parts.
const PARTS: u64 = 30;
/// A part counts as low if the devices are busy for less than this share of it.
const LOW: f64 = 0.5;

/// The rule that judges parts of the window in which the devices are idle for more than half of the
/// time.
pub(super) struct LowUtilization;

impl Rule for LowUtilization {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "LowUtilization",
            found_if: "of 30 equal parts of the window, some are busy for less than half (both as in \
                 Nsight Systems), and half of their idle time has no cause that another rule \
                 judges",
            gain: "idle time in these parts: the devices' work remains",
            needs: "device work",
            remedy: "the other findings; if none has the cause, `tprof report idle`, and record \
                     operators or ranges",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let low = low_parts(&scene.window, &scene.idle);
        let busy = 1.0 - scene.share(scene.idle.length() + scene.unknown_ns);
        if low.is_empty() {
            let busy = percent(busy);
            return Verdict::no_problem(format!(
                "the device is busy for {busy} of the time {}, with no low part",
                scene.place()
            ));
        }
        let idle = scene.idle.intersection(&low);
        let (lost, explained) = (idle.length(), scene.explained_ns(&idle));
        // If other rules judge the causes, low utilization is only a symptom, and this rule doesn't
        // report it.
        if explained * 2 >= lost {
            return Verdict::no_problem(format!(
                "the device is busy for {} of the time {}; `tprof report gpu-time` has the causes \
                 of {} of its idle time",
                percent(busy),
                scene.place(),
                percent(explained as f64 / lost.max(1) as f64),
            ));
        }
        let seen = format!(
            "The device is busy for {} of the time, but under 50 % busy in {} of {PARTS} equal \
             parts; these have {} of idle time.",
            percent(busy),
            low_count(scene, &low),
            time(scene, lost),
        );
        let place = |&interval: &Interval| Evidence {
            interval,
            place: Track::Idle,
            name: "mostly idle".into(),
        };
        Verdict::Found(vec![
            scene
                .finding("the GPU is under 50 % busy in part of the run")
                .seen(seen)
                .advice(
                    "The other findings have the causes, where the data permits. If none has, see \
                     `tprof report idle`, and record operators or NVTX ranges.",
                )
                .bound(lost)
                .at(low.parts().iter().map(place)),
        ])
    }
}

/// Divides the window into equal parts and returns the parts in which utilization is low.
fn low_parts(window: &Cover, idle: &Cover) -> Cover {
    let (all, none) = (window.measure(), idle.measure());
    parts(window)
        .filter(|part| {
            let here = all.within(*part);
            let busy = here - none.within(*part);
            here > 0 && (busy as f64) < LOW * here as f64
        })
        .collect::<Cover>()
        .intersection(window)
}

fn parts(window: &Cover) -> impl Iterator<Item = Interval> {
    let span = window.span().unwrap_or(Interval::new(0, 0));
    let at = move |part: u64| {
        span.start + (u128::from(span.length()) * u128::from(part) / u128::from(PARTS)) as u64
    };
    (0..PARTS).map(move |part| Interval::new(at(part), at(part + 1)))
}

fn low_count(scene: &Scene<'_>, low: &Cover) -> usize {
    let low = low.measure();
    parts(&scene.window).filter(|part| low.within(*part) > 0).count()
}

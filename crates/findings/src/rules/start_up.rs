//! StartUp: the job takes long to begin. This time is spent once, outside of the steps.

use tprof_facts::units::{duration, percent};
use tprof_metrics::host::{RankHost, WindowStart};
use tprof_rank::base::intervals::Interval;
use tprof_rank::samples::Part;

use super::compilation::counted;
use super::host_part::{modules, sampled, widest};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::severity::Severity;
use crate::verdict::Verdict;

/// A shorter start-up than this is normal for any Python program.
const LEAST_NS: u64 = 500_000_000;

/// The rule that judges start-up, which is the time before the judged time: the interpreter's
/// start, imports, and everything else before the first step.
pub(super) struct StartUp;

impl Rule for StartUp {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "StartUp",
            found_if: "start-up takes 0.5 s or more beside its `no_core`, and 1 % of the driving \
                       thread's life",
            gain: "`wall_ns` of start-up (without steps: until the first work on a device) − its \
                   `no_core` − what of it Compilation or CacheMiss counts",
            needs: "CPU samples",
            remedy: "import later or less; keep environments on a local disk",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if scene.rank.file.part().is_some() {
            let why = "a part of the run may lack its start-up";
            return Verdict::unchecked(why, "the whole run: no --cycle, --from-time or --keep");
        }
        let host = match sampled(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let life_ns = host.life.whole.length();
        let wall_ns = until_work_ns(scene, host).max(host.start_up.wall_ns);
        // If other programs occupy the cores, start-up is slow whatever the process does. So leave
        // out time without a core.
        let no_core_ns = host.start_up.ns(Part::NoCore).min(wall_ns);
        // Compilation during start-up belongs to another finding, so leave it out here.
        let start_ns = host.life.whole.start;
        let start_up = Interval::new(start_ns, start_ns.saturating_add(wall_ns));
        let compiled_ns = counted(scene).map_or(0, |cover| cover.length_within(start_up));
        let ns = (wall_ns - no_core_ns).saturating_sub(compiled_ns);
        let without_core = match no_core_ns {
            0 => String::new(),
            waited => format!(", {} without a free core", duration(waited)),
        };
        let compiled = match compiled_ns {
            0 => String::new(),
            ns => format!(", {} while code for a device is compiled or loaded", duration(ns)),
        };
        if ns < LEAST_NS {
            let share = percent(wall_ns as f64 / life_ns.max(1) as f64);
            let text =
                format!("start-up takes {} ({share}){without_core}{compiled}", duration(wall_ns));
            return Verdict::no_problem(text);
        }
        let imports = match host.imports.is_empty() {
            true => "No import was sampled.".to_owned(),
            false => format!("The longest imports: {}.", modules(&host.imports)),
        };
        let seen = format!(
            "The process takes {} of its {} until {}, {} of that on a core{without_core}{compiled}. {imports}",
            duration(wall_ns),
            duration(life_ns),
            until(scene, host),
            duration(host.start_up.running_ns)
        );
        let mut finding = scene
            .finding("the job takes long to begin")
            .bound(ns)
            .spent_once(life_ns)
            .seen(seen)
            .advice(
                "Import where it is used, leave out what is not, and keep environments on a local \
                 disk; `tprof report host` lists the modules.",
            )
            .on_line(widest(&host.start_up.places(None)));
        // The time is spent once, however long the job runs. Time in each step is more urgent, so
        // cap the severity.
        finding.max_severity = Some(match scene.steps > 0 || scene.has_device() {
            true => Severity::Low,
            false => Severity::Medium,
        });
        Verdict::Found(vec![finding])
    }
}

/// Returns the time from the process's start to the first work on a device, ns. Returns 0 if the
/// judged time doesn't begin with that work, or if the process's start was not recorded.
fn until_work_ns(scene: &Scene<'_>, host: &RankHost) -> u64 {
    let judges_work = scene.steps == 0 && scene.has_device() && host.start_up.wall_ns > 0;
    let first = scene.window.span().filter(|_| judges_work);
    first.map_or(0, |window| window.start.saturating_sub(host.life.whole.start))
}

/// Names the event that ends start-up.
fn until(scene: &Scene<'_>, host: &RankHost) -> &'static str {
    match host.life.start {
        WindowStart::FirstStep => "its first step",
        WindowStart::FirstBatch => "its first batch",
        WindowStart::AfterMpiInit => "MPI_Init returns",
        _ if until_work_ns(scene, host) > host.start_up.wall_ns => "its first work on a device",
        _ => "its imports are done",
    }
}

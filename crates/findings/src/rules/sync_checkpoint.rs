//! SyncCheckpoint: the job waits while its driving thread saves a checkpoint.

use tprof_facts::units::duration;
use tprof_metrics::files::Use;
use tprof_metrics::host::{Place, RankHost, WallTime};
use tprof_rank::samples::Part;
use tprof_trace::model::FileOperation;

use super::file_part::transferred;
use super::host_part::{amount, finding_at, host, is_found, too_little, widest, with_lines};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// Maximum number of files that the sentence lists.
const MOST_FILES: usize = 2;

/// The rule that judges time in functions whose names say that they save, and in their callees, on
/// a core or not.
pub(super) struct SyncCheckpoint;

impl Rule for SyncCheckpoint {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "SyncCheckpoint",
            found_if: "as DataWait, of time below functions that save, on a core or not",
            gain: "as DataWait",
            needs: "as HotFunction",
            remedy: "save asynchronously, from a copy, less often",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let places: Vec<(&Place, &WallTime)> =
            host.ledger.places(None).into_iter().filter(|(place, _)| place.saves).collect();
        let ns = sum(&places, |_| true);
        if !is_found(host, ns) {
            return too_little(host, ns, "saving");
        }
        let running = sum(&places, Part::is_running);
        let saves = format!(
            "The driving thread saves for {}, of which {} on a core",
            amount(host, ns),
            duration(running)
        );
        let advice = match running * 2 > ns {
            true => {
                "Most of it is serialisation: copy the state (to pinned memory) and save the copy \
                 on another thread or process, save less often, or in a format without pickling."
            }
            false => {
                "Most of it is waiting for storage: copy the state and write the copy on another \
                 thread or process, save less often, or to a faster disk first."
            }
        };
        Verdict::Found(vec![
            finding_at(scene, host, "the job waits while it saves", ns, |place| place.saves)
                .seen(with_lines(&saves, &places) + &written(scene, ns))
                .advice(advice)
                .on_line(widest(&places)),
        ])
    }
}

/// Says what was written to which files in this time, and how fast; empty if calls on files were not
/// recorded.
fn written(scene: &Scene<'_>, ns: u64) -> String {
    let is_written =
        |of: &Use| of.saves && matches!(of.operation, FileOperation::Write | FileOperation::Sync);
    let Some(files) = scene.files() else { return String::new() };
    let calls_ns: u64 =
        files.driving.iter().filter(|(of, _)| is_written(of)).map(|(_, sum)| sum.ns).sum();
    // A thread that has no core has no stack, so this time isn't known to be in functions that save.
    let longer = match calls_ns > ns {
        true => " The calls took longer because they include time without a core.",
        false => "",
    };
    transferred(files, MOST_FILES, is_written) + longer
}

/// Sums the time over the places whose part passes `of`, ns.
fn sum(places: &[(&Place, &WallTime)], of: impl Fn(Part) -> bool) -> u64 {
    places.iter().filter(|(place, _)| of(place.part)).map(|(_, time)| time.ns).sum()
}

/// Returns how much of the time of a part was spent on saving, ns.
pub(super) fn of_part(host: &RankHost, part: Part) -> u64 {
    let places = host.ledger.places(Some(part)).into_iter();
    places.filter(|(place, _)| place.saves).map(|(_, time)| time.ns).sum()
}

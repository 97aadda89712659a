//! Collects a rank's collectives, by which it is compared with other ranks.

use tprof_facts::Clock;
use tprof_metrics::gpu::replay::RankSteps;
use tprof_metrics::host::{Ledger, RankHost};
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::collectives::{Operation, operations};
use tprof_rank::meetings::ComparedCollectives;
use tprof_rank::samples::{PARTS, Part};

use super::finding::SourceLine;
use super::scene::Scene;

/// A rank's collectives, by which it is compared with other ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct RankCollectives {
    /// The collectives that make all ranks wait and that either ran a kernel or ran on the host.
    pub compared: ComparedCollectives,
    /// The rank's steps, by which the job is replayed.
    pub steps: RankSteps,
    /// Number of ranks in the job, or in its largest group; `None` if the trace doesn't contain it.
    pub ranks: Option<u32>,
    /// Number of operations of any kind that ran a kernel, or ran on the host.
    pub operations: usize,
    /// Whether some of the operations ran on the host, where threads wait for the other ranks.
    pub is_on_host: bool,
    /// Number of collectives without a recorded kernel.
    pub without_kernel: u64,
    /// The driving thread's time in collectives, by its samples; `None` if it was not sampled.
    pub in_collectives: Option<DriverCollectiveTime>,
}

/// A driving thread's time in collectives and elsewhere.
#[derive(Clone, Debug)]
pub(super) struct DriverCollectiveTime {
    /// The judged time, nanoseconds since the run began.
    pub window: Interval,
    /// The parts of the window in which the thread is in a collective, waiting or polling.
    pub cover: Cover,
    /// Total time in collectives, ns. It includes the time in which a thread that polls has lost
    /// its core.
    pub ns: u64,
    /// Time outside of collectives by line, ns, most first.
    pub lines: Vec<(SourceLine, u64)>,
}

/// Maximum number of lines that are stored for the comparison.
const MOST_LINES: usize = 50;

impl DriverCollectiveTime {
    fn of(host: &RankHost, clock: Clock) -> DriverCollectiveTime {
        let mut lines: Vec<(SourceLine, u64)> = Vec::new();
        for (place, time) in host.ledger.places(None) {
            if place.part == Part::Collective || place.function.is_empty() {
                continue;
            }
            let function = place.function.clone();
            let line = SourceLine { function, file: place.file.clone(), line: place.line };
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, ns)) => *ns += time.ns,
                None => lines.push((line, time.ns)),
            }
        }
        lines.sort_rows_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        lines.truncate(MOST_LINES);
        let shifted =
            |of: &Interval| Interval::new(clock.since_start(of.start), clock.since_start(of.end));
        let ns = host.ledger.ns(Part::Collective) + preempted_ns(&host.ledger);
        let cover = Cover::of(host.collective.iter().map(shifted));
        DriverCollectiveTime { window: shifted(&host.life.window), cover, ns, lines }
    }

    /// Estimates the time in collectives within a part of the window.
    pub fn within(&self, part: Interval) -> u64 {
        let inside = self.cover.shared(&Cover::of([part]));
        let scale = self.ns as f64 / self.cover.length().max(1) as f64;
        ((inside as f64 * scale) as u64).min(part.length())
    }
}

/// Returns the time in which a thread that polls in collectives had lost its core. This is an
/// estimate: it assumes that the thread loses its core as often while it polls as at other times.
fn preempted_ns(ledger: &Ledger) -> u64 {
    let elsewhere = PARTS.iter().filter(|part| part.is_running() || **part == Part::Unknown);
    let elsewhere_ns: u64 = elsewhere.map(|part| ledger.ns(*part)).sum();
    let polled_ns = ledger.running_ns.saturating_sub(elsewhere_ns);
    let polled_ns = polled_ns.min(ledger.ns(Part::Collective));
    let share = polled_ns as f64 / ledger.running_ns.max(1) as f64;
    (ledger.ns(Part::NoCore) as f64 * share) as u64
}

/// Collects a rank's collectives.
pub(super) fn rank_collectives(scene: &Scene<'_>) -> RankCollectives {
    let steps = scene.rank.steps();
    let (operations, without_kernel) = operations(scene.rank);
    let steps_of_work = scene.rank.steps_of_work(&steps);
    let group = operations.iter().filter_map(|operation| operation.group_size).max();
    // Ranks also wait for each other on the host during start-up, because some import more slowly
    // than others. So only the judged time counts.
    let judged = scene.host().map(|host| host.life.window);
    let counts = |of: &Operation| {
        of.work.is_some() || judged.is_none_or(|window| window.start <= of.start_ns)
    };
    RankCollectives {
        compared: ComparedCollectives::of(scene.rank, &operations, &steps, &steps_of_work, counts),
        steps: RankSteps::of(scene.rank, &operations, &steps, &steps_of_work),
        ranks: group.max(world_size(scene)),
        operations: operations.len(),
        is_on_host: operations.iter().any(|operation| operation.work.is_none()),
        without_kernel,
        in_collectives: scene.host().map(|host| DriverCollectiveTime::of(host, scene.clock)),
    }
}

/// Returns the number of ranks of the job, if an imported trace contains it.
fn world_size(scene: &Scene<'_>) -> Option<u32> {
    let info = scene.rank.file.property("distributedInfo")?;
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    info.get("world_size")?.as_u64()?.try_into().ok()
}

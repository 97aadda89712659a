//! AllocationChurn: threads spend their time in `malloc` and `free`.
//!
//! [`Part::Allocator`] defines the time in these functions, so that the rule and `report host`
//! agree.

use rustc_hash::FxHashMap;
use tprof_facts::units::{self, count, estimate, percent};
use tprof_metrics::memory::{self, rate};
use tprof_rank::base::intervals::Interval;
use tprof_rank::samples::{FrameFunctions, FunctionTable, Part};
use tprof_trace::model::{Sample, ThreadIndex, ThreadState};

use super::host_part::{too_few, unseen_native, widest};
use crate::absent::SearchTarget;
use crate::finding::{Evidence, SourceLine, Track};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::time;

/// The rule that judges samples within the heap's allocator.
pub(super) struct AllocationChurn;

const SAMPLE: SearchTarget = SearchTarget::new("CPU sample in malloc or free");

impl Rule for AllocationChurn {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "AllocationChurn",
            found_if: "CPU samples of `allocator` of [`report host`](#host), of any thread",
            gain: "the largest sum over samples of one thread; an estimate",
            needs: "CPU samples; without them the rate of allocation is given if it was recorded",
            remedy: "use buffers again, batch small objects, preload jemalloc or tcmalloc",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let file = scene.rank.file;
        if file.row_count::<Sample>() == 0 {
            let has_heap = file.heap_event_count() > 0 || !file.totals().is_empty();
            let why = match (has_heap, rates(scene)) {
                (_, Some(rates)) => format!("the rank made {rates}"),
                (true, None) => "the host's rate of allocation is unknown".to_owned(),
                (false, None) => "host allocations were not recorded".to_owned(),
            };
            return Verdict::unchecked(
                format!("{why}; their cost was not measured"),
                "CPU samples (`tprof run --activities cpu,mem`), with the allocator on their \
                 stacks",
            );
        }
        let (threads, samples, is_recorded) = allocator_time(scene);
        if !is_recorded && let Some(unseen) = unseen_native(scene) {
            return unseen;
        }
        let Some((thread, most)) = threads.iter().max_by_key(|(thread, ns)| (**ns, **thread))
        else {
            return Verdict::nothing_to_judge(scene.none(&SAMPLE, is_recorded));
        };
        if let Some(few) = too_few(scene, samples.len() as u64) {
            return few;
        }
        let rates = rates(scene).map(|rates| format!(" All threads of the rank made {rates}."));
        let short = (!scene.is_brief).then(|| short_lived(scene)).flatten();
        let seen = format!(
            "The thread with the most allocator time spent {} in malloc and free (estimated from \
             {} samples).{}{}",
            time(scene, *most),
            count(samples.len() as u64),
            rates.unwrap_or_default(),
            short.unwrap_or_default(),
        );
        Verdict::Found(vec![
            scene
                .finding("the host allocates and frees constantly")
                .seen(seen)
                .advice(
                    "See the sites in `tprof report memory`: reuse buffers, reserve containers, \
                     batch small objects; or preload an allocator with thread caches \
                     (jemalloc, tcmalloc).",
                )
                // The thread still has its other work to do, so a fix can only gain this time.
                .bound((*most).min(scene.window_ns()))
                .at(samples)
                .on_line(line_of(scene, *thread)),
        ])
    }
}

/// Returns the line with most of the allocator's time, if `thread` is the driving thread. The lines
/// of other threads aren't collected.
fn line_of(scene: &Scene<'_>, thread: ThreadIndex) -> Option<SourceLine> {
    let host = scene.host().filter(|host| host.driver.thread == thread)?;
    widest(&host.ledger.places(Some(Part::Allocator)))
}

/// Formats the allocation rates in the judged time, if the heap was recorded.
fn rates(scene: &Scene<'_>) -> Option<String> {
    let rate = rate::rate(scene.rank.file, scene.window.span()?)?;
    let of = if scene.steps > 0 { "in the steps" } else { "in the judged time" };
    Some(format!(
        "about {} allocations/s ({}) {of}",
        estimate(rate.allocations_per_s),
        units::rate(rate.bytes_per_s)
    ))
}

/// Says how many of the freed blocks were short-lived. This number covers the whole recording,
/// because it isn't known for the judged time alone.
fn short_lived(scene: &Scene<'_>) -> Option<String> {
    let file = scene.rank.file;
    if file.heap_event_count() == 0 {
        return None;
    }
    let churn = memory::rank_memory(file, scene.clock).host_memory.churn;
    let share = churn.short_lived_fraction.get()?;
    Some(format!(
        " Of the blocks freed in the whole recording {} had lived for 1 ms or less.",
        percent(share)
    ))
}

/// Returns the time that each thread spent in the allocator within the window, the samples behind
/// it, and whether the recording has any sample in the allocator.
fn allocator_time(
    scene: &Scene<'_>,
) -> (FxHashMap<ThreadIndex, u64>, Vec<Evidence<'static>>, bool) {
    let file = scene.rank.file;
    let mut functions = FrameFunctions::new(file);
    let mut names = FunctionTable::default();
    let mut known: FxHashMap<(u32, u32), bool> = FxHashMap::default();
    let mut threads: FxHashMap<ThreadIndex, u64> = FxHashMap::default();
    let (mut samples, mut is_recorded) = (Vec::new(), false);
    for row in file.blocks::<Sample>().flatten() {
        let interval = Interval::new(row.time_ns, row.time_ns.saturating_add(row.weight_ns));
        let is_in = row.state == ThreadState::Running
            && *known.entry((row.process, row.stack)).or_insert_with(|| {
                let stack = functions.stack(row.process, row.stack, &mut names);
                Part::of(row.state, &stack.functions, &names) == Part::Allocator
            });
        is_recorded |= is_in;
        if is_in && scene.window.touches(interval) {
            *threads.entry(row.thread).or_default() += row.weight_ns;
            let name = "in the allocator".into();
            samples.push(Evidence { interval, place: Track::Thread(row.thread), name });
        }
    }
    (threads, samples, is_recorded)
}

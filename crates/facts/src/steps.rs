//! Finds the training steps of a file: their numbers, and when each began and ended on the host.
//!
//! All steps of a file come from one source: the one that the caller asked for, or else the first
//! of [`StepSource::ALL`] that has any steps. `explicit` finds steps that a person or program
//! marks, and `inherent` finds those that PyTorch's own ranges show. `inferred` estimates steps if
//! no source shows any. If the steps that were found account for less than half of the device's
//! time, because the job replays a CUDA graph, the graph's launches are the steps (`replays`).
//!
//! A step has the number in its range's name, or the number at the end of its mark's name. Numbers
//! of marks count only if all marks of the process have a number and these rise. Otherwise the
//! steps of each process are numbered from 0.
//!
//! Epochs, validation and checkpoints are found separately (`phases`).
//!
//! A new source needs one function, one line in `of_source`, and its place in the order.

mod explicit;
mod inferred;
mod inherent;
mod launched;
mod live;
mod names;
mod period;
mod phases;
mod replays;
mod skipped;
mod step;
mod windows;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, SpanKind, SpanOutline};

pub use explicit::{annotated_number, number_of, unended};
pub use tprof_trace::pytorch::PROFILER_STEP;
use windows::Windows;

pub use live::{LiveSteps, shows_step};
pub use names::StepNames;
pub use phases::{Phase, PhaseKind};
pub use step::{Batches, Bounds, Estimate, Repeated, Step, StepRange};

/// Sources of steps, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepSource {
    /// Marks of steps. If there are none, NVTX ranges `step 5`, `iteration 5` or `ProfilerStep#5`
    /// of any domain.
    Explicit,
    /// Annotations `ProfilerStep#5`, as torch.profiler writes them.
    Profiler,
    /// Updates of the optimizer, by PyTorch's ranges around them.
    Optimizer,
    /// Batches that PyTorch's DataLoader hands out, by its ranges.
    Loader,
    /// The period of launches or of operations between ranks, or launches of a CUDA graph; an
    /// estimate.
    Inferred,
}

impl StepSource {
    /// All sources, the most trusted first.
    pub const ALL: [StepSource; 5] = [
        StepSource::Explicit,
        StepSource::Profiler,
        StepSource::Optimizer,
        StepSource::Loader,
        StepSource::Inferred,
    ];

    /// Returns the name of the source on the command line.
    pub fn word(self) -> &'static str {
        match self {
            StepSource::Explicit => "explicit",
            StepSource::Profiler => "profiler",
            StepSource::Optimizer => "optimizer",
            StepSource::Loader => "loader",
            StepSource::Inferred => "inferred",
        }
    }

    /// Returns a description of the source's steps.
    pub fn described(self) -> &'static str {
        match self {
            StepSource::Explicit => "marks or NVTX ranges `step N`",
            StepSource::Profiler => "torch.profiler's `ProfilerStep#N`",
            StepSource::Optimizer => "updates of the optimizer (`Optimizer.step#…`)",
            StepSource::Loader => "batches of the data loader (`enumerate(DataLoader)#…`)",
            StepSource::Inferred => "an estimate, from what repeats",
        }
    }
}

/// The note for readers of steps from [`StepSource::Inferred`].
pub const INFERRED: &str = "steps are an estimate, from launches or collectives that repeat; NVTX ranges \
                            `step N` or `tprof ctl step` name them";

impl fmt::Display for StepSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for StepSource {
    type Err = String;

    fn from_str(text: &str) -> Result<StepSource, String> {
        let known = StepSource::ALL.into_iter().find(|source| source.word() == text);
        let words = StepSource::ALL.map(StepSource::word).join(", ");
        known.ok_or_else(|| format!("steps come from one of: {words}"))
    }
}

/// The steps of a file, and their source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// The steps, in order of time.
    pub all: Vec<Step>,
    /// The source of the steps. `None` if there are no steps, unless the caller asked for a source.
    pub source: Option<StepSource>,
    /// The other sources that have steps, with the number of their steps. [`StepSource::Inferred`]
    /// is not among them, since it is not tried if another source has steps.
    pub others: Vec<(StepSource, usize)>,
    /// If updates or marks delimit these steps: their number.
    pub bounds: Option<Bounds>,
    /// If updates show these steps: the batches of the data loader, if they were recorded.
    pub batches: Option<Batches>,
    /// Number of updates that a gradient scaler skipped; `None` if no scaler was recorded.
    pub skipped: Option<usize>,
    /// For [`StepSource::Inferred`]: the thing that repeats.
    pub estimate: Option<Estimate>,
    /// Epochs, validation and checkpoints, whatever the source of the steps.
    pub phases: Vec<Phase>,
}

impl Steps {
    /// Whether the steps are inferred, since nothing names them; see [`INFERRED`].
    pub fn are_inferred(&self) -> bool {
        self.source == Some(StepSource::Inferred) && !self.all.is_empty()
    }
}

/// Returns the steps of a file in order of time, from the wanted source or else from the first that
/// has any.
pub fn of_file(file: &TraceFile, wanted: Option<StepSource>) -> Steps {
    let mut names = StepNames::of(file);
    let spans = file.blocks::<SpanOutline>().flatten().filter(|span| names.has(span));
    let ranges: Vec<StepRange> = spans.map(|span| StepRange::of(&span)).collect();
    of_parts(file, &ranges, wanted)
}

/// Like [`of_file`], for a caller that has already read the spans that [`StepNames`] selects.
pub fn of_parts(file: &TraceFile, ranges: &[StepRange], wanted: Option<StepSource>) -> Steps {
    let mut found: Vec<(StepSource, Vec<Step>)> =
        StepSource::ALL.map(|source| (source, of_source(file, ranges, source))).into();
    let phases = phases::phases(file, ranges);
    let mut estimate = None;
    let is_named = found.iter().any(|(_, steps)| !steps.is_empty());
    if wanted.map_or(!is_named, |wanted| wanted == StepSource::Inferred)
        && let Some((_, steps)) = found.iter_mut().find(|of| of.0 == StepSource::Inferred)
    {
        (*steps, estimate) = inferred::steps(file);
    }
    let mut chosen = match wanted {
        Some(_) => found.iter().position(|(source, _)| Some(*source) == wanted),
        None => found.iter().position(|(_, steps)| !steps.is_empty()),
    };
    let known = chosen.map(|at| &found[at]);
    let may_be_replays = match known {
        Some((StepSource::Explicit | StepSource::Profiler, _)) => false,
        _ => wanted.is_none_or(|wanted| wanted == StepSource::Inferred),
    };
    if may_be_replays
        && let Some(replays) = replays::steps(file, known.map_or(&[], |(_, steps)| steps))
    {
        chosen = found.iter().position(|(source, _)| *source == StepSource::Inferred);
        if let Some(at) = chosen {
            (found[at].1, estimate) = (replays.0, Some(replays.1));
        }
    }
    let Some(at) = chosen else { return Steps { phases, ..Steps::default() } };
    let (source, mut all) = found.remove(at);
    let bounds = bounds(file, ranges, source, all.len());
    leave_out_pauses(file, &mut all);
    all.sort_unstable();
    all.dedup();
    let others = found.iter().map(|(source, steps)| (*source, steps.len()));
    let others = others.filter(|(_, count)| *count > 0).collect();
    let (batches, skipped) = match source {
        StepSource::Optimizer => {
            (inherent::batches(file, ranges, &all), inherent::skipped_count(file, ranges))
        }
        _ => (None, None),
    };
    Steps { all, source: Some(source), others, bounds, batches, skipped, estimate, phases }
}

/// Counts the updates or marks that show a source's steps, before steps with pauses are left out.
fn bounds(
    file: &TraceFile,
    ranges: &[StepRange],
    source: StepSource,
    steps: usize,
) -> Option<Bounds> {
    let recorded = match source {
        StepSource::Explicit => explicit::mark_count(file),
        StepSource::Optimizer => inherent::update_count(file, ranges),
        StepSource::Profiler | StepSource::Loader | StepSource::Inferred => 0,
    };
    // If there are no marks, ranges show explicit steps. Each range is a whole step, so there are
    // no bounds to count.
    (recorded > 0 && steps > 0).then(|| Bounds { recorded, open: recorded.saturating_sub(steps) })
}

/// Removes steps during which recording was off for a while.
fn leave_out_pauses(file: &TraceFile, steps: &mut Vec<Step>) {
    let mut windows: BTreeMap<ProcessIndex, Windows> = BTreeMap::new();
    steps.retain(|step| {
        let of = windows.entry(step.process).or_insert_with(|| Windows::of(file, step.process));
        !of.pause_within(step.start_ns, step.end_ns)
    });
}

fn of_source(file: &TraceFile, ranges: &[StepRange], source: StepSource) -> Vec<Step> {
    match source {
        StepSource::Explicit => {
            let marks = explicit::of_marks(file);
            match marks.is_empty() {
                true => explicit::of_ranges(file, ranges, SpanKind::Nvtx),
                false => marks,
            }
        }
        StepSource::Profiler => explicit::of_ranges(file, ranges, SpanKind::Annotation),
        StepSource::Optimizer => inherent::updates(file, ranges),
        StepSource::Loader => inherent::fetches(file, ranges),
        // Inferred steps come from other tables than ranges, and are searched for only if they are
        // needed.
        StepSource::Inferred => Vec::new(),
    }
}

/// Whether spans with this kind and name show steps or phases.
fn shows_steps(kind: SpanKind, name: &str) -> bool {
    number_of(kind, name).is_some()
        || inherent::is_sign(kind, name)
        || phases::phase_of(kind, name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::{Mark, MarkKind, Span};
    use tprof_trace::{TraceHeader, TraceWriter};

    type Marks<'a> = &'a [(u32, u64, &'a str)];

    fn steps(marks: Marks<'_>, annotations: &[(u64, &str)]) -> Vec<(u32, u64, u64, u64)> {
        let ranges: Vec<_> =
            annotations.iter().map(|(at, name)| (SpanKind::Annotation, *at, *name)).collect();
        steps_of(marks, &ranges)
    }

    fn steps_of(marks: Marks<'_>, ranges: &[(SpanKind, u64, &str)]) -> Vec<(u32, u64, u64, u64)> {
        let all = found(marks, ranges, None).all;
        all.iter().map(|step| (step.process, step.number, step.start_ns, step.end_ns)).collect()
    }

    fn found(
        marks: Marks<'_>,
        ranges: &[(SpanKind, u64, &str)],
        wanted: Option<StepSource>,
    ) -> Steps {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        for (process, time_ns, name) in marks {
            let (process, name) = (Some(*process), writer.name(name));
            writer.mark(Mark { time_ns: *time_ns, process, name, kind: MarkKind::Step });
        }
        let mut spans: Vec<Span> = Vec::new();
        for (kind, start_ns, name) in ranges {
            let (kind, start_ns, name) = (*kind, *start_ns, writer.name(name));
            spans.push(Span { start_ns, duration_ns: 10, kind, name, ..Span::default() });
        }
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        of_file(&TraceFile::open(&path).unwrap(), wanted)
    }

    #[test]
    fn marks_come_first_then_the_profiler_updates_and_batches() {
        let fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        let ranges = [
            (SpanKind::Annotation, 10, fetch),
            (SpanKind::Annotation, 30, "Optimizer.step#SGD.step"),
            (SpanKind::Annotation, 50, fetch),
            (SpanKind::Annotation, 100, "ProfilerStep#8"),
            (SpanKind::Annotation, 70, "ProfilerStep#7"),
            (SpanKind::Nvtx, 90, "step_8"),
            (SpanKind::Nvtx, 75, "Step 7"),
        ];
        let marks = [(0, 5, "a"), (0, 6, "b")];
        assert_eq!(steps_of(&marks, &ranges), [(0, 0, 5, 6)]);
        assert_eq!(steps_of(&[], &ranges), [(0, 7, 75, 85), (0, 8, 90, 100)]);
        assert_eq!(steps_of(&[], &ranges[..5]), [(0, 7, 70, 80), (0, 8, 100, 110)]);
        assert_eq!(steps_of(&[], &ranges[..3]), [(0, 0, 10, 40)]);
        assert_eq!(steps_of(&[], &[ranges[0], ranges[2]]), [(0, 0, 10, 50)]);
        let wanted = found(&marks, &ranges, Some(StepSource::Optimizer));
        assert_eq!((wanted.all.len(), wanted.source), (1, Some(StepSource::Optimizer)));
        let others = [StepSource::Explicit, StepSource::Profiler, StepSource::Loader];
        assert_eq!(wanted.others, [(others[0], 1), (others[1], 2), (others[2], 1)]);
        let none = found(&marks, &[], Some(StepSource::Loader));
        assert_eq!((none.all.len(), none.source), (0, Some(StepSource::Loader)));
    }

    #[test]
    fn sources_are_named_by_a_word() {
        for source in StepSource::ALL {
            assert_eq!(source.word().parse(), Ok(source));
        }
        assert!("steps".parse::<StepSource>().is_err());
    }

    #[test]
    fn the_number_of_a_step_is_read_from_its_ranges_name() {
        let number = |name| number_of(SpanKind::Nvtx, name);
        for name in ["step 12", "STEP#12", "iteration: 12", "ProfilerStep#12", "step__12"] {
            assert_eq!(number(name), Some(12), "{name}");
        }
        for name in ["step", "step12", "12", " 12", "steps 12", "warm-up step 12", "step x"] {
            assert_eq!(number(name), None, "{name}");
        }
        assert_eq!(number("step 99999999999999999999"), None);
        assert_eq!(number_of(SpanKind::Annotation, "step 12"), None);
    }

    #[test]
    fn a_mark_begins_a_step_and_the_last_one_has_no_end() {
        let marks = [(1, 5, "s"), (0, 30, "s"), (0, 10, "s"), (0, 20, "s"), (1, 9, "s")];
        assert_eq!(steps(&marks, &[]), [(1, 0, 5, 9), (0, 0, 10, 20), (0, 1, 20, 30)]);
        assert_eq!(steps(&[(0, 5, "step 3")], &[]), []);
        assert_eq!(found(&marks, &[], None).bounds, Some(Bounds { recorded: 5, open: 2 }));
    }

    #[test]
    fn numbers_in_names_count_only_if_all_names_have_one_and_they_rise() {
        let numbers = |names: &[&'static str]| -> Vec<u64> {
            let marks: Vec<_> = names.iter().zip(1..).map(|(&name, at)| (0, at, name)).collect();
            steps(&marks, &[]).iter().map(|step| step.1).collect()
        };
        assert_eq!(numbers(&["step 50", "step 51", "step 60"]), [50, 51]);
        assert_eq!(numbers(&["resnet50", "resnet50", "resnet50"]), [0, 1]);
        assert_eq!(numbers(&["warm-up", "step 7", "step 8"]), [0, 1]);
        assert_eq!(numbers(&["größe99999999999999999999", "1", "2"]), [0, 1]);
    }
}

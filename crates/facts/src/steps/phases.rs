//! Finds phases of a job: epochs, training, validation and checkpoints.
//!
//! Ranges of the program name them. If none does, epochs and validation are estimated from fetches
//! of data loaders and updates of optimizers: an epoch ends with a fetch that finds no batch, and
//! batches of validation are followed by no update.

use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, ProcessIndex, SpanKind};
use tprof_trace::pytorch::LOADER_FETCH;

use super::inherent;
use super::step::StepRange;
use super::windows::Windows;

/// The kind of phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseKind {
    /// Everything that belongs to one pass over the data, including validation.
    Epoch,
    /// Training within an epoch.
    Train,
    /// Validation, evaluation or test.
    Validation,
    /// Writing or reading a checkpoint.
    Checkpoint,
}

impl PhaseKind {
    /// Returns the name that reports print.
    pub fn word(self) -> &'static str {
        match self {
            PhaseKind::Epoch => "epoch",
            PhaseKind::Train => "train",
            PhaseKind::Validation => "validation",
            PhaseKind::Checkpoint => "checkpoint",
        }
    }
}

/// A phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The beginning on the host, ns.
    pub start_ns: u64,
    /// The end on the host, ns.
    pub end_ns: u64,
    /// Index of the phase's process.
    pub process: ProcessIndex,
    /// The kind of the phase.
    pub kind: PhaseKind,
    /// Number of the phase: the first number in its range's name, or the index of an estimated
    /// epoch, from 0.
    pub number: Option<u64>,
    /// Name of the phase's range; `None` for an estimate.
    pub name: Option<NameId>,
    /// Number of data loader fetches that began within the phase, including a fetch that found no
    /// batch.
    pub fetches: usize,
}

/// Words in the names of ranges that lie within a step, or that only prepare or end one.
const NO_PHASE: [&str; 9] =
    ["step", "iteration", "iter", "batch", "forward", "backward", "next", "loss", "hook"];

/// Returns the kind of phase that a range with this kind and name is, if any.
pub fn phase_of(kind: SpanKind, name: &str) -> Option<PhaseKind> {
    if !matches!(kind, SpanKind::Annotation | SpanKind::Nvtx) {
        return None;
    }
    let words: Vec<String> = words(name).collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    if has(&NO_PHASE) {
        return None;
    }
    if has(&["checkpoint", "checkpoints", "checkpointing", "ckpt"]) {
        return Some(PhaseKind::Checkpoint);
    }
    if has(&["validation", "validate", "validating", "val", "valid"])
        || has(&["eval", "evaluate", "evaluation", "test", "testing"])
    {
        return Some(PhaseKind::Validation);
    }
    match (has(&["train", "training"]), has(&["epoch"])) {
        (true, _) => Some(PhaseKind::Train),
        (false, true) => Some(PhaseKind::Epoch),
        (false, false) => None,
    }
}

/// Splits a name into words in lower case. Words are runs of letters, and `trainEpoch` is two
/// words.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if !letter.is_ascii_alphabetic() || (was_lower && letter.is_ascii_uppercase()) {
            words.push(String::new());
        }
        was_lower = letter.is_ascii_lowercase();
        if let (true, Some(word)) = (letter.is_ascii_alphabetic(), words.last_mut()) {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.into_iter().filter(|word| !word.is_empty())
}

fn number(name: &str) -> Option<u64> {
    name.split(|letter: char| !letter.is_ascii_digit())
        .find(|digits| !digits.is_empty())?
        .parse()
        .ok()
}

/// Returns the phases of a file in order of time, outer ones first. If ranges name no epoch,
/// training or validation, estimates are added. `ranges` are those that [`super::StepNames`]
/// chooses.
pub fn phases(file: &TraceFile, ranges: &[StepRange]) -> Vec<Phase> {
    let mut phases = named(file, ranges);
    if phases.iter().all(|phase| phase.kind == PhaseKind::Checkpoint) {
        phases.extend(estimated(file, ranges));
    }
    phases.sort_by_key(|phase| (phase.start_ns, std::cmp::Reverse(phase.end_ns), phase.kind));
    phases
}

fn named(file: &TraceFile, ranges: &[StepRange]) -> Vec<Phase> {
    let fetches = inherent::named(file, ranges, LOADER_FETCH);
    let phase = |range: &StepRange| {
        let StepRange { kind, name, process, start_ns, end_ns } = *range;
        let phase = phase_of(kind, file.name(name))?;
        let fetches = fetches.get(&process).map_or(&[][..], Vec::as_slice);
        let fetches = begun_before(fetches, end_ns) - begun_before(fetches, start_ns);
        let number = number(file.name(name));
        Some(Phase { start_ns, end_ns, process, kind: phase, number, name: Some(name), fetches })
    };
    ranges.iter().filter_map(phase).collect()
}

/// Returns the number of fetches that began before a time.
fn begun_before(fetches: &[StepRange], ns: u64) -> usize {
    fetches.partition_point(|fetch| fetch.start_ns < ns)
}

/// Estimates phases. An epoch is a run of updates with the usual number of batches each.
fn estimated(file: &TraceFile, ranges: &[StepRange]) -> Vec<Phase> {
    let mut phases = Vec::new();
    for (process, fetches) in inherent::named(file, ranges, LOADER_FETCH) {
        let updates = inherent::attempted(file, ranges, process, &fetches);
        let windows = Windows::of(file, process);
        let pauses: Vec<bool> =
            updates.windows(2).map(|pair| windows.pause_within(pair[0], pair[1])).collect();
        let mut parts = Parts { process, fetches: &fetches, phases: &mut phases };
        parts.divide(&updates, &pauses);
    }
    phases
}

/// Divides the fetches of a process into phases.
struct Parts<'a> {
    process: ProcessIndex,
    fetches: &'a [StepRange],
    phases: &'a mut Vec<Phase>,
}

impl Parts<'_> {
    /// Divides the fetches by the ends of updates. `pauses` tells for each pair of updates whether
    /// recording paused in between.
    fn divide(&mut self, updates: &[u64], pauses: &[bool]) {
        let fetched: Vec<usize> = updates
            .iter()
            .map(|ns| self.fetches.partition_point(|fetch| fetch.end_ns <= *ns))
            .collect();
        let own = inherent::usual(fetched.windows(2).map(|pair| pair[1] - pair[0]));
        let (Some(&first), Some(&last)) = (fetched.first(), fetched.last()) else { return };
        let ends: Vec<usize> = (1..fetched.len())
            .filter(|&at| pauses[at - 1] || fetched[at] - fetched[at - 1] > own)
            .collect();
        if own == 0 || (ends.is_empty() && last == self.fetches.len()) {
            return;
        }
        let is_whole = !pauses.contains(&true);
        // Batches before those of the first update are of a validation that some programs run
        // before they train. If they are only a few, they may have been fetched ahead.
        let mut train = first.saturating_sub(own);
        if is_validation(train, own) {
            self.phase(PhaseKind::Validation, 0..train, None, 0);
        }
        for (number, &end) in ends.iter().chain([&fetched.len()]).enumerate() {
            let trained = fetched[end - 1];
            // After a pause an update may follow fewer batches than a step has.
            let next = fetched
                .get(end)
                .map_or(self.fetches.len(), |&before| before.saturating_sub(own).max(trained));
            let paused = pauses.get(end - 1).is_some_and(|pause| *pause);
            // One more fetch belongs to the epoch: the one after its last batch, which found no
            // batch.
            let of_train = if paused { trained } else { (trained + 1).min(next.max(trained)) };
            let validates = !paused && is_validation(next.saturating_sub(of_train), own);
            let of_epoch = if validates { next } else { of_train };
            let number = is_whole.then_some(number as u64);
            self.phase(PhaseKind::Epoch, train..of_epoch, number, updates[end - 1]);
            self.phase(PhaseKind::Train, train..of_train, number, updates[end - 1]);
            if validates {
                self.phase(PhaseKind::Validation, of_train..next, number, 0);
            }
            train = next;
        }
    }

    /// Adds a phase for some fetches. It ends with the last of them, or with an update after that.
    fn phase(
        &mut self,
        kind: PhaseKind,
        fetches: std::ops::Range<usize>,
        number: Option<u64>,
        update_ns: u64,
    ) {
        let within = &self.fetches[fetches];
        let [Some(first), Some(last)] = [within.first(), within.last()] else { return };
        let (start_ns, end_ns) = (first.start_ns, last.end_ns.max(update_ns));
        let (process, fetches) = (self.process, within.len());
        self.phases.push(Phase { start_ns, end_ns, process, kind, number, name: None, fetches });
    }
}

/// Whether this many fetches without an update are those of validation: at least one batch, and the
/// fetch that finds none. If there are no more of them than a step has, they may instead be batches
/// of an epoch's end for which the program made no update.
fn is_validation(fetches: usize, own: usize) -> bool {
    fetches > own.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::model::Span;
    use tprof_trace::{TraceHeader, TraceWriter};

    const NEXT: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    const SGD: &str = "Optimizer.step#SGD.step";

    /// Finds the phases in ranges that begin at these times and last for 5 ns.
    fn of(ranges: &[(u64, &str)]) -> Vec<Phase> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut spans: Vec<Span> = Vec::new();
        for (start_ns, name) in ranges {
            let (kind, name) = (SpanKind::Annotation, writer.name(name));
            spans.push(Span { start_ns: *start_ns, duration_ns: 5, kind, name, ..Span::default() });
        }
        writer.write(&mut spans).unwrap();
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        super::super::of_file(&file, None).phases
    }

    fn shown(phases: &[Phase]) -> Vec<(&'static str, u64, u64, usize)> {
        let shown =
            |phase: &Phase| (phase.kind.word(), phase.start_ns, phase.end_ns, phase.fetches);
        phases.iter().map(shown).collect()
    }

    /// Adds an epoch of `batches` with an update after each `accumulated` of them, and then
    /// validation; each takes 10 ns.
    fn epoch(
        ranges: &mut Vec<(u64, &'static str)>,
        batches: usize,
        accumulated: usize,
        validation: usize,
    ) {
        let mut at = ranges.last().map_or(0, |last| last.0);
        let mut push = |name| {
            at += 10;
            ranges.push((at, name));
        };
        for batch in 1..=batches {
            push(NEXT);
            if batch % accumulated == 0 {
                push(SGD);
            }
        }
        push(NEXT);
        (0..validation).for_each(|_| push(NEXT));
    }

    #[test]
    fn epochs_and_validation_are_estimated_from_fetches_without_updates() {
        let mut ranges = Vec::new();
        epoch(&mut ranges, 4, 1, 3);
        epoch(&mut ranges, 4, 1, 3);
        let expected = [
            ("epoch", 10, 125, 8),
            ("train", 10, 95, 5),
            ("validation", 100, 125, 3),
            ("epoch", 130, 245, 8),
            ("train", 130, 215, 5),
            ("validation", 220, 245, 3),
        ];
        let phases = of(&ranges);
        assert_eq!(shown(&phases), expected);
        let numbers: Vec<_> = phases.iter().map(|phase| phase.number.unwrap()).collect();
        assert_eq!(numbers, [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn the_last_batches_of_an_epoch_without_an_update_are_not_validation() {
        let mut ranges = Vec::new();
        epoch(&mut ranges, 9, 2, 0);
        epoch(&mut ranges, 9, 2, 0);
        let kinds: Vec<_> = of(&ranges).iter().map(|phase| phase.kind.word()).collect();
        assert_eq!(kinds, ["epoch", "train", "epoch", "train"]);
    }

    #[test]
    fn a_pause_before_the_first_batches_leaves_no_phase_without_batches() {
        let fetches: Vec<StepRange> = (1..=4)
            .map(|at| StepRange {
                kind: SpanKind::Annotation,
                process: 0,
                name: NameId(0),
                start_ns: 100 * at,
                end_ns: 100 * at + 5,
            })
            .collect();
        let mut phases = Vec::new();
        let mut parts = Parts { process: 0, fetches: &fetches, phases: &mut phases };
        parts.divide(&[10, 20, 150, 250, 350, 450], &[true, false, false, false, false]);
        assert_eq!(shown(&phases), [("epoch", 100, 450, 4), ("train", 100, 450, 4)]);
    }

    #[test]
    fn an_unbroken_run_of_updates_has_no_phases() {
        let mut ranges = Vec::new();
        epoch(&mut ranges, 6, 1, 0);
        ranges.pop();
        assert_eq!(of(&ranges), []);
        assert_eq!(of(&[(10, SGD), (20, SGD), (30, SGD)]), []);
        assert_eq!(of(&[(10, NEXT), (20, NEXT), (30, NEXT)]), []);
    }

    #[test]
    fn ranges_of_the_program_come_before_estimates() {
        let mut ranges = Vec::new();
        epoch(&mut ranges, 4, 1, 3);
        epoch(&mut ranges, 4, 1, 3);
        ranges.push((300, "save_checkpoint 7"));
        let phases = of(&ranges);
        let kinds: Vec<_> = phases.iter().map(|phase| phase.kind.word()).collect();
        let of_epoch = ["epoch", "train", "validation"];
        assert_eq!(kinds, [&of_epoch[..], &of_epoch[..], &["checkpoint"]].concat());
        assert_eq!(phases[6].number, Some(7));
        ranges.push((400, "validation 2"));
        let expected = [("checkpoint", 300, 305, 0), ("validation", 400, 405, 0)];
        assert_eq!(shown(&of(&ranges)), expected);
    }

    #[test]
    fn the_kind_of_a_phase_is_found_by_words_in_its_name() {
        let of = |name| phase_of(SpanKind::Nvtx, name).map(PhaseKind::word);
        for name in ["epoch 3", "Epoch: 3", "[epoch=3]"] {
            assert_eq!(of(name), Some("epoch"), "{name}");
        }
        for name in ["train", "train_epoch 2", "run_training_epoch", "trainEpoch"] {
            assert_eq!(of(name), Some("train"), "{name}");
        }
        for name in ["validation", "val epoch 1", "evaluate()", "eval_loop"] {
            assert_eq!(of(name), Some("validation"), "{name}");
        }
        for name in ["save checkpoint", "ckpt-3"] {
            assert_eq!(of(name), Some("checkpoint"), "{name}");
        }
        for name in ["train_step", "validation batch 3", "constraint", "value", "latest", "retrain"]
        {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(phase_of(SpanKind::Operator, "train"), None);
    }
}

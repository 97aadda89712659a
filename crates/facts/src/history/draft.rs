//! Puts consecutive steps together, so that short ones don't fill the file.

use tprof_trace::model::{HistoryRow, HistorySource};

use crate::steps::{Step, StepSource};

/// Steps share a row until it spans this long, ns.
const SPAN_NS: u64 = 1_000_000_000;
/// Most steps of a row, which bounds the memory that their durations take.
const MOST_STEPS: usize = 1 << 16;
/// Most windows of a row: steps that lie apart have a window each.
const MOST_WINDOWS: usize = 1 << 12;

/// Consecutive steps, or a stretch of time without steps, that become a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    row: HistoryRow,
    /// The times of the steps in order; of steps that follow each other one.
    pub windows: Vec<(u64, u64)>,
    durations_ns: Vec<u64>,
}

impl Draft {
    /// Begins a row with a step.
    pub fn of(step: &Step, source: StepSource) -> Draft {
        let row = HistoryRow {
            start_ns: step.start_ns,
            process: step.process,
            source: written(source),
            first_step: step.number,
            ..HistoryRow::default()
        };
        let mut draft = Draft { row, ..Draft::default() };
        draft.add(step);
        draft
    }

    /// Makes a row of a stretch of time without steps.
    pub fn stretch(start_ns: u64, end_ns: u64) -> Draft {
        let (length, windows) = (end_ns - start_ns, vec![(start_ns, end_ns)]);
        let row =
            HistoryRow { start_ns, duration_ns: length, steps_ns: length, ..HistoryRow::default() };
        Draft { row, windows, durations_ns: Vec::new() }
    }

    pub fn start_ns(&self) -> u64 {
        self.row.start_ns
    }

    pub fn end_ns(&self) -> u64 {
        self.row.end_ns()
    }

    /// Whether a step belongs to the same row.
    pub fn takes(&self, step: &Step, source: StepSource) -> bool {
        (step.process, written(source)) == (self.row.process, self.row.source)
            && step.start_ns >= self.row.start_ns
            && step.end_ns - self.row.start_ns <= SPAN_NS
            && self.durations_ns.len() < MOST_STEPS
            && self.windows.len() < MOST_WINDOWS
    }

    /// Adds the next step.
    pub fn add(&mut self, step: &Step) {
        let (row, duration_ns) = (&mut self.row, step.end_ns.saturating_sub(step.start_ns));
        if row.steps == 0 || duration_ns > row.longest_ns {
            (row.longest_ns, row.longest_step) = (duration_ns, step.number);
        }
        row.shortest_ns =
            if row.steps == 0 { duration_ns } else { row.shortest_ns.min(duration_ns) };
        row.steps += 1;
        row.steps_ns += duration_ns;
        row.duration_ns = row.duration_ns.max(step.end_ns.saturating_sub(row.start_ns));
        self.durations_ns.push(duration_ns);
        match self.windows.last_mut() {
            Some(last) if step.start_ns <= last.1 => last.1 = last.1.max(step.end_ns),
            _ => self.windows.push((step.start_ns, step.end_ns)),
        }
    }

    /// Returns the row with what is known of the steps.
    pub fn row(&mut self) -> HistoryRow {
        let middle = self.durations_ns.len() / 2;
        if !self.durations_ns.is_empty() {
            self.row.median_ns = *self.durations_ns.select_nth_unstable(middle).1;
        }
        self.row
    }
}

/// Returns the source as a row has it.
fn written(source: StepSource) -> HistorySource {
    match source {
        StepSource::Explicit => HistorySource::Explicit,
        StepSource::Profiler => HistorySource::Profiler,
        StepSource::Optimizer => HistorySource::Optimizer,
        StepSource::Loader => HistorySource::Loader,
        StepSource::Inferred => HistorySource::Inferred,
    }
}

/// Returns the word for what told of steps: that of [`StepSource`], or `none`.
pub fn word(source: HistorySource) -> &'static str {
    match source {
        HistorySource::None => "none",
        HistorySource::Explicit => StepSource::Explicit.word(),
        HistorySource::Profiler => StepSource::Profiler.word(),
        HistorySource::Optimizer => StepSource::Optimizer.word(),
        HistorySource::Loader => StepSource::Loader.word(),
        HistorySource::Inferred => StepSource::Inferred.word(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64, start_ns: u64, duration_ns: u64) -> Step {
        Step { start_ns, end_ns: start_ns + duration_ns, process: 0, number }
    }

    #[test]
    fn short_steps_share_a_row_up_to_a_second() {
        let mut draft = Draft::of(&step(7, 1000, 300_000_000), StepSource::Explicit);
        for (number, start, duration) in
            [(8, 300_001_000, 100_000_000), (9, 400_001_000, 500_000_000)]
        {
            let next = step(number, start, duration);
            assert!(draft.takes(&next, StepSource::Explicit));
            draft.add(&next);
        }
        assert!(!draft.takes(&step(10, 900_001_000, 200_000_000), StepSource::Explicit));
        assert!(!draft.takes(&step(10, 900_001_000, 1000), StepSource::Loader));
        assert_eq!(draft.windows, [(1000, 900_001_000)]);
        let row = draft.row();
        assert_eq!((row.first_step, row.steps, row.steps_ns), (7, 3, 900_000_000));
        assert_eq!((row.shortest_ns, row.median_ns), (100_000_000, 300_000_000));
        assert_eq!((row.longest_ns, row.longest_step, row.end_ns()), (500_000_000, 9, 900_001_000));
    }

    #[test]
    fn a_long_step_has_a_row_of_its_own_and_steps_apart_have_windows() {
        let draft = Draft::of(&step(0, 0, 2_000_000_000), StepSource::Profiler);
        assert!(!draft.takes(&step(1, 2_000_000_000, 10), StepSource::Profiler));
        let mut apart = Draft::of(&step(0, 0, 10), StepSource::Explicit);
        apart.add(&step(1, 20, 10));
        assert_eq!(apart.windows, [(0, 10), (20, 30)]);
        let row = apart.row();
        assert_eq!((row.steps_ns, row.duration_ns), (20, 30));
    }
}

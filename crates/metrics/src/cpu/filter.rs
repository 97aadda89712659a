//! Selects the rows that `--within` and `--thread` keep.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_document::{OptionMatches, Options};
use tprof_facts::labels;
use tprof_rank::RankTrace;
use tprof_trace::model::{Process, ProcessIndex, Sample, ThreadIndex};

use super::windows::Windows;

/// The word for the first thread of each process.
const MAIN: &str = "main";

/// Selects rows of a rank by their ranges and threads.
pub(super) struct SampleFilter {
    windows: Option<Windows>,
    threads: Option<FxHashSet<(ProcessIndex, ThreadIndex)>>,
}

impl SampleFilter {
    /// Makes the filter that the options ask for.
    pub fn of(rank: &RankTrace<'_>, options: &Options) -> SampleFilter {
        let threads = options.thread.as_deref().map(|text| {
            let chosen = candidates(rank).filter(|thread| thread.is_chosen(text));
            chosen.map(|thread| thread.key).collect()
        });
        SampleFilter { windows: options.within_text().map(|text| Windows::of(rank, text)), threads }
    }

    /// Whether the filter can leave rows out.
    pub fn is_cut(&self) -> bool {
        self.windows.is_some() || self.threads.is_some()
    }

    /// Number of ranges that `--within` chose.
    pub fn ranges(&self) -> usize {
        self.windows.as_ref().map_or(0, |windows| windows.count)
    }

    /// Whether a row of a thread's time is kept.
    pub fn holds(&self, row: &Sample) -> bool {
        self.holds_thread(row.process, row.thread)
            && self.windows.as_ref().is_none_or(|windows| windows.hold(row))
    }

    /// Whether a moment of a thread is kept.
    pub fn holds_at(&self, process: ProcessIndex, thread: ThreadIndex, time_ns: u64) -> bool {
        self.holds_thread(process, thread)
            && self.windows.as_ref().is_none_or(|windows| windows.hold_at(thread, time_ns))
    }

    /// Whether a thread is kept.
    pub fn holds_thread(&self, process: ProcessIndex, thread: ThreadIndex) -> bool {
        self.threads.as_ref().is_none_or(|threads| threads.contains(&(process, thread)))
    }
}

/// A thread that `--thread` can choose.
struct ThreadCandidate {
    key: (ProcessIndex, ThreadIndex),
    tid: u32,
    /// The thread's name, or the name of its program if it has none.
    name: String,
    /// Whether the thread is the first one of its process.
    is_main: bool,
}

impl ThreadCandidate {
    /// Whether the text names this thread: by its number, as `main`, or by a part of its name.
    fn is_chosen(&self, text: &str) -> bool {
        text == self.tid.to_string() || text == MAIN && self.is_main || self.name.contains(text)
    }
}

/// Matches the text of `--thread` with the threads of a rank.
pub(super) fn named(rank: &RankTrace<'_>, text: &str) -> OptionMatches {
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut matching = 0;
    for thread in candidates(rank) {
        matching += u64::from(thread.is_chosen(text));
        *names.entry(thread.name).or_default() += 1;
        if thread.is_main {
            *names.entry(MAIN.to_owned()).or_default() += 1;
        }
    }
    let (option, what) = ("--thread", "threads");
    OptionMatches { option, what, text: text.to_owned(), chosen: matching > 0, matching, names }
}

fn candidates(rank: &RankTrace<'_>) -> impl Iterator<Item = ThreadCandidate> {
    let file = rank.file;
    let processes: FxHashMap<ProcessIndex, &Process> =
        file.processes().iter().map(|row| (row.process, row)).collect();
    file.threads().iter().map(move |thread| {
        let process = processes.get(&thread.process);
        let program = || process.map_or("", |row| labels::program(file.name(row.command)));
        let name = file.thread_name(thread.thread).unwrap_or_else(program).to_owned();
        ThreadCandidate {
            key: (thread.process, thread.thread),
            tid: thread.tid,
            name,
            is_main: process.is_some_and(|row| row.pid == thread.tid),
        }
    })
}

//! `tprof report threads`: the time of each thread, by state.

use rustc_hash::FxHashMap;
use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_facts::labels;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::{Process, ProcessIndex, ThreadCounts, ThreadIndex, ThreadState};

use super::counted::RankCounts;
use super::counted_tables::{self, RequestedByRanks};
use super::groups::representative;
use super::thread_row::ThreadRow;
use super::thread_tables::{ThreadsShown, events, processes, switches, threads};

/// The kind of report.
pub const KIND: DocumentKind = DocumentKind {
    name: "threads",
    about: "running, ready and waiting time of each thread",
    analysis: || boxed(ThreadsReport),
};

/// The report `threads`: time of each thread.
pub struct ThreadsReport;

impl Analysis for ThreadsReport {
    const HTA: bool = false;
    const KIND: &'static str = "threads";
    type Part = (Vec<ThreadRow>, RankCounts);

    fn needs(&self, _: &Options) -> Needs {
        Needs::SAMPLES
    }

    fn rank(&self, rank: &RankTrace<'_>, _at: &RankContext, _options: &Options) -> Self::Part {
        let (cpu, trace) = (&rank.cpu, rank.file);
        let processes: FxHashMap<ProcessIndex, &Process> =
            trace.processes().iter().map(|p| (p.process, p)).collect();
        let tids: FxHashMap<ThreadIndex, u32> =
            trace.threads().iter().map(|t| (t.thread, t.tid)).collect();
        let counts: FxHashMap<(ProcessIndex, ThreadIndex), ThreadCounts> =
            trace.thread_counts().iter().map(|row| ((row.process, row.thread), *row)).collect();
        let mut rows: FxHashMap<(ProcessIndex, ThreadIndex), ThreadRow> = FxHashMap::default();
        for stretch in &cpu.stretches {
            let key = (stretch.process, stretch.thread);
            let row = rows.entry(key).or_insert_with(|| {
                let process = processes.get(&stretch.process);
                ThreadRow {
                    process: stretch.process,
                    program: process.map_or(String::new(), |p| {
                        labels::program(trace.name(p.command)).to_owned()
                    }),
                    pid: process.map_or(0, |p| p.pid),
                    tid: tids.get(&stretch.thread).copied().unwrap_or(0),
                    name: trace.thread_name(stretch.thread).map(str::to_owned),
                    counts: counts.get(&key).copied().unwrap_or_default(),
                    ..ThreadRow::default()
                }
            });
            row.add(stretch, &cpu.names);
            if let Some(gil) = stretch.gil_ns {
                row.gil_ns = Some(row.gil_ns.unwrap_or(0) + gil);
            }
            let funcs = || stretch.stack.iter().map(|id| cpu.names.get(*id));
            let Some(place) = representative(funcs()).cloned() else { continue };
            match stretch.state {
                ThreadState::Running => {
                    row.samples += stretch.samples;
                    *row.ran.entry(place).or_default() += stretch.weight_ns;
                }
                ThreadState::Runnable => {}
                state => *row.waited.entry((state, place)).or_default() += stretch.weight_ns,
            }
        }
        let mut rows: Vec<((ProcessIndex, ThreadIndex), ThreadRow)> = rows.into_iter().collect();
        rows.sort_rows_by_key(|(key, _)| *key);
        let mut counted = RankCounts::of(rank, false, None);
        for (key, row) in &mut rows {
            row.events = counted.threads.remove(key).unwrap_or_default();
        }
        (rows.into_iter().map(|(_, row)| row).collect(), counted)
    }

    fn join(&self, parts: Vec<(RankContext, Self::Part)>, options: &Options) -> Body {
        let shown = ThreadsShown { ranked: parts.len() > 1, cycle: options.is_of_part() };
        let of_ranks = counted_tables::of_ranks(parts.iter().map(|(at, (_, all))| (at, all)));
        let mut all: Vec<(RankContext, ThreadRow)> = Vec::new();
        let mut asked = Vec::new();
        for (at, (rows, counted)) in parts {
            all.extend(rows.into_iter().map(|row| (at.clone(), row)));
            asked.push(counted.asked);
        }
        let asked = RequestedByRanks(asked.iter().collect());
        all.sort_rows_by_key(|(_, row)| {
            (row.is_idle(), std::cmp::Reverse(row.time(ThreadState::Running)))
        });
        let mut tables = vec![threads(&all, shown), switches(&all, shown), processes(&all, shown)];
        tables.extend(of_ranks);
        tables.extend(events(&all, shown, &asked));
        Body { tables, notes: if all.is_empty() { Vec::new() } else { asked.notes() } }
    }
}

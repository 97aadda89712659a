//! Reports the memory that a rank's live processes hold now, while the run is still being recorded.
//!
//! `tprof ctl snapshot` makes this report, right after the collector has written all its data.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use tprof_document::{
    Analysis, Body, Cell, Column, DocumentKind, Options, RankContext, Table, Unit, boxed,
};
use tprof_facts::labels;
use tprof_rank::base::reading::Reading;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::model::{MemoryRecording, Process, ProcessIndex, counter};

use super::gauges;
use super::missing::OFF;
use super::pass::Pass;
use super::weight::error;

/// The report `snapshot`. `tprof report` does not list it, since it is about a single time.
pub const KIND: DocumentKind = DocumentKind {
    name: "snapshot",
    about: "live bytes and the sites that hold most, at this moment",
    analysis: || boxed(Snapshot),
};

/// Most sites of a rank that are kept.
const MOST_SITES: usize = 1000;

/// Memory that a rank holds now.
pub struct HeldMemory {
    processes: u64,
    live_bytes: Reading<u64>,
    resident_bytes: Reading<u64>,
    /// What `sites` lacks, in words; `None` if nothing.
    incomplete: Option<String>,
    /// Whether `sites` is unknown, and not only incomplete.
    are_sites_unknown: bool,
    sites: Vec<HeldSite>,
}

/// Memory that a call stack holds now.
pub struct HeldSite {
    live_bytes: Reading<u64>,
    /// Frames of the stack, innermost first.
    stack: Vec<Arc<str>>,
}

/// A snapshot of the heap: `tprof ctl snapshot`.
struct Snapshot;

impl Analysis for Snapshot {
    const KIND: &'static str = KIND.name;
    type Part = HeldMemory;

    fn needs(&self, _: &Options) -> Needs {
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, _: &Options) -> HeldMemory {
        Pass::over(rank.file, at.clock).held()
    }

    fn join(&self, parts: Vec<(RankContext, HeldMemory)>, _: &Options) -> Body {
        let mut ranks = rank_table();
        let mut sites = site_table();
        let (mut notes, mut are_unknown) = (Vec::new(), false);
        for (at, held) in parts {
            notes.extend(held.incomplete.as_ref().map(|what| format!("{}: {what}", at.label)));
            are_unknown |= held.are_sites_unknown;
            for site in &held.sites {
                sites.row(site_row(&at, &held, site));
            }
            ranks.row(vec![
                at.label.into(),
                held.live_bytes.into(),
                held.resident_bytes.into(),
                held.processes.into(),
            ]);
        }
        sites.rows.sort_rows_by_key(|row| {
            let bytes = row[1].value().and_then(|value| value.number());
            Reverse(bytes.map_or(0, |bytes| bytes as u64))
        });
        if are_unknown {
            sites = sites.empty("unknown (see the notes)");
        }
        Body { tables: vec![ranks, sites], notes }
    }
}

fn rank_table() -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("live_bytes", "live", Unit::Bytes),
        Column::new("resident_bytes", "resident", Unit::Bytes),
        Column::new("processes", "processes", Unit::Count),
    ];
    Table::new("ranks", "Memory now", columns)
        .about("live: heap bytes of processes that live; resident: sum of their last RSS")
        .empty("no rank is recorded")
}

fn site_table() -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("live_bytes", "live", Unit::Bytes),
        Column::new("share", "share", Unit::Share),
        Column::data("stack", Unit::Text),
        Column::new("function", "function", Unit::Name),
    ];
    Table::new("sites", "Sites that hold most", columns)
        .about("share: of the rank's live bytes; stacks are in JSON, innermost frame first")
        .empty("no live allocation was recorded")
}

fn site_row(at: &RankContext, held: &HeldMemory, site: &HeldSite) -> Vec<Cell> {
    let share = match (site.live_bytes.get(), held.live_bytes.get()) {
        // The estimate of a part may exceed the whole.
        (Some(part), Some(whole)) if whole > 0 => Cell::from((part as f64 / whole as f64).min(1.0)),
        _ => Cell::Empty,
    };
    let frames: Vec<&str> = site.stack.iter().map(|frame| &**frame).collect();
    let innermost = frames.first().copied().unwrap_or("(no stack)");
    vec![
        at.label.as_str().into(),
        site.live_bytes.clone().into(),
        share,
        frames.join("\n").into(),
        innermost.into(),
    ]
}

impl Pass<'_> {
    /// Sums the memory of the processes that have not ended.
    fn held(&self) -> HeldMemory {
        let live: Vec<&Process> = self.live_processes().filter(|one| !self.asks(one)).collect();
        let live_bytes =
            live.iter().fold(Reading::Is(0), |sum, process| sum.plus(self.live_of(process)));
        let live_bytes = match live.is_empty() {
            true => Reading::missing("no process of it lives"),
            false => live_bytes,
        };
        let of: FxHashSet<ProcessIndex> = live.iter().map(|process| process.process).collect();
        HeldMemory {
            processes: live.len() as u64,
            live_bytes,
            resident_bytes: self.resident(&live),
            incomplete: self.partial.as_ref().map(|why| match self.known_since_ns {
                Some(_) => "the sites have what was allocated since recording began".to_owned(),
                None => format!("its sites are unknown: {why}"),
            }),
            are_sites_unknown: self.partial.is_some() && self.known_since_ns.is_none(),
            sites: self.held_sites(&of),
        }
    }

    /// Whether a process is a command of tprof that the job started without the hooks, such as the one
    /// that asks for this snapshot. The sampler sees it, and its memory isn't the job's.
    fn asks(&self, process: &Process) -> bool {
        let program = labels::program(self.file.name(process.command));
        process.memory == MemoryRecording::Off && program == "tprof"
    }

    fn live_of(&self, process: &Process) -> Reading<u64> {
        match process.memory {
            MemoryRecording::Off => Reading::missing(OFF),
            _ => match self.why_unread() {
                Some(why) => Reading::missing(&why),
                None => self.heap_at_end(process),
            },
        }
    }

    fn resident(&self, live: &[&Process]) -> Reading<u64> {
        let samples = gauges::process_samples(self.file, counter::RSS_BYTES);
        let last = |process: &&Process| {
            super::pass::last_of(&samples, process.process, "no RSS was sampled")
        };
        live.iter().map(last).fold(Reading::Is(0), Reading::plus)
    }

    /// Returns the sites with the most bytes, most first.
    fn held_sites(&self, of: &FxHashSet<ProcessIndex>) -> Vec<HeldSite> {
        if self.partial.is_some() && self.known_since_ns.is_none() {
            return Vec::new();
        }
        let unit = self.interval();
        let mut sums = vec![(0_u64, 0.0_f64); self.merged.len()];
        for (raw, at) in self.replay.sites.iter().zip(self.merged.of_raw()) {
            if of.contains(&raw.process) {
                sums[*at].0 = sums[*at].0.saturating_add(raw.live);
                sums[*at].1 += raw.variance[2];
            }
        }
        let mut held: Vec<(usize, u64, f64)> = sums
            .into_iter()
            .enumerate()
            .map(|(at, (bytes, variance))| (at, bytes, variance))
            .filter(|(_, bytes, _)| *bytes > 0)
            .collect();
        held.sort_by_key(|(at, bytes, _)| (Reverse(*bytes), *at));
        held.truncate(MOST_SITES);
        let site = |(at, value, variance): (usize, u64, f64)| HeldSite {
            live_bytes: match unit {
                // Blocks that are at least as large as the interval are all recorded, so they have
                // no error.
                Some(unit) if variance > 0.0 => {
                    Reading::Estimate { value, error: error(variance, unit as f64).round() as u64 }
                }
                _ => Reading::Is(value),
            },
            stack: self.merged.stack(at, &self.frames),
        };
        held.into_iter().map(site).collect()
    }
}

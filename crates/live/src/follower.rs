//! Follows all ranks of a run: once a second, one thread reads the new data of each file and builds
//! a snapshot.

mod build;
mod history;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tprof_facts::zero::Zero;
use tprof_trace::{RankFile, RankLabel, TailDecoder};

use crate::files::{FileEntry, RunFiles};
use crate::history::{LEAST_NS, Scale};
use crate::infos::Infos;
use crate::metric::{MOST_GAUGES, Metric};
use crate::rank::{Context, Rank, RankEvent};
use crate::snapshot::{Event, Snapshot};

/// Largest number of files of a run to follow.
const MOST_FILES: usize = 8192;
/// Number of events to keep.
const MOST_EVENTS: usize = 200;
/// Time limit of a poll. The next poll reads what is left.
const LONGEST: Duration = Duration::from_millis(700);
/// A closed file can hardly change, so it is checked only once in this many polls.
const CLOSED_POLLS: u64 = 16;

/// Follows one run.
#[derive(Debug)]
pub struct Follower<F> {
    files: F,
    decoder: Option<TailDecoder>,
    infos: Infos,
    /// Ranks in the order of the snapshot.
    ranks: Vec<Rank>,
    labels: Vec<RankFile>,
    /// What the labels were made from: file names, and the number of known headers and ranks. If it
    /// changes, the files are labelled again.
    labelled: (Vec<String>, usize),
    gauges: Vec<String>,
    scale: Scale,
    zero: Zero,
    polls: u64,
    next: usize,
    ticks: VecDeque<u64>,
    events: VecDeque<Event>,
    losses: BTreeMap<(String, String, String), u64>,
    last: Snapshot,
}

impl<F: RunFiles> Follower<F> {
    /// Creates a follower of a run that has not been read yet.
    pub fn new(files: F) -> Follower<F> {
        Follower {
            files,
            decoder: TailDecoder::new().ok(),
            infos: Infos::default(),
            ranks: Vec::new(),
            labels: Vec::new(),
            labelled: Default::default(),
            gauges: Vec::new(),
            scale: Scale::default(),
            zero: Zero::default(),
            polls: 0,
            next: 0,
            ticks: VecDeque::new(),
            events: VecDeque::new(),
            losses: BTreeMap::new(),
            last: Snapshot::default(),
        }
    }

    /// Reads the data that was written since the last poll, and returns a snapshot. One thread
    /// calls this once a second.
    ///
    /// If the directory cannot be listed now, the snapshot has the files that are already known.
    pub fn poll(&mut self) -> Snapshot {
        if let Ok(entries) = self.files.list() {
            self.infos.poll(&self.files, &entries);
            self.match_files(entries);
        }
        let unix_ns = unix_now_ns();
        // Events are stored by file name, because labelling changes the indexes of ranks.
        let rank_events = self.read(unix_ns).into_iter();
        let rank_events = rank_events.map(|(at, one)| (self.ranks[at].name.clone(), one)).collect();
        self.polls += 1;
        self.label();
        self.last = self.build_snapshot(unix_ns, rank_events);
        self.last.clone()
    }

    /// Returns the last snapshot with the last 200 events and the history of its metrics.
    pub fn with_history(&self) -> Snapshot {
        Snapshot {
            events: self.events.iter().cloned().collect(),
            history: Some(self.history()),
            ..self.last.clone()
        }
    }

    /// Whether an immediate poll would find more data that was already written.
    pub fn has_more(&self) -> bool {
        self.ranks.iter().any(|rank| rank.more)
    }

    /// Matches the ranks with the directory's entries: drops ranks without a file and adds new
    /// files. A file that was renamed is recognized by its inode.
    fn match_files(&mut self, entries: Vec<FileEntry>) {
        let mut files: BTreeMap<(u64, String), FileEntry> = BTreeMap::new();
        for entry in entries.into_iter().filter(|entry| entry.name.ends_with(".tprof")) {
            let name = if entry.inode == 0 { entry.name.clone() } else { String::new() };
            if files.len() < MOST_FILES {
                files.insert((entry.inode, name), entry);
            }
        }
        self.ranks.retain_mut(|rank| {
            let name = if rank.inode == 0 { rank.name.clone() } else { String::new() };
            match files.remove(&(rank.inode, name)) {
                Some(entry) => {
                    rank.name = entry.name;
                    true
                }
                None => false,
            }
        });
        for entry in files.into_values() {
            let directory = self.files.directory();
            self.ranks.push(Rank::new(directory, entry.name, entry.inode));
        }
    }

    /// Reads files that grew, for at most [`LONGEST`]. The next poll continues where this one
    /// stopped.
    fn read(&mut self, unix_ns: u64) -> Vec<(usize, RankEvent)> {
        let begun = Instant::now();
        let mut rank_events = Vec::new();
        let (count, first) = (self.ranks.len(), self.next);
        for at in (0..count).map(|turn| (first + turn) % count) {
            let rank = &self.ranks[at];
            let is_due = (self.polls + at as u64).is_multiple_of(CLOSED_POLLS);
            if rank.is_closed() && !rank.more && !is_due {
                continue;
            }
            let file = match self.files.open(&rank.name) {
                Ok(file) => file,
                Err(error) => {
                    self.ranks[at].error = Some(format!("it cannot be opened: {error}"));
                    continue;
                }
            };
            while self.read_part(at, &file, unix_ns, &mut rank_events) && begun.elapsed() < LONGEST
            {
            }
            if begun.elapsed() >= LONGEST {
                self.next = (at + 1) % count;
                break;
            }
        }
        rank_events
    }

    /// Reads a part of a file, and returns whether the file has more.
    fn read_part(
        &mut self,
        at: usize,
        file: &File,
        unix_ns: u64,
        rank_events: &mut Vec<(usize, RankEvent)>,
    ) -> bool {
        let gauges = &mut self.gauges;
        // If there is no memory for a decoder, the next poll tries again.
        if self.decoder.is_none() {
            self.decoder = TailDecoder::new().ok();
        }
        let Some(decoder) = &mut self.decoder else { return false };
        let mut context = Context {
            zero: self.zero,
            scale: self.scale,
            limit_unix_ns: unix_ns.saturating_add(LEAST_NS),
            decoder,
            gauge: &mut |name| place_of(gauges, name),
        };
        let rank = &mut self.ranks[at];
        let new = rank.read(file, &mut context);
        self.zero = context.zero;
        rank_events.extend(new.into_iter().map(|one| (at, one)));
        if rank_events.len() > 4 * MOST_EVENTS {
            rank_events.drain(..rank_events.len() - 2 * MOST_EVENTS);
        }
        let (more, overflow_ns) = (rank.more, rank.courses.overflow_ns());
        if let Some(overflow_ns) = overflow_ns {
            self.widen(overflow_ns);
        }
        more
    }

    /// Doubles the length of the history's stretches until they cover the run up to `until_ns`.
    fn widen(&mut self, until_ns: u64) {
        while self.scale.place(until_ns).is_none() {
            self.scale.width_ns = self.scale.width_ns.saturating_mul(2);
            self.ranks.iter_mut().for_each(|rank| rank.courses.widen());
        }
        self.ranks.iter_mut().for_each(|rank| rank.courses.settle(self.scale));
    }

    /// Labels the files, and sorts the ranks by their labels.
    fn label(&mut self) {
        let names: Vec<String> = self.ranks.iter().map(|rank| rank.name.clone()).collect();
        let headers = self.ranks.iter().filter(|rank| rank.header().is_some()).count();
        let known: usize = self.infos.iter().map(|info| info.ranks.len() + 1).sum();
        if self.labelled == (names.clone(), known + headers) {
            return;
        }
        let mut labels: Vec<RankFile> = self.ranks.iter().map(label_of).collect();
        let infos: Vec<_> = self.infos.iter().cloned().collect();
        RankFile::settle(&mut labels, &infos);
        let places: BTreeMap<PathBuf, usize> =
            labels.iter().zip(0..).map(|(file, at)| (file.path.clone(), at)).collect();
        self.ranks.sort_by_key(|rank| places.get(Path::new(&rank.name)).copied());
        self.labels = labels;
        let names = self.ranks.iter().map(|rank| rank.name.clone()).collect();
        self.labelled = (names, known + headers);
    }
}

/// Returns the index of a gauge among the run's metrics; `None` if there are too many.
fn place_of(gauges: &mut Vec<String>, name: &str) -> Option<usize> {
    let at = gauges.iter().position(|known| known == name);
    let at = at.or_else(|| {
        (gauges.len() < MOST_GAUGES).then(|| {
            gauges.push(name.to_owned());
            gauges.len() - 1
        })
    });
    Some(Metric::ALL.len() + at?)
}

fn label_of(rank: &Rank) -> RankFile {
    let label = RankLabel::of_name(&rank.name).unwrap_or_else(|| {
        let header = rank.header().cloned().unwrap_or_default();
        RankLabel::of_header(&rank.name, &header)
    });
    RankFile { path: PathBuf::from(&rank.name), label, rank: None, world_size: None }
}

fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

//! Makes states of ranks from their dumps.

use super::dump::{Dump, Entry, Group, Peers};
use super::files::RankDump;
use std::collections::{BTreeMap, BTreeSet};
use tprof_facts::units;
use tprof_hang::{
    Answer, Backend, DumpFile, GroupState, HostState, NotAnswered, Operation, RankState,
    ThreadState, rank_numbers,
};

/// Operations that are over of which a rank's state keeps this many of each group.
const KEPT: usize = 64;
/// Description of the group of all ranks.
const DEFAULT: &str = "default_pg";
/// An operation that is open for less is no reason to call a rank stuck, ns.
const SHORT_NS: u64 = 1_000_000_000;

/// Makes the states of all ranks whose dumps could be read, and judges them.
pub(super) fn answer(dumps: Vec<RankDump>) -> Answer {
    let mut read: BTreeMap<u32, (&RankDump, &Dump)> = BTreeMap::new();
    let mut not_answered = Vec::new();
    for of in &dumps {
        match &of.dump {
            Ok(dump) => {
                read.insert(of.rank, (of, dump));
            }
            Err(why) => {
                let why = format!("its dump `{}` cannot be read: {why}", of.file);
                not_answered.push(NotAnswered { host: String::new(), ranks: vec![of.rank], why });
            }
        }
    }
    let groups: BTreeSet<&Group> = read.values().flat_map(|(_, dump)| &dump.groups).collect();
    let named: BTreeSet<u32> = dumps.iter().map(|of| of.rank).collect();
    let mut all: BTreeSet<u32> = groups.iter().flat_map(|group| &group.ranks).copied().collect();
    let missing: Vec<u32> = all.difference(&named).copied().collect();
    all.extend(named);
    let all: Vec<u32> = all.into_iter().collect();
    if !missing.is_empty() {
        let why =
            "it may have ended or hung before it could write one, or have written it elsewhere";
        not_answered.push(NotAnswered { host: String::new(), ranks: missing, why: why.to_owned() });
    }
    let mut states = States { read: &read, ranks: BTreeMap::new(), notes: vec![about(&read)] };
    for sequence in sequences(&read, &groups, &all).values() {
        states.add(sequence);
    }
    states.add_loss();
    let last_ns = read.values().flat_map(|(_, dump)| &dump.entries).map(|e| e.last_ns).max();
    let written_ns = read.values().filter_map(|(of, _)| of.time_unix_ns).max();
    // A file is as old as its dump, unless it was copied. One moment for all keeps their order. Files
    // that are older than what they hold have wrong times.
    let moment_ns = last_ns.max(written_ns).unwrap_or(0);
    let ranks = states.ranks;
    let ranks = read.iter().map(|(rank, (of, dump))| {
        let made = ranks.get(rank).map(Vec::as_slice).unwrap_or_default();
        state(of, dump, made, moment_ns)
    });
    let host = HostState { ranks: ranks.collect(), ..HostState::default() };
    Answer { notes: states.notes, ..Answer::new(vec![host], not_answered) }
}

/// Says what the dumps are.
fn about(read: &BTreeMap<u32, (&RankDump, &Dump)>) -> String {
    let ranks: Vec<u32> = read.keys().copied().collect();
    let versions: BTreeSet<&str> = read.values().map(|(_, dump)| dump.version.as_str()).collect();
    let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
    let times = || read.values().filter_map(|(of, _)| of.time_unix_ns).map(units::utc);
    let when = match (times().min(), times().max()) {
        (Some(first), Some(last)) if first == last => format!(", files of {first}"),
        (Some(first), Some(last)) => format!(", files of {first} to {last}"),
        _ => String::new(),
    };
    let (dumps, of) = match ranks.len() {
        1 => ("a dump", "rank"),
        _ => ("dumps", "ranks"),
    };
    let ranks = rank_numbers(&ranks);
    format!("{dumps} of PyTorch's Flight Recorder, {of} {ranks} (format {versions}){when}")
}

/// Operations that ranks number alike: the collectives of a group, or what one rank sends another.
#[derive(Default)]
struct Sequence<'d> {
    label: String,
    /// Ranks that take part; empty if unknown.
    members: Vec<u32>,
    by_rank: BTreeMap<u32, Vec<(u64, &'d Entry)>>,
    /// Whether these are sends and receives, which are counted.
    is_counted: bool,
}

type Key<'d> = (&'d str, &'d [u32], Option<(Option<u32>, u32)>);

fn sequences<'d>(
    read: &BTreeMap<u32, (&RankDump, &'d Dump)>,
    groups: &BTreeSet<&'d Group>,
    all: &'d [u32],
) -> BTreeMap<Key<'d>, Sequence<'d>> {
    let mut sequences: BTreeMap<Key<'d>, Sequence<'d>> = BTreeMap::new();
    let label = |entry: &Entry, ranks: &[u32]| {
        let is_one = groups.iter().filter(|of| of.name == entry.group).count() < 2;
        let description = match entry.description.as_str() {
            "" | "undefined" => String::new(),
            text => format!(" ({text})"),
        };
        // Groups that were split off may share a name.
        let ranks =
            if is_one { String::new() } else { format!(" of ranks {}", rank_numbers(ranks)) };
        format!("{}{description}{ranks}", entry.group)
    };
    for (rank, (_, dump)) in read {
        for entry in &dump.entries {
            let own = dump.groups.iter().find(|group| group.name == entry.group);
            let other =
                || groups.iter().find(|of| of.name == entry.group && of.ranks.contains(rank));
            let group = own.or_else(|| other().copied());
            let ranks = match group {
                Some(group) => group.ranks.as_slice(),
                None if entry.description == DEFAULT => all,
                None => &[],
            };
            let global = |peer: u32| ranks.get(peer as usize).copied().unwrap_or(peer);
            let peers = entry.peers.map(|Peers { from, to }| (from.map(global), global(to)));
            let sequence = sequences.entry((&entry.group, ranks, peers)).or_default();
            if sequence.by_rank.is_empty() {
                let name = label(entry, ranks);
                (sequence.label, sequence.members) = match peers {
                    None => (name, ranks.to_vec()),
                    Some((None, to)) => (format!("{name}, any rank to rank {to}"), vec![to]),
                    Some((Some(from), to)) => {
                        (format!("{name}, rank {from} to rank {to}"), vec![from, to])
                    }
                };
                sequence.is_counted = peers.is_some();
            }
            let made = sequence.by_rank.entry(*rank).or_default();
            let number = if peers.is_some() { made.len() as u64 + 1 } else { entry.number };
            made.push((number, entry));
        }
    }
    sequences
}

/// An operation of a rank, and whether it is over.
type Made<'d> = (&'d Entry, bool);

struct States<'d> {
    read: &'d BTreeMap<u32, (&'d RankDump, &'d Dump)>,
    ranks: BTreeMap<u32, Vec<(GroupState, Vec<Made<'d>>)>>,
    notes: Vec<String>,
}

impl<'d> States<'d> {
    fn is_cut(&self, rank: u32) -> bool {
        self.read.get(&rank).is_some_and(|(_, dump)| dump.is_cut)
    }

    fn add(&mut self, sequence: &Sequence<'d>) {
        let ranks: BTreeSet<u32> =
            sequence.members.iter().chain(sequence.by_rank.keys()).copied().collect();
        let (ranks, without_dump): (Vec<u32>, Vec<u32>) =
            ranks.into_iter().partition(|rank| self.read.contains_key(rank));
        // If older entries are missing, what is left of both sides can't be counted alike. Those that
        // are over were received.
        let is_recounted = sequence.is_counted && ranks.iter().any(|rank| self.is_cut(*rank));
        let label = match is_recounted {
            true => format!("{}, counted from the first that is not over", sequence.label),
            false => sequence.label.clone(),
        };
        let none = Vec::new();
        let made = |rank: &u32| sequence.by_rank.get(rank).unwrap_or(&none);
        let (unknown, known): (Vec<u32>, Vec<u32>) =
            ranks.into_iter().partition(|rank| made(rank).is_empty() && self.is_cut(*rank));
        if !unknown.is_empty() {
            self.notes.push(format!(
                "how many operations of group {label} were entered by rank {} is unknown: older \
                 entries are missing",
                rank_numbers(&unknown)
            ));
        }
        let last = |rank: &u32| made(rank).iter().map(|(number, _)| *number).max().unwrap_or(0);
        let least = known.iter().map(last).min().unwrap_or(0);
        let mut is_failed = false;
        for rank in known {
            let mut operations: Vec<(u64, Made<'d>)> = Vec::new();
            for (number, entry) in made(&rank) {
                let has_failed = entry.is_over && !entry.is_complete;
                let has_failed = has_failed && *number > least && needs_all(&entry.name);
                is_failed |= has_failed;
                operations.push((*number, (entry, entry.is_over && !has_failed)));
            }
            if is_recounted {
                operations.retain(|(_, (_, is_over))| !is_over);
                (1..).zip(&mut operations).for_each(|(count, (number, _))| *number = count);
            }
            let over = operations.iter().filter(|(_, (_, is_over))| *is_over).count();
            let older = over.saturating_sub(KEPT);
            let group = GroupState {
                backend: Backend::Torch,
                id: Some(label.clone()),
                size: Some(sequence.members.len() as u32).filter(|size| *size > 1),
                entered: operations.iter().map(|(n, _)| n.saturating_add(1)).max().unwrap_or(0),
                without_dump: without_dump.clone(),
                ..GroupState::default()
            };
            let mut at = 0..;
            operations
                .retain(|(_, (_, is_over))| !is_over || at.next().is_some_and(|n| n >= older));
            let recent =
                operations.iter().map(|(number, made)| operation(*number, *made)).collect();
            let made = operations.into_iter().map(|(_, made)| made).collect();
            self.ranks.entry(rank).or_default().push((GroupState { recent, ..group }, made));
        }
        if is_failed {
            self.notes.push(format!(
                "operations of group {label} ended in some ranks although others had not entered \
                 them: they timed out or failed, and count as open"
            ));
        }
    }

    /// Notes what the dumps as a whole lack.
    fn add_loss(&mut self) {
        if self.read.values().any(|(_, dump)| dump.is_of_gloo) {
            self.notes.push("dumps of gloo have no sends and receives".to_owned());
        }
        let cut: Vec<u32> = self.read.keys().copied().filter(|rank| self.is_cut(*rank)).collect();
        if !cut.is_empty() {
            self.notes.push(format!(
                "older operations are missing in the dumps of ranks {}; TORCH_FR_BUFFER_SIZE sets how \
                 many are kept",
                rank_numbers(&cut)
            ));
        }
    }
}

/// Whether an operation is over only once every rank has entered it.
fn needs_all(name: &str) -> bool {
    ["all", "_all", "reduce_scatter", "_reduce_scatter", "barrier"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Returns an operation whose age isn't known yet.
fn operation(number: u64, (entry, is_over): Made<'_>) -> Operation {
    // Sends and receives are the same operation of two ranks.
    let name = if entry.peers.is_some() { "send/recv" } else { &entry.name };
    Operation {
        number,
        name: name.to_owned(),
        is_over,
        tensors: entry.tensors.clone(),
        has_begun: entry.has_begun,
        place: entry.place.clone(),
        ..Operation::default()
    }
}

fn state(
    of: &RankDump,
    dump: &Dump,
    made: &[(GroupState, Vec<Made<'_>>)],
    moment_ns: u64,
) -> RankState {
    let own_ns = dump.entries.iter().map(|entry| entry.last_ns).max().unwrap_or(0);
    let written_ns = of.time_unix_ns.filter(|written| *written >= own_ns);
    let is_short = |entry: &Entry| {
        written_ns.is_some_and(|written| written.saturating_sub(entry.created_ns) < SHORT_NS)
    };
    let age = |entry: &Entry| moment_ns.saturating_sub(entry.created_ns);
    let all = || made.iter().flat_map(|(_, made)| made);
    let open = || all().filter(|(_, is_over)| !is_over).map(|(entry, _)| *entry);
    let last = || all().map(|(entry, _)| *entry).max_by_key(|entry| entry.created_ns);
    let shown = open().min_by_key(|entry| entry.created_ns).or_else(last);
    let frames = shown.map(|entry| match entry.frames.is_empty() {
        true => entry.place.iter().cloned().collect(),
        false => entry.frames.clone(),
    });
    let frames = frames.filter(|frames: &Vec<_>| !frames.is_empty());
    let groups = made.iter().map(|(group, made)| {
        let mut group = group.clone();
        for (operation, (entry, _)) in group.recent.iter_mut().zip(made) {
            operation.age_ns = age(entry);
        }
        group
    });
    RankState {
        rank: of.rank,
        goes_on: open().all(is_short),
        groups: groups.collect(),
        threads: frames
            .map(|frames| ThreadState { frames, ..ThreadState::default() })
            .into_iter()
            .collect(),
        dump: Some(DumpFile { file: of.file.clone(), time_unix_ns: of.time_unix_ns }),
        ..RankState::default()
    }
}

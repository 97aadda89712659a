//! Reads the dump of one rank.

use super::node::Node;
use super::tensors;
use crate::pickle;
use std::collections::HashMap;
use tprof_hang::{FrameState, Layer, ThreadState};

/// Longest name that is kept, in characters.
const MAX_NAME: usize = 512;
/// Most frames of a stack that are kept.
const MAX_FRAMES: usize = 128;
/// Most entries of a dump. PyTorch keeps 2,000 unless it is told otherwise.
const MAX_ENTRIES: usize = 1 << 18;
/// Most groups of a dump, and most ranks of all of them.
const MAX_GROUPS: usize = 1 << 12;
const MAX_RANKS: usize = 1 << 22;
/// Most sends and receives in a batch.
const MAX_BATCH: usize = 1 << 12;
/// The format that is read: 2.0 has the numbers of operations, and is of PyTorch 2.4.
const MAJOR: &str = "2";

/// The dump of one rank.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub version: String,
    pub groups: Vec<Group>,
    pub entries: Vec<Entry>,
    /// Whether older entries are missing: the buffer is a ring, and a dump may have only entries
    /// that are not over.
    pub is_cut: bool,
    /// Whether it is of gloo, which records no sends and receives.
    pub is_of_gloo: bool,
}

/// A process group, as a rank knows it. gloo writes all of its groups without a name, the later over
/// the earlier.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Group {
    pub name: String,
    /// Ranks in the job, by their rank in the group; empty if unknown.
    pub ranks: Vec<u32>,
}

/// An operation that a rank called.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// Name of the process group.
    pub group: String,
    pub description: String,
    /// Number of the collective in its group. A send or receive has that of the collective before it.
    pub number: u64,
    pub p2p_number: u64,
    /// Its name without backend and ranks: `all_reduce`.
    pub name: String,
    pub peers: Option<Peers>,
    pub tensors: Option<String>,
    pub created_ns: u64,
    /// The last time that the entry has.
    pub last_ns: u64,
    pub is_over: bool,
    /// Whether it is over because it was seen to complete. gloo tells only that it is over.
    pub is_complete: bool,
    pub has_begun: Option<bool>,
    pub place: Option<FrameState>,
    /// The stack of its call, innermost first. Only the first entry that isn't over and the last one
    /// keep it.
    pub frames: Vec<FrameState>,
}

/// Sender and receiver of an operation between two, as ranks of their group. A receive from any rank
/// has no sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peers {
    pub from: Option<u32>,
    pub to: u32,
}

/// Reads a dump: a pickle or JSON.
///
/// # Errors
///
/// Says why the bytes are not a dump.
pub(super) fn read(bytes: &[u8]) -> Result<Dump, String> {
    if pickle::is_pickle(bytes) {
        let (arena, root) =
            pickle::read(bytes).map_err(|error| format!("{error}, at byte {}", error.offset))?;
        return of_node(Node::Pickle(&arena, root));
    }
    let value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    of_node(Node::Json(&value))
}

fn of_node(root: Node<'_>) -> Result<Dump, String> {
    let config = root.get("pg_config").ok_or("it has no `pg_config`")?;
    let version = root.get("version").and_then(short_text).ok_or("it has no `version`")?;
    if version.split('.').next() != Some(MAJOR) {
        return Err(format!("it has format {version}, and tprof reads format {MAJOR}"));
    }
    let mut ranks_left = MAX_RANKS;
    let groups =
        config.values().take(MAX_GROUPS).filter_map(|of| group(of, &mut ranks_left)).collect();
    let mut dump = Dump { version, groups, ..Dump::default() };
    // JSON without entries has no key `entries`.
    let mut entries = root.get("entries").into_iter().flat_map(Node::items).peekable();
    dump.is_cut = match entries.peek().and_then(|entry| entry.get("record_id")?.number()) {
        Some(first) => first > 0,
        None => root.get("pg_status").is_some_and(|status| status.values().next().is_some()),
    };
    let (mut stacks, mut starts, mut last_id) = (Stacks::default(), false, None);
    let mut last_of_group: HashMap<String, usize> = HashMap::new();
    for node in entries {
        if dump.entries.len() >= MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} entries"));
        }
        let id = node.get("record_id").and_then(Node::number);
        // A dump of operations that are not over has gaps.
        dump.is_cut |= last_id.zip(id).is_some_and(|(last, id)| id != u64::saturating_add(last, 1));
        last_id = id;
        let read = entry(node).ok_or("an entry has no group, no number or no name")?;
        starts |= read.tells_start;
        dump.is_of_gloo |= read.is_of_gloo;
        if read.is_p2p && read.entry.peers.is_none() {
            close_batch(&mut dump.entries, &read.entry);
            continue;
        }
        let last = last_of_group.get(&read.entry.group).copied();
        let is_over = read.entry.is_over;
        let at = match last.and_then(|at| Some((at, dump.entries.get_mut(at)?))) {
            Some((at, first)) if first.is_same_batch(&read.entry) => {
                first.join(read.entry);
                at
            }
            _ => {
                last_of_group.insert(read.entry.group.clone(), dump.entries.len());
                dump.entries.push(read.entry);
                dump.entries.len() - 1
            }
        };
        let place = stacks.add(node, at, is_over);
        if let Some(entry) = dump.entries.get_mut(at) {
            entry.place = place;
        }
    }
    for (at, frames) in [stacks.last, stacks.open].into_iter().flatten() {
        if let Some(entry) = dump.entries.get_mut(at) {
            entry.frames = frames;
        }
    }
    if !starts {
        // Without timing, PyTorch doesn't see that an operation begins.
        dump.entries.iter_mut().for_each(|entry| entry.has_begun = None);
    }
    Ok(dump)
}

/// Stacks of the first entry that isn't over and of the last entry, with the entries' places.
#[derive(Default)]
struct Stacks {
    open: Option<(usize, Vec<FrameState>)>,
    last: Option<(usize, Vec<FrameState>)>,
}

impl Stacks {
    /// Adds the stack of the entry at a place, and returns the frame that names its line.
    fn add(&mut self, node: Node<'_>, at: usize, is_over: bool) -> Option<FrameState> {
        let frames = node.get("frames")?.items().take(MAX_FRAMES).filter_map(frame).collect();
        let thread = ThreadState { frames, ..ThreadState::default() };
        let place = thread.place().cloned();
        if !is_over && self.open.is_none() {
            self.open = Some((at, thread.frames));
        } else {
            self.last = Some((at, thread.frames));
        }
        place
    }
}

/// The last entry of a batch of sends and receives has their state, which they lack.
fn close_batch(entries: &mut [Entry], end: &Entry) {
    for entry in entries.iter_mut().rev().take(MAX_BATCH) {
        let is_part = entry.peers.is_some() && entry.p2p_number == end.p2p_number;
        if is_part && entry.group == end.group {
            (entry.is_over, entry.is_complete) = (end.is_over, end.is_complete);
            entry.has_begun = end.has_begun;
        }
    }
}

impl Entry {
    /// Whether the entry of the same group that follows is a collective of the same batch.
    fn is_same_batch(&self, next: &Entry) -> bool {
        self.peers.is_none() && next.peers.is_none() && self.number == next.number
    }

    /// Adds the next entry of a batch. The last one stands for the whole batch.
    fn join(&mut self, next: Entry) {
        let tensors = tensors::joined(self.tensors.take(), next.tensors.as_deref());
        *self = Entry { tensors, created_ns: self.created_ns, ..next };
    }
}

fn short_text(node: Node<'_>) -> Option<String> {
    Some(node.text()?.chars().take(MAX_NAME).collect())
}

fn group(node: Node<'_>, ranks_left: &mut usize) -> Option<Group> {
    let name = node.get("name").and_then(short_text)?;
    let list = node.get("ranks")?;
    let ranks: Vec<u32> = match list.text() {
        // PyTorch writes the list as a text.
        Some(text) => {
            let numbers = text.split(|c: char| !c.is_ascii_digit());
            numbers.filter_map(|number| number.parse().ok()).take(*ranks_left).collect()
        }
        None => {
            list.items().take(*ranks_left).filter_map(|r| r.number()?.try_into().ok()).collect()
        }
    };
    *ranks_left -= ranks.len();
    Some(Group { name, ranks })
}

fn frame(node: Node<'_>) -> Option<FrameState> {
    let function = node.get("name").and_then(short_text)?;
    let file = node.get("filename").and_then(short_text).unwrap_or_default();
    let line = node.get("line").and_then(Node::number).unwrap_or(0);
    // With TORCH_NCCL_TRACE_CPP_STACK, functions of C++ are among them.
    let is_python = file.ends_with(".py") || file.starts_with('<');
    let layer = if is_python { Layer::Python } else { Layer::Native };
    let line = line.try_into().unwrap_or(0);
    Some(FrameState { function, file, line, layer, ..FrameState::default() })
}

/// An entry, and what it tells besides.
struct ReadEntry {
    entry: Entry,
    is_p2p: bool,
    /// Whether it tells when an operation begins. The entry of a library that only tells its end has
    /// the same time for both.
    tells_start: bool,
    is_of_gloo: bool,
}

fn entry(node: Node<'_>) -> Option<ReadEntry> {
    let text = |key| node.get(key).and_then(short_text);
    let number = |key| node.get(key).and_then(Node::number);
    let title = text("profiling_name")?;
    let (backend, name) = title.rsplit_once(':').unwrap_or(("", &title));
    let (name, peers) = match name.split_once(' ') {
        Some((name, peers)) => (name, self::peers(peers)),
        None => (name, None),
    };
    let state = text("state").unwrap_or_default();
    let started_ns = number("time_discovered_started_ns").filter(|ns| *ns > 0);
    let completed_ns = number("time_discovered_completed_ns").filter(|ns| *ns > 0);
    let created_ns = number("time_created_ns").unwrap_or(0);
    let is_complete = state == "completed";
    // An entry is retired when its library has let it go. NCCL's watchdog does so if it has timed
    // out; other libraries, which don't tell that an operation completes, when it is over.
    let is_retired = node.get("retired").is_some_and(Node::is_true);
    let is_over = is_complete || is_retired && !backend.contains("ccl");
    let mut group = node.get("process_group")?.items().filter_map(short_text);
    let name_of_group = match group.next()? {
        // Groups that PyTorch makes for its own checks have no name, but differ by this number.
        unnamed if unnamed.is_empty() => format!("without a name, {}", number("pg_id")?),
        name => name,
    };
    let entry = Entry {
        group: name_of_group,
        description: group.next().unwrap_or_default(),
        number: number("collective_seq_id")?,
        p2p_number: number("p2p_seq_id").unwrap_or(0),
        name: name.to_owned(),
        peers,
        tensors: tensors::alike(name, node),
        created_ns,
        last_ns: [Some(created_ns), started_ns, completed_ns].into_iter().flatten().max()?,
        is_over,
        is_complete,
        has_begun: Some(is_complete || state == "started"),
        ..Entry::default()
    };
    let is_p2p = node.get("is_p2p").is_some_and(Node::is_true);
    let tells_start = started_ns.is_some() && started_ns != completed_ns;
    Some(ReadEntry { entry, is_p2p, tells_start, is_of_gloo: backend == "gloo" })
}

/// Reads the ranks of `send 0->1` and `recv 1<-0`.
fn peers(text: &str) -> Option<Peers> {
    let parsed = |from: &str, to: &str| {
        Some(Peers { from: from.trim().parse().ok(), to: to.trim().parse().ok()? })
    };
    match (text.split_once("->"), text.split_once("<-")) {
        (Some((from, to)), _) => parsed(from, to),
        (None, Some((to, from))) => parsed(from, to),
        (None, None) => None,
    }
}

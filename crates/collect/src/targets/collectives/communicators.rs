//! Combines what hooks and NCCL's profiler plugin record about the communicators of a process.
//!
//! The plugin's number of a communicator is the same in all ranks, whichever call created it. The
//! hooks derive a number from the call's arguments, which isn't always the same in all ranks. If
//! both report a communicator, the plugin's number is used. Therefore a hook's communicator is
//! written only when an operation refers to it.

use super::log::LoggedCommunicator;
use std::collections::{HashMap, HashSet};
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::calls::Number;
use tprof_wire::hash::spread;
use tprof_wire::nccl;

/// A communicator that a hook recorded.
#[derive(Clone, Copy, Debug)]
pub struct LiveCommunicator {
    /// Id of the communicator.
    pub id: u64,
    address: u64,
    /// Number of ranks.
    pub size: Option<u32>,
    rank: Option<u32>,
    /// Number of operations that hooks have recorded on it so far.
    pub operations: u64,
    /// Number of times that it was split so far.
    splits: u64,
    /// The plugin's number of it and the plugin's context, once the plugin has reported an
    /// operation on it.
    pub plugins: Option<(u64, u64)>,
}

/// A hook's record of a call that created or destroyed a communicator.
#[derive(Clone, Copy, Debug)]
pub struct JoinCall {
    /// The function's number.
    pub number: u32,
    /// Address of the communicator; 0 if the call created none.
    pub address: u64,
    /// An identity that is the same in all ranks, or 0.
    pub identity: u64,
    /// Number of ranks in it, or 0.
    pub size: u32,
    /// This rank's number in it.
    pub rank: u32,
    /// Address of the communicator that it was created from, if any.
    pub parent: u64,
    /// For a split, its colour and key; for a shrink, the number of ranks that were left out.
    pub detail: u64,
}

/// Index of a communicator among those that hooks recorded in its process.
pub type CommunicatorIndex = usize;

/// The communicators of a process.
#[derive(Debug, Default)]
pub struct Communicators {
    process: ProcessIndex,
    /// All communicators that hooks recorded. They stay here after they were destroyed, because a
    /// record that refers to one may be joined later.
    made: Vec<LiveCommunicator>,
    /// The communicators that exist now, by address.
    live: HashMap<u64, CommunicatorIndex>,
    contexts: HashMap<u64, nccl::Context>,
    written: HashSet<u64>,
}

impl Communicators {
    /// Returns the state of a process that has no communicators yet.
    pub fn new(process: ProcessIndex) -> Communicators {
        Communicators { process, ..Communicators::default() }
    }

    /// Applies a hook's record: adds a communicator, or removes one that was destroyed.
    pub fn joined(&mut self, call: JoinCall) {
        let number = call.number;
        let leaves = [Number::ncclCommDestroy as u32, Number::ncclCommAbort as u32];
        if leaves.contains(&number) {
            self.live.remove(&call.address);
            return;
        }
        if call.address == 0 {
            return;
        }
        let parent = self.live.get(&call.parent).and_then(|nth| self.made.get_mut(*nth));
        let of = parent.as_ref().map_or(call.parent, |live| live.id);
        let (id, size, rank) = if number == Number::ncclCommSplit as u32 {
            // All ranks of a communicator split it in the same order, and ranks that passed the
            // same colour share the new communicator. So parent, count and colour make a number
            // that its ranks agree on. Its size is unknown, because each rank sees only its own
            // colour.
            let nth = parent.map_or(0, |live| {
                live.splits += 1;
                live.splits
            });
            (of ^ spread(call.detail & 0xffff_ffff | nth << 32), None, None)
        } else if number == Number::ncclCommShrink as u32 {
            let left = parent.and_then(|live| live.size?.checked_sub(call.detail as u32));
            (of ^ spread(call.identity), left, None)
        } else if number == Number::ncclCommGrow as u32 {
            // A rank of the old communicator passes neither an id nor its rank as an argument.
            let rank = (call.parent == 0).then_some(call.rank);
            let id = if call.identity == 0 { call.address } else { call.identity };
            (id, Some(call.size), rank)
        } else {
            (call.identity, Some(call.size), Some(call.rank))
        };
        let address = call.address;
        let live =
            LiveCommunicator { id, address, size, rank, operations: 0, splits: 0, plugins: None };
        self.live.insert(call.address, self.made.len());
        self.made.push(live);
    }

    /// Returns the communicator that exists at an address now.
    pub fn at(&self, address: u64) -> Option<CommunicatorIndex> {
        self.live.get(&address).copied()
    }

    /// Returns the number and the size of a communicator that exists now.
    pub fn identity(&self, nth: CommunicatorIndex) -> Option<(u64, Option<u32>)> {
        let live = self.made.get(nth).filter(|_| self.live.values().any(|of| *of == nth))?;
        Some((live.plugins.map_or(live.id, |(id, _)| id), live.size))
    }

    /// Returns a communicator that a hook recorded.
    pub fn of_hook(&mut self, nth: CommunicatorIndex) -> Option<&mut LiveCommunicator> {
        self.made.get_mut(nth)
    }

    /// Adds the context that NCCL created when it initialised the plugin for a communicator.
    pub fn context(&mut self, context: nccl::Context) {
        self.contexts.insert(context.context, context);
    }

    /// Whether NCCL has initialised the plugin for any communicator.
    pub fn has_plugin(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Returns number and size of the communicator of a plugin's context. `hash` is the number if
    /// the operation's record contains it, else 0.
    pub fn of_context(&self, context: u64, hash: u64) -> (Option<u64>, Option<u32>) {
        let known = self.contexts.get(&context);
        let id = if hash != 0 { hash } else { known.map_or(0, |known| known.hash) };
        let size = known.filter(|known| known.ranks > 0).map(|known| known.ranks);
        ((id != 0).then_some(id), size)
    }

    /// Notes that hook and plugin have reported the same operation. Stores the plugin's number and
    /// context in the hook's communicator, and returns that.
    pub fn is_plugins(
        &mut self,
        nth: CommunicatorIndex,
        id: Option<u64>,
        context: u64,
    ) -> Option<LiveCommunicator> {
        let live = self.made.get_mut(nth)?;
        live.plugins = id.map(|id| (id, context)).or(live.plugins);
        Some(*live)
    }

    /// Writes the communicator of an operation that only a hook reported.
    pub fn use_hooks(&mut self, id: u64, size: Option<u32>, writer: &mut TraceWriter) {
        let rank = self.made.iter().find(|live| live.id == id).and_then(|live| live.rank);
        self.write(id, size, rank, "", writer);
    }

    /// Writes the communicator of an operation that the plugin reported, with NCCL's name for it.
    /// Before version 5 the context may lack the size and the rank; then the arguments are used.
    pub fn use_plugins(
        &mut self,
        (id, context): (u64, u64),
        size: Option<u32>,
        rank: u32,
        name: &str,
        writer: &mut TraceWriter,
    ) {
        let known = self.contexts.get(&context).filter(|known| known.ranks > 0);
        let (size, rank) = known.map_or((size, rank), |known| (Some(known.ranks), known.rank));
        self.write(id, size, Some(rank), name, writer);
    }

    /// Returns the id of the name of a context's communicator; 0 if there is none.
    pub fn name_of(&self, context: u64) -> u32 {
        self.contexts.get(&context).map_or(0, |known| known.name)
    }

    fn write(
        &mut self,
        id: u64,
        size: Option<u32>,
        rank: Option<u32>,
        name: &str,
        writer: &mut TraceWriter,
    ) {
        if self.written.insert(id) {
            let (name, backend) = (writer.name(name), writer.name("nccl"));
            let process = self.process;
            let communicator = id;
            let row = Communicator {
                process,
                communicator,
                name,
                backend,
                size,
                rank,
                ..Communicator::default()
            };
            writer.communicator(&row);
        }
    }

    /// Returns the number of a communicator in NCCL's log. If neither the plugin nor a hook knows the
    /// communicator, it is written with the log's own number; `None` if the log has none.
    pub fn of_log(&mut self, logged: &LoggedCommunicator, writer: &mut TraceWriter) -> Option<u64> {
        let is_same = |context: &&nccl::Context| context.hash == logged.hash;
        let context = self.contexts.values().find(is_same).filter(|_| logged.hash != 0);
        let mut at_address = self.made.iter().filter(|live| live.address == logged.address);
        let made = at_address.nth(logged.earlier);
        let made = made.map(|live| live.plugins.map_or(live.id, |(id, _)| id));
        let known = context.map(|context| context.hash).or(made);
        if known.is_none() && logged.hash != 0 {
            let (size, rank) = (Some(logged.ranks), Some(logged.rank));
            self.write(logged.hash, size, rank, "", writer);
        }
        known.or((logged.hash != 0).then_some(logged.hash))
    }

    /// Writes the communicators that no operation referred to, once the process has ended. They
    /// come from the plugin's contexts, or from the hooks' records if there are no contexts.
    pub fn finish<'t>(&mut self, text: impl Fn(u32) -> &'t str, writer: &mut TraceWriter) {
        let sized = |context: &&nccl::Context| context.hash != 0 && context.ranks > 0;
        let contexts: Vec<nccl::Context> = self.contexts.values().filter(sized).copied().collect();
        for known in &contexts {
            self.write(known.hash, Some(known.ranks), Some(known.rank), text(known.name), writer);
        }
        if !contexts.is_empty() {
            return;
        }
        let unused = self.made.iter().filter(|live| live.plugins.is_none());
        let unused: Vec<LiveCommunicator> = unused.copied().collect();
        for live in unused {
            self.write(live.id, live.size, live.rank, "", writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: Number, address: u64) -> JoinCall {
        let number = number as u32;
        JoinCall { number, address, identity: 77, size: 8, rank: 3, parent: 0, detail: 0 }
    }

    fn live(all: &mut Communicators, address: u64) -> LiveCommunicator {
        *all.of_hook(all.at(address).unwrap()).unwrap()
    }

    fn id(all: &mut Communicators, address: u64) -> u64 {
        live(all, address).id
    }

    fn size(all: &mut Communicators, address: u64) -> Option<u32> {
        live(all, address).size
    }

    #[test]
    fn two_splits_of_one_colour_are_two_communicators() {
        let mut all = Communicators::new(0);
        all.joined(call(Number::ncclCommInitRank, 0x10));
        for address in [0x20, 0x30] {
            all.joined(JoinCall {
                parent: 0x10,
                detail: 1,
                ..call(Number::ncclCommSplit, address)
            });
        }
        let ids = [0x10, 0x20, 0x30].map(|address| id(&mut all, address));
        assert!(ids[0] == 77 && ids[1] != ids[0] && ids[1] != ids[2] && ids[2] != ids[0]);
        assert_eq!(size(&mut all, 0x20), None, "a split's arguments don't tell its size");
    }

    #[test]
    fn a_communicator_shrinks_by_the_ranks_that_are_left_out() {
        let mut all = Communicators::new(0);
        all.joined(call(Number::ncclCommInitRankScalable, 0x10));
        all.joined(JoinCall { parent: 0x10, detail: 2, ..call(Number::ncclCommShrink, 0x20) });
        all.joined(JoinCall { parent: 0x20, ..call(Number::ncclCommGrow, 0x30) });
        assert_eq!(size(&mut all, 0x20), Some(6));
        assert_eq!((id(&mut all, 0x30), size(&mut all, 0x30)), (77, Some(8)));
        assert_eq!(live(&mut all, 0x30).rank, None);
        all.joined(call(Number::ncclCommInitRank, 0));
        assert!(all.at(0).is_none());
    }
}

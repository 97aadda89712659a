//! Communicators, as hooks and NCCL's profiler plugin record them.
//!
//! The plugin gives a communicator the same number in all ranks, whichever call made it; the hooks
//! only know the arguments. Where both report one, the plugin's number counts: a hook's
//! communicator is written only once an operation refers to it.

use std::collections::{HashMap, HashSet};
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_wire::calls::Number;
use tprof_wire::hash::spread;
use tprof_wire::nccl;

/// A communicator by its address, from the hooks.
#[derive(Clone, Copy, Debug)]
pub struct LiveCommunicator {
    /// Id of the communicator.
    pub id: u64,
    /// Number of ranks.
    pub size: Option<u32>,
    rank: Option<u32>,
    /// Number of operations on it so far.
    pub operations: u64,
    /// Number of splits of it so far.
    splits: u64,
    /// The plugin's number for it, and its context.
    pub plugins: Option<(u64, u64)>,
}

/// A hook's record of a call that makes or ends communicators.
#[derive(Clone, Copy, Debug)]
pub struct JoinCall {
    /// The function's number.
    pub number: u32,
    /// Address of the communicator; 0 if none was made.
    pub address: u64,
    /// The same in all ranks, or 0.
    pub identity: u64,
    /// Ranks in it, or 0.
    pub size: u32,
    /// Number of this rank in it.
    pub rank: u32,
    /// Address of the communicator that it was made from.
    pub parent: u64,
    /// Colour and key of a split; how many ranks were left out.
    pub detail: u64,
}

/// Number of a communicator that a hook recorded, in its process.
pub type CommunicatorIndex = usize;

/// All of a process.
#[derive(Debug, Default)]
pub struct Communicators {
    process: ProcessIndex,
    /// All communicators that hooks recorded: a record that refers to one may be joined after its
    /// end.
    made: Vec<LiveCommunicator>,
    /// Live communicators, by address.
    live: HashMap<u64, CommunicatorIndex>,
    contexts: HashMap<u64, nccl::Context>,
    written: HashSet<u64>,
}

impl Communicators {
    /// Starts for a process without communicators.
    pub fn new(process: ProcessIndex) -> Communicators {
        Communicators { process, ..Communicators::default() }
    }

    /// A hook's record.
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
            // All ranks of a communicator split it in the same order; those that gave the same
            // colour share the result. Only all ranks together show how many they are.
            let nth = parent.map_or(0, |live| {
                live.splits += 1;
                live.splits
            });
            (of ^ spread(call.detail & 0xffff_ffff | nth << 32), None, None)
        } else if number == Number::ncclCommShrink as u32 {
            let left = parent.and_then(|live| live.size?.checked_sub(call.detail as u32));
            (of ^ spread(call.identity), left, None)
        } else if number == Number::ncclCommGrow as u32 {
            // Ranks that are there already have neither an id nor their rank in the arguments.
            let rank = (call.parent == 0).then_some(call.rank);
            let id = if call.identity == 0 { call.address } else { call.identity };
            (id, Some(call.size), rank)
        } else {
            (call.identity, Some(call.size), Some(call.rank))
        };
        let live = LiveCommunicator { id, size, rank, operations: 0, splits: 0, plugins: None };
        self.live.insert(call.address, self.made.len());
        self.made.push(live);
    }

    /// The communicator that lives at an address.
    pub fn at(&self, address: u64) -> Option<CommunicatorIndex> {
        self.live.get(&address).copied()
    }

    /// Returns a communicator that a hook recorded.
    pub fn of_hook(&mut self, nth: CommunicatorIndex) -> Option<&mut LiveCommunicator> {
        self.made.get_mut(nth)
    }

    /// NCCL set the plugin up for one.
    pub fn context(&mut self, context: nccl::Context) {
        self.contexts.insert(context.context, context);
    }

    /// The plugin serves some.
    pub fn has_plugin(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Number and size of the communicator of a plugin's context; an operation may carry the
    /// number itself.
    pub fn of_context(&self, context: u64, hash: u64) -> (Option<u64>, Option<u32>) {
        let known = self.contexts.get(&context);
        let id = if hash != 0 { hash } else { known.map_or(0, |known| known.hash) };
        let size = known.filter(|known| known.ranks > 0).map(|known| known.ranks);
        ((id != 0).then_some(id), size)
    }

    /// The plugin reported an operation, of this number and context, that a hook reported too.
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

    /// Writes the communicator of a hook's row.
    pub fn use_hooks(&mut self, id: u64, size: Option<u32>, writer: &mut TraceWriter) {
        let rank = self.made.iter().find(|live| live.id == id).and_then(|live| live.rank);
        self.write(id, size, rank, "", writer);
    }

    /// Writes the communicator of a plugin's row: with the name that NCCL gave, and, before
    /// version 4, size and rank from elsewhere.
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

    /// The text of a context's name.
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

    /// The process is over: writes those that no operation referred to, as the plugin, or else
    /// the hooks, know them.
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
        assert_eq!(size(&mut all, 0x20), None, "the arguments do not have it");
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

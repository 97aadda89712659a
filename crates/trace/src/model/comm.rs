//! Communication between ranks.

use super::ids::{NameId, ProcessIndex, ThreadIndex};

/// A collective or point-to-point operation of one rank.
///
/// Its kernel is the one with the same `correlation`; operations that were grouped name the same
/// kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Time when the host called it or, if the call was not recorded, when its kernel began.
    pub start_ns: u64,
    /// Duration of the call; `None` if it was not recorded.
    pub duration_ns: Option<u64>,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that called it; `None` if the call was not recorded.
    pub thread: Option<ThreadIndex>,
    /// Operation in small letters, as `torch.distributed` names them: `all_reduce`,
    /// `all_gather`, `reduce_scatter`, `broadcast`, `all_to_all`, `send`, `recv`, ….
    pub name: NameId,
    /// Id of the communicator.
    pub communicator: Option<u64>,
    /// Number of this operation on its communicator, from its library.
    pub sequence: Option<u64>,
    /// Elements that this rank gave.
    pub elements_in: Option<u64>,
    /// Elements that this rank got.
    pub elements_out: Option<u64>,
    /// Type of an element, e.g. `Float`, `BFloat16`.
    pub element_type: NameId,
    /// Bytes of the larger of the two.
    pub bytes: Option<u64>,
    /// Ranks that take part.
    pub group_size: Option<u32>,
    /// Root, or the other rank of a point-to-point operation.
    pub peer: Option<u32>,
    /// Number of the stream.
    pub stream: Option<u64>,
    /// Correlation of its kernel.
    pub correlation: Option<u64>,
    /// Algorithm, as its library names it: `RING`, `TREE`, `NVLS`, …; `None` if not recorded.
    pub algorithm: Option<NameId>,
    /// Protocol: `LL`, `LL128`, `SIMPLE`; `None` if not recorded.
    pub protocol: Option<NameId>,
    /// Number of channels on which it runs.
    pub channels: Option<u32>,
}

/// The kind of work on a channel of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelWorkKind {
    /// A kernel's blocks.
    #[default]
    Kernel,
    /// The thread that sends to other hosts.
    Send,
    /// The thread that receives from them.
    Receive,
}

/// Work of an operation on one channel.
///
/// A kernel's duration is by its device's clock where the library reads it. Its start is when the
/// library noticed it, which is late by as much as that thread was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelWork {
    /// Start of the work.
    pub start_ns: u64,
    /// Duration of the work.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// The library's thread that reported it.
    pub thread: ThreadIndex,
    /// Kind of work.
    pub kind: ChannelWorkKind,
    /// Operation, as in [`Collective::name`]; empty for that of another process.
    pub name: NameId,
    /// Id of the communicator.
    pub communicator: Option<u64>,
    /// Number of the operation, as in [`Collective::sequence`].
    pub sequence: Option<u64>,
    /// Number of the channel.
    pub channel: u32,
    /// The other rank.
    pub peer: Option<u32>,
    /// Number of steps; `None` for a kernel.
    pub steps: Option<u32>,
    /// Bytes that were moved.
    pub bytes: Option<u64>,
    /// Time that steps waited for the device, summed; `None` for a kernel.
    pub device_wait_ns: Option<u64>,
    /// Time that steps waited for the other rank to make room, summed.
    pub peer_wait_ns: Option<u64>,
    /// Time that steps were on the network, summed.
    pub network_ns: Option<u64>,
}

/// A communicator, from the side of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Communicator {
    /// Index of that process.
    pub process: ProcessIndex,
    /// Number; the same in all ranks where the library gives a common id.
    pub communicator: u64,
    /// Name (process group), empty if it has none.
    pub name: NameId,
    /// Purpose of the communicator; empty if unknown.
    pub description: NameId,
    /// `nccl`, `gloo`, ….
    pub backend: NameId,
    /// Ranks in it.
    pub size: Option<u32>,
    /// Rank of this process in it.
    pub rank: Option<u32>,
    /// Ranks of the run that are in it, in order; empty if unknown.
    pub ranks: Vec<u64>,
}

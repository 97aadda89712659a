//! Defines rows for communication between ranks.

use super::ids::{NameId, ProcessIndex, ThreadIndex};

/// A collective or point-to-point operation of one rank.
///
/// The operation's kernel has the same `correlation`. If the program grouped operations (between
/// `ncclGroupStart` and `ncclGroupEnd`), they share one kernel and so one `correlation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Time when the host called the operation; if the call wasn't recorded, time when its kernel
    /// began.
    pub start_ns: u64,
    /// Duration of the call; `None` if the call wasn't recorded.
    pub duration_ns: Option<u64>,
    /// Index of the process.
    pub process: ProcessIndex,
    /// Thread that made the call; `None` if the call wasn't recorded.
    pub thread: Option<ThreadIndex>,
    /// Name of the operation in lower case, as in `torch.distributed`: `all_reduce`, `all_gather`,
    /// `reduce_scatter`, `broadcast`, `all_to_all`, `send`, `recv`, ….
    pub name: NameId,
    /// Number of the communicator, as in [`Communicator::communicator`]; `None` if unknown.
    pub communicator: Option<u64>,
    /// Number of this operation on its communicator, as the communication library counts.
    pub sequence: Option<u64>,
    /// Number of elements that this rank sent: what went into the operation.
    pub elements_in: Option<u64>,
    /// Number of elements that this rank received: what came out of the operation.
    pub elements_out: Option<u64>,
    /// Type of an element, e.g. `Float`, `BFloat16`.
    pub element_type: NameId,
    /// Size in bytes of the larger of `elements_in` and `elements_out`.
    pub bytes: Option<u64>,
    /// Number of ranks that take part.
    pub group_size: Option<u32>,
    /// The root of the operation, or the other rank of a point-to-point operation.
    pub peer: Option<u32>,
    /// Number of the stream on which the operation's kernel runs.
    pub stream: Option<u64>,
    /// Correlation of the operation's kernel.
    pub correlation: Option<u64>,
    /// Algorithm, as the communication library names it: `RING`, `TREE`, `NVLS`, …; `None` if not
    /// recorded.
    pub algorithm: Option<NameId>,
    /// Protocol: `LL`, `LL128`, `SIMPLE`; `None` if not recorded.
    pub protocol: Option<NameId>,
    /// Number of channels on which the operation runs. NCCL splits an operation among channels,
    /// which work in parallel.
    pub channels: Option<u32>,
}

/// The kind of work on a channel of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelWorkKind {
    /// The part of the operation's kernel that works on the channel.
    #[default]
    Kernel,
    /// Sending to another rank by the library's proxy thread, as over a network.
    Send,
    /// Receiving from another rank by the library's proxy thread.
    Receive,
}

/// Work of an operation on one channel.
///
/// The start is the time when the library's thread noticed the work, which may be late if the
/// thread was busy. The duration of a kernel's work is measured with the device's clock if the
/// library reports that clock. Every other duration ends when the library noticed the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelWork {
    /// Start of the work.
    pub start_ns: u64,
    /// Duration of the work.
    pub duration_ns: u64,
    /// Index of the process.
    pub process: ProcessIndex,
    /// The thread of the library that reported the work.
    pub thread: ThreadIndex,
    /// Kind of work.
    pub kind: ChannelWorkKind,
    /// Name of the operation, as in [`Collective::name`]; empty if it is unknown, for example
    /// because the thread worked for another process, which called the operation.
    pub name: NameId,
    /// Number of the communicator, as in [`Communicator::communicator`]; `None` if unknown.
    pub communicator: Option<u64>,
    /// Number of the operation, as in [`Collective::sequence`].
    pub sequence: Option<u64>,
    /// Number of the channel.
    pub channel: u32,
    /// The other rank.
    pub peer: Option<u32>,
    /// Number of pieces (NCCL's steps, not training steps) in which the thread moved the data;
    /// `None` for a kernel.
    pub steps: Option<u32>,
    /// Number of bytes that were moved; `None` if unknown.
    pub bytes: Option<u64>,
    /// Total time for which the steps waited for the device; `None` for a kernel.
    pub device_wait_ns: Option<u64>,
    /// Total time for which the steps waited for the other rank to make room; `None` for a kernel.
    pub peer_wait_ns: Option<u64>,
    /// Total time for which the steps were on the network; `None` for a kernel.
    pub network_ns: Option<u64>,
}

/// The connection of a communicator's rank with another, as NCCL's own log states it.
///
/// NCCL connects the channels of a communicator when the communicator is made or first used. A rank
/// writes a line for each channel on which it sends to another rank, and for each on which it
/// receives over the network. A row sums up the lines of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Index of the process that wrote the lines.
    pub process: ProcessIndex,
    /// Number of the communicator, as in [`Communicator::communicator`]; `None` if several
    /// communicators of the process fit.
    pub communicator: Option<u64>,
    /// Rank in the communicator that sends; `None` if a switch does (`COLLNET`).
    pub from: Option<u32>,
    /// Rank in the communicator that receives; `None` if a switch does.
    pub to: Option<u32>,
    /// Whether the process is the one that sends. The row of a connection over a network is in both
    /// ranks, all others only in the rank that sends.
    pub sends: bool,
    /// Transport as NCCL writes it: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0/GDRDMA`, ….
    pub transport: NameId,
    /// Number of channels.
    pub channels: u32,
}

/// A communicator, from the side of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Communicator {
    /// Index of the process.
    pub process: ProcessIndex,
    /// Number of the communicator. It is the same in all ranks only if the library provides an id
    /// that they share.
    pub communicator: u64,
    /// Name of the process group; empty if it has none.
    pub name: NameId,
    /// Purpose of the communicator; empty if unknown.
    pub description: NameId,
    /// Library of the communicator: `nccl`, `gloo`, ….
    pub backend: NameId,
    /// Number of ranks in the communicator.
    pub size: Option<u32>,
    /// Rank of this process in the communicator.
    pub rank: Option<u32>,
    /// Ranks of the run that are in the communicator, in order; empty if unknown.
    pub ranks: Vec<u64>,
}

//! Communication between ranks.

use super::ids::{NameId, ProcessIndex, ThreadIndex};

/// A collective or point-to-point operation of one rank.
///
/// Its kernel is the one with its `correlation`; operations that were
/// grouped name the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// When the host called it; if that was not recorded, when its kernel began.
    pub start_ns: u64,
    /// How long the call took; none if it was not recorded.
    pub duration_ns: Option<u64>,
    /// Its process.
    pub process: ProcessIndex,
    /// By which thread; none if the call was not recorded.
    pub thread: Option<ThreadIndex>,
    /// Operation in small letters, as `torch.distributed` names them: `all_reduce`,
    /// `all_gather`, `reduce_scatter`, `broadcast`, `all_to_all`, `send`, `recv`, ….
    pub name: NameId,
    /// Which communicator.
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
    /// Stream.
    pub stream: Option<u64>,
    /// Correlation of its kernel.
    pub correlation: Option<u64>,
}

/// A communicator, from the side of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Communicator {
    /// That process.
    pub process: ProcessIndex,
    /// Number; the same in all ranks where the library gives a common id.
    pub communicator: u64,
    /// Name (process group), empty if it has none.
    pub name: NameId,
    /// What it is for, empty if unknown.
    pub description: NameId,
    /// `nccl`, `gloo`, ….
    pub backend: NameId,
    /// Ranks in it.
    pub size: Option<u32>,
    /// This process's rank in it.
    pub rank: Option<u32>,
    /// Ranks of the run that are in it, in order; empty if unknown.
    pub ranks: Vec<u64>,
}

//! Rows of collectives that wait for more records before they are written.

use super::communicators::CommunicatorIndex;
use super::words::{elements, has_peer};
use std::borrow::Cow;
use tprof_trace::model::Collective;

/// A row that is not written yet.
#[derive(Debug)]
pub struct Pending {
    /// The row. Its operation and type are set; columns that only the plugin knows may be missing.
    pub row: Collective,
    /// The row's operation as text.
    pub operation: Cow<'static, str>,
    /// Number of elements, as the caller passed it.
    pub count: u64,
    /// Bytes of one element, if the type is known.
    pub type_bytes: Option<u64>,
    /// Time when the call returned, which may be before its group ended.
    pub returned_ns: u64,
    /// Whether the group that contains the call is still open.
    pub is_open: bool,
    /// Whether a hook recorded the call.
    pub is_hooked: bool,
    /// The hook's communicator; `None` if no hook recorded its creation.
    pub made: Option<CommunicatorIndex>,
    /// The plugin's id of the call; 0 if the plugin did not report the call.
    pub call: u64,
    /// The plugin's context of the communicator; 0 if it is unknown.
    pub context: u64,
    /// Whether a task was joined to the row: NCCL has enqueued the operation.
    pub is_joined: bool,
}

impl Pending {
    /// Sets the columns that depend on the size of the group. `size` is used if the row has no size
    /// yet.
    pub fn measure(&mut self, size: Option<u32>) {
        let size = self.row.group_size.or(size);
        let (given, got) = elements(&self.operation, self.count, size);
        self.row.elements_in = given;
        self.row.elements_out = got;
        self.row.bytes =
            given.max(got).zip(self.type_bytes).map(|(n, each)| n.saturating_mul(each));
        self.row.group_size = size;
    }

    /// Returns the bytes that the caller passed, if the type is known.
    pub fn given_bytes(&self) -> Option<u64> {
        self.type_bytes.map(|each| self.count.saturating_mul(each))
    }

    /// Sets the root or the other rank, if the operation has one.
    pub fn set_peer(&mut self, peer_plus_one: u32) {
        if has_peer(&self.operation) {
            self.row.peer = self.row.peer.or(peer_plus_one.checked_sub(1));
        }
    }
}

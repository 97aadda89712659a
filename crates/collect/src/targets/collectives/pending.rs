//! Rows of collectives that wait to be written.

use super::communicators::CommunicatorIndex;
use super::words::{elements, has_peer};
use std::borrow::Cow;
use tprof_trace::model::Collective;

/// A row on its way into the file.
#[derive(Debug)]
pub struct Pending {
    /// The row. Names of operation and type are set; the plugin's columns may be missing.
    pub row: Collective,
    /// Operation, as in the row.
    pub operation: Cow<'static, str>,
    /// Elements, as the call gave them, and bytes of one.
    pub count: u64,
    /// Bytes of an element; see `count`.
    pub type_bytes: Option<u64>,
    /// Time when the call itself returned, which may be before its group ended.
    pub returned_ns: u64,
    /// Whether its group is not over.
    pub is_open: bool,
    /// A hook recorded it.
    pub is_hooked: bool,
    /// Its communicator, if a hook recorded that.
    pub made: Option<CommunicatorIndex>,
    /// The plugin's id of the call; 0 if there is none.
    pub call: u64,
    /// The plugin's context; 0 if there is none.
    pub context: u64,
    /// NCCL has enqueued it, and its task was joined.
    pub is_joined: bool,
}

impl Pending {
    /// Sets the columns that follow from the size of the group, if it was not known before.
    pub fn measure(&mut self, size: Option<u32>) {
        let size = self.row.group_size.or(size);
        let (given, got) = elements(&self.operation, self.count, size);
        self.row.elements_in = given;
        self.row.elements_out = got;
        self.row.bytes =
            given.max(got).zip(self.type_bytes).map(|(n, each)| n.saturating_mul(each));
        self.row.group_size = size;
    }

    /// Returns the bytes that the call was given.
    pub fn given_bytes(&self) -> Option<u64> {
        self.type_bytes.map(|each| self.count.saturating_mul(each))
    }

    /// Root or other rank, where the operation has one.
    pub fn set_peer(&mut self, peer_plus_one: u32) {
        if has_peer(&self.operation) {
            self.row.peer = self.row.peer.or(peer_plus_one.checked_sub(1));
        }
    }
}

//! A snapshot while it is read: what its rows share.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::model::{AllocatorBlock, AllocatorEvent, AllocatorSegment, NameId};

use super::error::SnapshotError;
use super::json;
use super::stacks::SnapshotStacks;
use crate::losses::LossReason;
use crate::output::Output;
use crate::pickle::{Arena, Value};

/// JSON of the keys that no column takes, of one row.
const MAX_ARGS_BYTES: usize = 4 << 10;

/// What a device's segments hold when the snapshot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldBytes {
    /// Bytes of segments.
    pub reserved: u64,
    /// Bytes that the program asked for, of blocks that it has.
    pub allocated: u64,
    /// Whether every block of the program has that number.
    pub is_known: bool,
}

/// Names of what the allocator does and of states, as the file's names.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventNames {
    pub alloc: NameId,
    pub free_requested: NameId,
    pub free_completed: NameId,
    pub segment_alloc: NameId,
    pub segment_free: NameId,
    pub segment_map: NameId,
    pub segment_unmap: NameId,
    pub active_allocated: NameId,
}

impl EventNames {
    pub fn of(output: &mut Output) -> EventNames {
        EventNames {
            alloc: output.plain_name("alloc"),
            free_requested: output.plain_name("free_requested"),
            free_completed: output.plain_name("free_completed"),
            segment_alloc: output.plain_name("segment_alloc"),
            segment_free: output.plain_name("segment_free"),
            segment_map: output.plain_name("segment_map"),
            segment_unmap: output.plain_name("segment_unmap"),
            active_allocated: output.plain_name("active_allocated"),
        }
    }
}

/// A snapshot while it is read.
pub(super) struct Reading<'a, 'i> {
    pub arena: &'a Arena<'i>,
    pub output: &'a mut Output,
    pub words: EventNames,
    pub stacks: SnapshotStacks,
    pub held: BTreeMap<Option<u32>, HeldBytes>,
    pub next_segment: u64,
    pub segment_rows: Vec<AllocatorSegment>,
    pub block_rows: Vec<AllocatorBlock>,
    pub event_rows: Vec<AllocatorEvent>,
    /// Pairs that no column takes, between two rows.
    pub others: Vec<(Value, Value)>,
    pub names: FxHashMap<(u32, u32), NameId>,
    /// Rows that may still be made. One list may stand in many places: without a bound, a short
    /// file could ask for rows without end.
    pub rows_left: usize,
    /// Bytes of JSON that may still be made, for the same reason.
    pub json_left: usize,
    pub json: Vec<u8>,
}

impl Reading<'_, '_> {
    /// The name of a text; 0 if it is none.
    pub fn name(&mut self, value: Value) -> NameId {
        let Value::Text(at, length) = value else { return NameId(0) };
        if let Some(name) = self.names.get(&(at, length)) {
            return *name;
        }
        let text = String::from_utf8_lossy(self.arena.text(value).unwrap_or_default());
        let name = self.output.plain_name(&text);
        self.names.insert((at, length), name);
        name
    }

    /// Counts rows.
    pub fn spend(&mut self, rows: usize) -> Result<(), SnapshotError> {
        self.rows_left = self.rows_left.checked_sub(rows).ok_or_else(|| {
            SnapshotError::Content("more rows than a file of this length describes".to_owned())
        })?;
        Ok(())
    }

    /// Pairs that no column takes, as JSON.
    pub fn args(&mut self, pairs: &[(Value, Value)]) -> NameId {
        if pairs.is_empty() {
            return NameId(0);
        }
        let mut text = std::mem::take(&mut self.json);
        text.clear();
        let limit = MAX_ARGS_BYTES.min(self.json_left);
        let whole = json::push_object(self.arena, pairs, limit, &mut text, 0);
        self.json_left = self.json_left.saturating_sub(text.len());
        let name = match whole {
            true => self.output.json_name(&text),
            false => {
                self.output.tally.lose(LossReason::SnapshotDetails);
                NameId(0)
            }
        };
        self.json = text;
        name
    }
}

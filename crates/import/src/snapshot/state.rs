//! Defines the state that the functions for the parts of a snapshot share.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tprof_trace::model::{AllocatorBlock, AllocatorEvent, AllocatorSegment, NameId};

use super::error::SnapshotError;
use super::json;
use super::stacks::SnapshotStacks;
use crate::losses::LossReason;
use crate::output::Output;
use crate::pickle::{Arena, Value};

/// Largest JSON of the keys of one row that have no column, in bytes.
const MAX_ARGS_BYTES: usize = 4 << 10;

/// Sizes of a device's segments at the time of the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldBytes {
    /// Bytes in segments.
    pub reserved: u64,
    /// Bytes that the program requested, in blocks that it has not freed.
    pub allocated: u64,
    /// Whether the requested size of every such block is known.
    pub is_known: bool,
}

/// Names of the allocator's actions and states in the file.
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

/// State while a snapshot is read.
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
    /// Keys without a column, and their values, that were collected since the last row.
    pub others: Vec<(Value, Value)>,
    pub names: FxHashMap<(u32, u32), NameId>,
    /// Number of rows that may still be written. One list of a pickle may occur in many places, so
    /// without this bound a short file could produce endless rows.
    pub rows_left: usize,
    /// Bytes of JSON that may still be written. The bound has the same reason as that of rows.
    pub json_left: usize,
    pub json: Vec<u8>,
}

impl Reading<'_, '_> {
    /// Returns the name of a text; 0 if the value is not a text.
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

    /// Counts rows against the limit. Fails if too many were written.
    pub fn count_rows(&mut self, rows: usize) -> Result<(), SnapshotError> {
        self.rows_left = self.rows_left.checked_sub(rows).ok_or_else(|| {
            SnapshotError::Content("more rows than a file of this length describes".to_owned())
        })?;
        Ok(())
    }

    /// Returns pairs without a column as JSON.
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
                self.output.tally.count_loss(LossReason::SnapshotDetails);
                NameId(0)
            }
        };
        self.json = text;
        name
    }
}

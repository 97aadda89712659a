//! Reads a snapshot's segments and their blocks.

use tprof_trace::model::{AllocatorBlock, AllocatorSegment, NameId};

use super::error::SnapshotError;
use super::state::{HeldBytes, Reading};
use crate::losses::LossReason;
use crate::pickle::Value;
use crate::threads::MAIN;

impl Reading<'_, '_> {
    /// Reads a list of segments. `host` is true for segments of pinned host memory.
    pub fn segments(&mut self, list: Value, host: bool) -> Result<(), SnapshotError> {
        for item in self.arena.items(list).unwrap_or_default() {
            self.count_rows(1)?;
            self.segment(*item, host)?;
        }
        Ok(())
    }

    fn segment(&mut self, value: Value, host: bool) -> Result<(), SnapshotError> {
        let arena = self.arena;
        let Some(pairs) = arena.pairs(value) else {
            self.output.tally.count_loss(LossReason::SnapshotRow);
            return Ok(());
        };
        let mut row = AllocatorSegment {
            process: MAIN,
            segment: self.next_segment,
            device: (!host).then_some(0),
            ..AllocatorSegment::default()
        };
        let (mut blocks, mut size, mut others) = (None, None, Vec::new());
        for (key, value) in pairs {
            match arena.text(*key).unwrap_or_default() {
                b"device" if !host => row.device = as_u32(*value),
                b"address" => row.address = value.unsigned().unwrap_or(0),
                b"total_size" | b"size" => size = value.unsigned(),
                b"stream" => row.stream = value.unsigned().unwrap_or(0),
                b"segment_type" => row.kind = self.name(*value),
                b"segment_pool_id" => match arena.items(*value) {
                    Some([major, minor]) => {
                        (row.pool_major, row.pool_minor) = (major.unsigned(), minor.unsigned());
                    }
                    _ => others.push((*key, *value)),
                },
                b"is_expandable" => row.expandable = value.unsigned().map(|flag| flag != 0),
                b"frames" => row.stack = self.stacks.stack(arena, *value, self.output),
                b"blocks" => blocks = Some(*value),
                _ => others.push((*key, *value)),
            }
        }
        let Some(size) = size else {
            self.output.tally.count_loss(LossReason::SnapshotRow);
            return Ok(());
        };
        row.bytes = size;
        row.args = self.args(&others);
        self.next_segment += 1;
        let held = self
            .held
            .entry(row.device)
            .or_insert(HeldBytes { is_known: true, ..HeldBytes::default() });
        held.reserved = held.reserved.saturating_add(size);
        held.is_known &= blocks.is_some();
        self.segment_rows.push(row);
        if let Some(blocks) = blocks {
            let mut address = row.address;
            for block in arena.items(blocks).unwrap_or_default() {
                self.count_rows(1)?;
                self.block(*block, &row, &mut address);
            }
        }
        Ok(())
    }

    /// Reads a block. `address` is the end of the previous block. Older files do not contain a
    /// block's address; the block then begins there.
    fn block(&mut self, value: Value, segment: &AllocatorSegment, address: &mut u64) {
        let arena = self.arena;
        let Some(pairs) = arena.pairs(value) else {
            self.output.tally.count_loss(LossReason::SnapshotRow);
            return;
        };
        let mut row = AllocatorBlock {
            process: MAIN,
            segment: segment.segment,
            address: *address,
            ..AllocatorBlock::default()
        };
        let (mut size, mut others) = (None, Vec::new());
        for (key, value) in pairs {
            match arena.text(*key).unwrap_or_default() {
                b"address" => row.address = value.unsigned().unwrap_or(*address),
                b"size" => size = value.unsigned(),
                b"requested_size" => row.requested_bytes = value.unsigned(),
                b"state" => row.state = self.name(*value),
                b"frames" => row.stack = self.stacks.stack(arena, *value, self.output),
                _ => others.push((*key, *value)),
            }
        }
        let (Some(size), true) = (size, row.state != NameId(0)) else {
            self.output.tally.count_loss(LossReason::SnapshotRow);
            return;
        };
        row.bytes = size;
        row.args = self.args(&others);
        *address = row.address.saturating_add(size);
        if row.state == self.words.active_allocated
            && let Some(held) = self.held.get_mut(&segment.device)
        {
            let bytes = row.requested_bytes.unwrap_or(size);
            held.allocated = held.allocated.saturating_add(bytes);
        }
        self.block_rows.push(row);
    }
}

/// Returns the value as a number of 32 bits.
pub(super) fn as_u32(value: Value) -> Option<u32> {
    value.unsigned().and_then(|number| u32::try_from(number).ok())
}

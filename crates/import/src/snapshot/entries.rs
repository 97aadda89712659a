//! Reads the allocator's history: its actions, in order.

use tprof_trace::model::{AllocatorEvent, NameId};

use super::error::SnapshotError;
use super::state::Reading;
use crate::losses::LossReason;
use crate::pickle::Value;
use crate::threads::MAIN;

impl Reading<'_, '_> {
    /// Reads the entries of a device, or of pinned host memory.
    pub fn entries(&mut self, list: Value, device: Option<u32>) -> Result<(), SnapshotError> {
        let arena = self.arena;
        for (order, item) in (0..).zip(arena.items(list).unwrap_or_default()) {
            self.count_rows(1)?;
            match arena.pairs(*item) {
                Some(pairs) => self.entry(pairs, device, order),
                None => self.output.tally.count_loss(LossReason::SnapshotRow),
            }
        }
        Ok(())
    }

    fn entry(&mut self, pairs: &[(Value, Value)], device: Option<u32>, order: u64) {
        let arena = self.arena;
        let mut row = AllocatorEvent { order, process: MAIN, device, ..AllocatorEvent::default() };
        let (mut size, mut others) = (None, std::mem::take(&mut self.others));
        others.clear();
        for (key, value) in pairs {
            match arena.text(*key).unwrap_or_default() {
                b"action" => row.action = self.name(*value),
                b"addr" => row.address = value.unsigned(),
                b"size" => size = value.unsigned(),
                b"stream" => row.stream = value.unsigned(),
                b"time_us" => {
                    row.time_ns = value.unsigned().and_then(|time| time.checked_mul(1000));
                }
                b"device_free" => row.device_free_bytes = value.unsigned(),
                b"frames" => row.stack = self.stacks.stack(arena, *value, self.output),
                _ => others.push((*key, *value)),
            }
        }
        row.args = self.args(&others);
        self.others = others;
        if row.action == NameId(0) {
            self.output.tally.count_loss(LossReason::SnapshotRow);
            return;
        }
        row.bytes = size.unwrap_or(0);
        self.event_rows.push(row);
    }
}

//! Computes the curves of a program's sums and memory pools over time. The program's threads record
//! additions to sums, and blocks that a pool gave out and took back. These changes must be applied
//! in order of time.
//!
//! Rings are read one after the other, so the end of a block may be read in one thread's ring
//! before its beginning in another's. Therefore a change waits until every ring has been read past
//! its time.
//!
//! A record comes later still if the scheduler stops its thread between reading the clock and
//! writing the record (in 2 of 180 runs of 4,000 records, on two busy cores). The call that writes
//! the record had not returned then, so no later change can depend on this one. Therefore such a
//! change gets the time of the last change that was written.

use crate::targets::interned::Interned;
use std::collections::HashMap;
use tprof_trace::TraceWriter;
use tprof_trace::model::{Counter, NameId, ProcessIndex};

/// Number of blocks of pools that may be in use at the same time.
const MAX_BLOCKS: usize = 1 << 20;

/// What a record changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TotalChange {
    /// An amount is added to a sum.
    Add(f64),
    /// A pool gave out a block: its id, and its bytes.
    Took(u64, u64),
    /// A pool took back the block with this id.
    Gave(u64),
}

/// A change that is not applied yet.
#[derive(Clone, Copy, Debug)]
struct WaitingChange {
    time_ns: u64,
    name: u32,
    change: TotalChange,
}

/// The last written point of a curve.
#[derive(Clone, Copy, Debug, Default)]
struct LastValue<T> {
    value: T,
    time_ns: u64,
}

impl<T> LastValue<T> {
    /// Returns the time at which a change at `time_ns` is written: never before the last written
    /// change.
    fn advance(&mut self, time_ns: u64) -> u64 {
        self.time_ns = self.time_ns.max(time_ns);
        self.time_ns
    }
}

/// The sums and memory pools of a process.
#[derive(Debug, Default)]
pub struct Totals {
    waiting: Vec<WaitingChange>,
    /// Every ring has been read past this time, ns.
    read_ns: u64,
    sums: HashMap<NameId, LastValue<f64>>,
    /// For each pool, the bytes that it gave out and the name of its curve.
    pools: HashMap<NameId, (LastValue<u64>, NameId)>,
    blocks: HashMap<(NameId, u64), u64>,
    /// Number of blocks that a pool took back although it is not known to have given them out.
    unknown: u64,
    /// Number of blocks that were ignored because too many were in use.
    refused: u64,
    nameless: u64,
}

impl Totals {
    /// Adds a change, which waits for its turn.
    pub fn take(&mut self, name: u32, time_ns: u64, change: TotalChange) {
        self.waiting.push(WaitingChange { time_ns, name, change });
    }

    /// Writes the changes whose order is certain by now, or all of them if `last` is set. The
    /// caller calls this after each pass over the rings; the pass ended at `now_ns`.
    pub fn write(
        &mut self,
        now_ns: u64,
        last: bool,
        process: ProcessIndex,
        interned: &mut Interned,
        writer: &mut TraceWriter,
    ) {
        let until = if last { u64::MAX } else { self.read_ns };
        self.read_ns = now_ns;
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.sort_by_key(|one| one.time_ns);
        for one in std::mem::take(&mut self.waiting) {
            let name = interned.name(one.name, writer).filter(|_| one.time_ns <= until);
            match name {
                Some(name) => {
                    let text = interned.text(one.name);
                    if let Some((name, time_ns, value)) = self.change(name, one, text, writer) {
                        let process = Some(process);
                        writer.counter(Counter { time_ns, process, device: None, name, value });
                    }
                }
                None if last || one.name == 0 || interned.is_full() && one.time_ns <= until => {
                    self.nameless += 1;
                }
                None => self.waiting.push(one),
            }
        }
    }

    /// Applies a change. Returns the name of its curve, the time, and the curve's new value.
    fn change(
        &mut self,
        name: NameId,
        one: WaitingChange,
        text: Option<&str>,
        writer: &mut TraceWriter,
    ) -> Option<(NameId, u64, f64)> {
        if let TotalChange::Add(amount) = one.change {
            let sum = self.sums.entry(name).or_default();
            sum.value += amount;
            return Some((name, sum.advance(one.time_ns), sum.value));
        }
        let curve = |writer: &mut TraceWriter| {
            writer.name(&format!("{} pool_bytes", text.unwrap_or_default()))
        };
        let (live, curve) =
            self.pools.entry(name).or_insert_with(|| (LastValue::default(), curve(writer)));
        match one.change {
            TotalChange::Took(..) if self.blocks.len() >= MAX_BLOCKS => {
                self.refused += 1;
                return None;
            }
            TotalChange::Took(block, bytes) => {
                // If the block is known already, the record of its return was lost, and its memory
                // is in use again.
                let before = self.blocks.insert((name, block), bytes).unwrap_or(0);
                live.value = live.value.saturating_sub(before).saturating_add(bytes);
            }
            TotalChange::Gave(block) => match self.blocks.remove(&(name, block)) {
                Some(bytes) => live.value = live.value.saturating_sub(bytes),
                None => {
                    self.unknown += 1;
                    return None;
                }
            },
            TotalChange::Add(_) => return None,
        }
        Some((*curve, live.advance(one.time_ns), live.value as f64))
    }

    /// Returns the losses: what was lost, why, and how many.
    pub fn losses(&self) -> [(&'static str, &'static str, u64); 3] {
        [
            ("blocks of pools given back", "what took them was not recorded", self.unknown),
            ("blocks of pools", "there were too many", self.refused),
            (
                "spans, marks and values",
                "the ring was full when their names were defined",
                self.nameless,
            ),
        ]
    }
}

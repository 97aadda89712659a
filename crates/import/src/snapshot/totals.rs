//! Derives device allocations from the history, with the allocator's totals at each of them.
//!
//! A history is a ring buffer, whose beginning may be overwritten. But the segments show the
//! allocator's totals at the end, so earlier totals are computed backwards from there. If a total
//! becomes negative, the history does not fit the segments, because recording ended before the
//! snapshot was taken. Then no total is known.

use tprof_trace::model::{Allocator, AllocatorEvent, DeviceAllocation, MemoryKind};

use super::state::{EventNames, HeldBytes};
use crate::threads::MAIN;

/// Effect of an action on the allocator's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Give,
    TakeBack,
    Reserve(Allocator),
    Release(Allocator),
}

fn change(event: &AllocatorEvent, words: &EventNames, frees_are_requested: bool) -> Option<Change> {
    let action = event.action;
    let free = if frees_are_requested { words.free_requested } else { words.free_completed };
    Some(match action {
        _ if action == words.alloc => Change::Give,
        _ if action == free => Change::TakeBack,
        _ if action == words.segment_alloc => Change::Reserve(Allocator::Library),
        _ if action == words.segment_free => Change::Release(Allocator::Library),
        _ if action == words.segment_map => Change::Reserve(Allocator::Virtual),
        _ if action == words.segment_unmap => Change::Release(Allocator::Virtual),
        _ => return None,
    })
}

/// Returns the allocations of one device's events, in order, and whether the totals are known.
pub(super) fn allocations(
    events: &[AllocatorEvent],
    held: Option<HeldBytes>,
    words: &EventNames,
    timed: bool,
) -> (Vec<DeviceAllocation>, bool) {
    let frees_are_requested = events.iter().any(|event| event.action == words.free_requested);
    let changes: Vec<(&AllocatorEvent, Change)> = (events.iter())
        .filter_map(|event| Some((event, change(event, words, frees_are_requested)?)))
        .collect();
    // A device without a segment has no reserved memory at the end.
    let held = held.unwrap_or(HeldBytes { is_known: true, ..HeldBytes::default() });
    let totals = if held.is_known { backwards(&changes, held) } else { None };
    let mut last_ns = 0;
    let row = |(at, (event, change)): (usize, &(&AllocatorEvent, Change))| {
        let time_ns = if timed { event.time_ns.unwrap_or(0) } else { event.order };
        // The order of entries is certain, but a clock may be set back, so never go back in time.
        last_ns = time_ns.max(last_ns);
        let (allocator, free) = match *change {
            Change::Give => (Allocator::Framework, false),
            Change::TakeBack => (Allocator::Framework, true),
            Change::Reserve(of) => (of, false),
            Change::Release(of) => (of, true),
        };
        let total = totals.as_ref().filter(|_| allocator == Allocator::Framework);
        DeviceAllocation {
            time_ns: last_ns,
            process: MAIN,
            thread: 0,
            allocator,
            free,
            device: event.device,
            address: event.address.unwrap_or(0),
            bytes: Some(event.bytes),
            kind: if event.device.is_some() { MemoryKind::Device } else { MemoryKind::Pinned },
            total_allocated_bytes: total.map(|totals| totals[at].0),
            total_reserved_bytes: total.map(|totals| totals[at].1),
            stream: event.stream,
            stack: event.stack,
            ..DeviceAllocation::default()
        }
    };
    (changes.iter().enumerate().map(row).collect(), totals.is_some())
}

/// Returns the bytes allocated and reserved after each change; `None` if any of them would be
/// negative.
fn backwards(changes: &[(&AllocatorEvent, Change)], held: HeldBytes) -> Option<Vec<(u64, u64)>> {
    let (mut allocated, mut reserved) = (held.allocated, held.reserved);
    let mut totals = vec![(0, 0); changes.len()];
    for (at, (event, change)) in changes.iter().enumerate().rev() {
        totals[at] = (allocated, reserved);
        match change {
            Change::Give => allocated = allocated.checked_sub(event.bytes)?,
            Change::TakeBack => allocated = allocated.checked_add(event.bytes)?,
            Change::Reserve(_) => reserved = reserved.checked_sub(event.bytes)?,
            Change::Release(_) => reserved = reserved.checked_add(event.bytes)?,
        }
    }
    Some(totals)
}

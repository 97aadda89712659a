//! Slots that add up an operation's work on a channel from its beginning to its end. Their memory
//! is mapped only if a run requests records of such work.
//!
//! A handle contains the slot's index and its number of uses, so that a stale handle finds no slot.
//! Only one of NCCL's threads works on an event at a time, but not always the same thread.

use super::handle::{self, HandleKind};
use core::ffi::c_void;
use tprof_inject::sys;
use tprof_wire::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Number of slots. Proxies have some hundreds of operations in progress, with 8 steps each.
const SLOTS: usize = 1 << 14;
const INDEX_BITS: u32 = 14;
/// Number of slots that are tried. If all of them are in use, the work counts as lost.
const PROBES: usize = 64;

/// Work on a channel, or a step of it.
#[repr(C, align(64))]
pub struct WorkSlot {
    /// Number of uses, times two, and plus one while the slot is in use.
    uses: AtomicU64,
    /// For work on a channel, the handle of the operation. For a step, the handle of the work.
    pub parent: AtomicU64,
    /// Context of the communicator.
    pub context: AtomicU64,
    /// Clock at the beginning of the work.
    pub start: AtomicU64,
    /// Clock at the last change of state.
    pub since: AtomicU64,
    /// Ticks that steps waited, indexed by [`super::transfers::StepWait`].
    pub waits: [AtomicU64; 3],
    /// Bytes so far.
    pub bytes: AtomicU64,
    /// The device's clock at the beginning and at the end of a kernel's part.
    pub device: [AtomicU64; 2],
    /// The wait that is in progress: its index in `waits` plus one; 0 if there is none.
    pub waiting: AtomicU32,
    /// Number of steps that have ended.
    pub steps: AtomicU32,
    /// The kind of work: a [`tprof_wire::nccl::transfer_kind`], or [`STEP`].
    pub kind: AtomicU32,
    /// Number of the channel.
    pub channel: AtomicU32,
    /// The other rank plus one.
    pub peer: AtomicU32,
}

/// [`WorkSlot::kind`] of a step.
pub const STEP: u32 = u32::MAX;

static POOL: AtomicPtr<WorkSlot> = AtomicPtr::new(core::ptr::null_mut());
static NEXT: AtomicU32 = AtomicU32::new(0);

fn pool() -> Option<&'static [WorkSlot]> {
    let mut pool = POOL.load(Acquire);
    if pool.is_null() {
        let bytes = SLOTS * size_of::<WorkSlot>();
        let new = sys::map_anonymous(bytes)?;
        pool = match POOL.compare_exchange(core::ptr::null_mut(), new.cast(), AcqRel, Acquire) {
            Ok(_) => new.cast(),
            Err(other) => {
                // SAFETY: another thread published its mapping first, so no thread uses this one.
                unsafe { sys::unmap(new, bytes) };
                other
            }
        };
    }
    // SAFETY: the pool is never unmapped and has `SLOTS` slots. It was zeroed, which is a valid
    // value of every field.
    Some(unsafe { core::slice::from_raw_parts(pool, SLOTS) })
}

/// Takes a free slot, and returns it with its handle.
pub fn take() -> Option<(&'static WorkSlot, u64)> {
    let pool = pool()?;
    let first = NEXT.fetch_add(1, Relaxed) as usize;
    (0..PROBES).find_map(|probe| {
        let index = first.wrapping_add(probe) & (SLOTS - 1);
        let slot = pool.get(index)?;
        let uses = slot.uses.load(Relaxed);
        let free =
            uses & 1 == 0 && slot.uses.compare_exchange(uses, uses + 1, AcqRel, Relaxed).is_ok();
        free.then(|| {
            slot.clear();
            (slot, handle::of_number(HandleKind::Slot, (uses + 1) << INDEX_BITS | index as u64))
        })
    })
}

/// The slot of a handle, if it is still in use for that handle.
pub fn of(event: *const c_void) -> Option<&'static WorkSlot> {
    let number = handle::number(HandleKind::Slot, event as u64)?;
    let slot = pool()?.get(number as usize & (SLOTS - 1))?;
    (slot.uses.load(Acquire) == number >> INDEX_BITS).then_some(slot)
}

impl WorkSlot {
    fn clear(&self) {
        for word in [&self.parent, &self.context, &self.start, &self.since, &self.bytes] {
            word.store(0, Relaxed);
        }
        self.waits.iter().chain(&self.device).for_each(|word| word.store(0, Relaxed));
        for word in [&self.waiting, &self.steps, &self.kind, &self.channel, &self.peer] {
            word.store(0, Relaxed);
        }
    }

    /// Makes the slot free for other work.
    pub fn give_back(&self) {
        self.uses.fetch_add(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_slot_until_the_slot_is_given_back() {
        let (slot, handle) = take().unwrap();
        slot.bytes.store(7, Relaxed);
        let event = handle as *const c_void;
        assert_eq!(of(event).unwrap().bytes.load(Relaxed), 7);
        slot.give_back();
        assert!(of(event).is_none());
        assert!(of(core::ptr::null()).is_none() && of(usize::MAX as *const c_void).is_none());
        // When the same slot is used again, it is cleared, and its handle differs.
        let again = (0..SLOTS).find_map(|_| {
            let (new, handle) = take()?;
            new.give_back();
            core::ptr::eq(new, slot).then_some((new, handle))
        });
        let (new, other) = again.unwrap();
        assert_eq!(new.bytes.load(Relaxed), 0);
        assert_ne!(other, handle);
    }
}

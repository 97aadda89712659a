//! Writes the records of what PyTorch's allocator tells a profiler: each block that it gives out or
//! takes back, and each lack of memory.
//!
//! PyTorch calls these functions while it holds the lock of its allocator. So nothing here calls
//! PyTorch or Python, and stacks are limited. A block's operator and module follow from the thread
//! and the time.

use crate::block::Thread;
use crate::call_args::Frame;
use crate::{ring, stacks, state};
use tprof_wire::calls::Report;
use tprof_wire::record::ExtKind;
use tprof_wire::region::off;
use tprof_wire::sync::Ordering::Relaxed;

/// A block of at least this many bytes gets a stack. Smaller blocks of a thread get one each time
/// that they add up to this many bytes.
const BYTES_OF_A_STACK: u64 = 1 << 20;
/// A thread takes at most one stack with Python's functions in a part of the time of this many bits
/// of the clock, which is about 0.7 ms. Such a stack takes several microseconds.
const PART: u32 = 21;
/// `c10::DeviceType::CPU`. The hooks of the heap see the same memory.
const CPU: u8 = 0;
/// A value that the function was not told.
const UNKNOWN: u64 = u64::MAX;

/// Records a report. The real function is called afterwards in any case.
pub(crate) fn reported(thread: &Thread, number: u32, of: Report, frame: &Frame) {
    let at = |place| frame.register(place);
    let (address, bytes, [allocated, reserved], device) = match of {
        Report::Size => (0, at(1), [UNKNOWN; 2], at(0)),
        Report::Block => (at(0), at(1), [at(2), at(3)], at(4)),
        Report::OutOfMemory => (0, at(0), [at(1), at(2)], at(3)),
    };
    if device as u8 == CPU {
        return;
    }
    let clock = thread.clock();
    let place = |stack: u32| u64::from(stack) | (device & 0xffff) << 32;
    if of == Report::OutOfMemory {
        let place = place(stacks::with_python(thread, frame.sp(), frame.fp));
        let free = thread.device_free.get().wrapping_sub(1);
        let payload = [address, bytes, allocated, reserved, place, free];
        ring::quick(thread, ExtKind::Reported, number, clock, &payload);
        return;
    }
    let place = place(stack_of_block(thread, bytes as i64, clock, frame));
    let payload = [address, bytes, allocated, reserved, place];
    ring::quick(thread, ExtKind::Reported, number, clock, &payload);
}

/// Keeps the free bytes of a device that the thread has measured.
pub(crate) fn measured_free(thread: &Thread, bytes: u64) {
    thread.device_free.set(bytes.wrapping_add(1));
}

/// The id of the stack of a block that was given out; 0 if it gets none, or was taken back.
fn stack_of_block(thread: &Thread, bytes: i64, clock: u64, frame: &Frame) -> u32 {
    let Some(bytes) = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0) else { return 0 };
    // A paused job must not pay for stacks, of which a step would take many.
    if state::header().is_none_or(|header| header.off.load(Relaxed) & off::SESSION != 0) {
        return 0;
    }
    let state = &thread.slot().reported;
    let before = state.load(Relaxed);
    let (given, part) = (before as u32, (before >> 32) as u32);
    let sum = u64::from(given).saturating_add(bytes);
    let now = (clock >> PART) as u32;
    let left = sum % BYTES_OF_A_STACK;
    if sum < BYTES_OF_A_STACK {
        state.store(left | u64::from(part) << 32, Relaxed);
        return 0;
    }
    state.store(left | u64::from(now) << 32, Relaxed);
    match part == now {
        true => stacks::stack(thread, frame.sp(), frame.fp),
        false => stacks::with_python(thread, frame.sp(), frame.fp),
    }
}

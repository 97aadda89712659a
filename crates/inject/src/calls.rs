//! Writes the records about intercepted calls of the CUDA runtime and driver, NCCL, cuBLAS, MPI and
//! PyTorch.
//!
//! One hook serves every function (`preload-shim/src/hooks/calls.rs`). It saves the arguments in a
//! [`Frame`], and the table in [`tprof_wire::calls`] defines their meaning.
//!
//! Only calls by the functions' public names and by `dlsym(RTLD_DEFAULT, …)` reach the hook. A
//! statically linked runtime, code that was loaded with `RTLD_DEEPBIND`, and `dlsym` on a library's
//! own handle bypass it. If no library has the function, the hook returns a failure that the caller
//! knows: `cudaErrorSharedObjectInitFailed` (303), `ncclSystemError`,
//! `CUBLAS_STATUS_NOT_INITIALIZED`, or MPI's error 16.

mod quick;

pub use quick::{Before, enter_quickly};

use crate::block::{OuterCall, Thread};
use crate::call_args::{Frame, half, word};
use crate::{
    agent_link, array_bytes, capture, contexts, gate, gemm, kernels, mpi, pytorch_registration,
    reports, ring, stacks, streams,
};
use tprof_wire::calls::{
    Effect, FUNCTIONS, Function, Joins, Library, Mapping, NO_BYTES, Number, OpenCall, SizeArgument,
    memory,
};
use tprof_wire::gemm as wire;
use tprof_wire::hash::{FNV_BASIS, fnv1a_on};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::Ordering::Relaxed;

/// Whether a call is recorded even while recording is off. This holds for calls that allocate or
/// free memory, make communicators or select devices, since later records refer to what they did.
const fn matters(does: Effect) -> bool {
    matches!(
        does,
        Effect::Allocates { .. }
            | Effect::Frees { .. }
            | Effect::Resets { .. }
            | Effect::Maps(_)
            | Effect::Joins(_)
            | Effect::Selects
            | Effect::Instantiates { .. }
            | Effect::Conditions
            | Effect::Handles
            | Effect::Limits
            | Effect::MakesContext
            | Effect::MeasuresFree
            | Effect::Ends
    )
}

/// Called just before the real function is called. Returns whether [`leave`] must be called when it
/// has returned.
pub fn enter(number: u32, frame: &mut Frame) -> bool {
    begin(number, frame);
    let finds = FUNCTIONS.get(number as usize).is_some_and(|of| matches!(of.does, Effect::Finds));
    frame.start != 0 || finds
}

fn begin(number: u32, frame: &mut Frame) {
    frame.start = 0;
    let Some(function) = FUNCTIONS.get(number as usize) else { return };
    let Some(thread) = gate::recording() else { return };
    if let Effect::Profiles { starts } = function.does {
        capture::profiler(thread, starts);
    }
    if !thread.calls.get() {
        return;
    }
    if function.does == Effect::Registers {
        return kernels::registered(frame);
    }
    // Blocks are recorded even while recording is off, like all memory. The record is written
    // before the call, so `leave` has nothing to do.
    if let Effect::Reports(of) = function.does {
        return reports::reported(thread, number, of, frame);
    }
    if !(thread.is_on() || matters(function.does)) {
        return;
    }
    if thread.is_on() {
        agent_link::before_work();
        if pytorch_registration::must_restore() {
            pytorch_registration::sync_callbacks();
        }
    }
    if let Effect::Communicates { .. } = function.does
        && is_within(&thread.collective, frame)
    {
        return;
    }
    frame.start = thread.clock();
    opens(thread, number, function, frame);
    if let Effect::Communicates { .. } = function.does {
        begins(&thread.collective, frame);
    } else if is_nccl_memory(function) {
        begins(&thread.nccl_memory, frame);
    }
    // Frees are recorded before the call, since another thread may get the same address during the
    // call.
    if let Effect::Frees { stream, memory } = function.does
        && frame.register(0) != 0
        && !is_within(&thread.nccl_memory, frame)
    {
        let is_slow = stream.is_none() && memory == memory::DEVICE;
        let stream = stream.map_or(0, |at| frame.register(at));
        let stack = u64::from(stack_of_memory(thread, frame, is_slow));
        let payload = [frame.register(0), 0, stream, stack | 1 << 32];
        ring::quick(thread, ExtKind::HostMemory, number, frame.start, &payload);
    }
}

/// Says in the thread's slot that it is in a call that may wait for a device or for other ranks. A
/// call of MPI counts rather than the calls that it makes; other than those, the outer call counts.
#[inline(always)]
fn opens(thread: &Thread, number: u32, function: &Function, frame: &Frame) {
    match function.does {
        Effect::Meets { .. } => {
            thread.slot().open_call.store(OpenCall::word(number, frame.start), Relaxed);
        }
        Effect::Plain { .. } | Effect::Copies { .. } | Effect::Communicates { .. } => {
            opens_outer(thread, number, frame.start);
        }
        _ => {}
    }
}

#[inline(always)]
fn opens_outer(thread: &Thread, number: u32, start: u64) {
    let open = &thread.slot().open_call;
    if open.load(Relaxed) == 0 {
        open.store(OpenCall::word(number, start), Relaxed);
    }
}

/// Says that the call has returned, if it was the one in the thread's slot.
#[inline(always)]
fn closes(thread: &Thread, number: u32, frame: &Frame) {
    let open = &thread.slot().open_call;
    if open.load(Relaxed) == OpenCall::word(number, frame.start) {
        open.store(0, Relaxed);
    }
}

/// Whether this is an allocation or free by NCCL. `ncclMemAlloc` itself calls the CUDA runtime or
/// driver. Those inner calls are hooked too, unless NCCL has the runtime linked in, and must not
/// count again.
fn is_nccl_memory(function: &Function) -> bool {
    function.library == Library::Nccl
        && matches!(function.does, Effect::Allocates { .. } | Effect::Frees { .. })
}

fn begins(outer: &OuterCall, frame: &Frame) {
    outer.sp.set(frame.sp());
    outer.start.set(frame.start);
}

/// Whether NCCL itself makes this call within an outer call of the program; for example,
/// `ncclBcast` calls `ncclBroadcast` by its public name. The outer call's frame is further up on
/// the stack and still contains the clock of its beginning. If that clock differs from the stored
/// one, the outer call was left without a return (by an exception), and this call isn't within it.
#[inline]
fn is_within(outer: &OuterCall, frame: &Frame) -> bool {
    let sp = outer.sp.get();
    if sp <= frame.sp() {
        return false;
    }
    // SAFETY: `sp` is that of an earlier frame of this thread, and is above the running frame, so
    // the memory is still part of the stack.
    unsafe { Frame::start_of(sp) == outer.start.get() }
}

/// Records a hooked call that has returned.
pub fn leave(number: u32, frame: &Frame) {
    if frame.start == 0 {
        return;
    }
    let Some(function) = FUNCTIONS.get(number as usize) else { return };
    let Some(thread) = gate::recording() else { return };
    let end = thread.clock();
    closes(thread, number, frame);
    let succeeded = frame.result as u32 == 0;
    let lacks_memory = frame.result as u32 == OUT_OF_MEMORY;
    let (mut stream, mut kind, mut detail) = (0, 0, 0);
    if is_nccl_memory(function) {
        thread.nccl_memory.sp.set(0);
    }
    match function.does {
        Effect::Plain { stream: of } => {
            stream = of.map_or(0, |at| frame.register(at));
            if number == Number::cudaStreamDestroy as u32 {
                streams::destroyed(stream);
            }
        }
        Effect::Launches { kernel, stream: of } => {
            detail = frame.register(kernel);
            if succeeded {
                stream = frame.at(of);
                kernels::launched(thread, detail, end);
                streams::used(thread, number, stream, end);
            }
        }
        Effect::Copies { bytes, kind: of, stream: to } => {
            stream = to.map_or(0, |at| frame.register(at));
            kind = of.map_or(0, |at| frame.register(at) as u32 as u64 + 1);
            detail = frame.register(bytes);
            if succeeded {
                streams::used(thread, number, stream, end);
            }
        }
        Effect::Allocates { bytes, stream: of, memory } => {
            stream = of.map_or(0, |at| frame.register(at));
            if succeeded {
                detail = taken(frame, bytes);
                if !is_within(&thread.nccl_memory, frame) {
                    allocated(thread, number, frame, memory, [detail, stream], end);
                }
            } else if lacks_memory {
                detail = asked(frame, bytes);
            }
        }
        Effect::Frees { stream: of, .. } => stream = of.map_or(0, |at| frame.register(at)),
        Effect::Selects => {
            detail = frame.register(0) & 0xffff_ffff;
            streams::moved(thread);
        }
        Effect::Limits => detail = frame.register(0) & 0xffff_ffff,
        // The record has the time before the call. Otherwise memory that another thread allocates
        // during the call would count as freed by it.
        Effect::Resets { named } if succeeded => {
            let device = if named { frame.register(0).wrapping_add(1) & 0xffff_ffff } else { 0 };
            let payload = [0, 0, device, 1 << 32];
            ring::quick(thread, ExtKind::HostMemory, number, frame.start, &payload);
        }
        Effect::Maps(how) if succeeded && !is_within(&thread.nccl_memory, frame) => {
            mapped(thread, number, frame, how, end)
        }
        Effect::Maps(Mapping::Create) if lacks_memory => detail = frame.register(1),
        Effect::MakesContext if succeeded => {
            contexts::made();
            streams::moved(thread);
        }
        Effect::Ends => {
            detail = frame.register(0);
            streams::moved(thread);
        }
        Effect::Resets { .. } | Effect::MakesContext | Effect::Maps(_) | Effect::Finds => {}
        Effect::MeasuresFree if succeeded => {
            // SAFETY: the function succeeded, so it has stored the free bytes there.
            reports::measured_free(thread, unsafe { word(frame.register(0), 0) });
        }
        Effect::Instantiates { flags } => detail = if succeeded { frame.at(flags) } else { 0 },
        Effect::Handles if succeeded => kernels::handle_made(frame),
        Effect::Conditions | Effect::Registers | Effect::Handles => {}
        Effect::Profiles { .. } | Effect::Reports(_) | Effect::MeasuresFree => {}
        Effect::Meets { .. } => return met(number, frame, function.does, end),
        Effect::Communicates { .. } => {
            thread.collective.sp.set(0);
            return communicated(thread, number, frame, function.does, end);
        }
        Effect::Joins(how) => joined(thread, number, frame, how, end),
        Effect::Multiplies(of) => {
            let shape = if succeeded { gemm::of_call(frame, of) } else { None };
            return multiplied(number, frame, shape, end);
        }
        Effect::Matmul => {
            let shape = if succeeded { gemm::of_matmul(frame) } else { None };
            return multiplied(number, frame, shape, end);
        }
    }
    let result = u64::from(frame.result as u32) | kind << 32;
    let takes_memory =
        matches!(function.does, Effect::Allocates { .. } | Effect::Maps(Mapping::Create));
    let may_wait = matches!(function.does, Effect::Plain { .. } | Effect::Copies { .. });
    let is_long = may_wait && is_due(thread, end.saturating_sub(frame.start));
    if is_long || takes_memory && lacks_memory {
        let stack = u64::from(stacks::with_python(thread, frame.sp(), frame.fp));
        let payload = [end, result, stream, detail, stack];
        ring::quick(thread, ExtKind::HostCall, number, frame.start, &payload);
        return;
    }
    ring::quick(thread, ExtKind::HostCall, number, frame.start, &[end, result, stream, detail]);
}

/// Time that a thread spends in calls from one stack to the next, in units of 1,024 ticks: about 10
/// ms. Stacks are limited because they are expensive: if the GIL was released, Python's frames are
/// read through the kernel, which may take 50 us.
const BETWEEN_STACKS: u64 = 30_000;

/// Whether this call, which took `ticks`, gets a stack. So each call site gets stacks in proportion
/// to its share of the time in such calls, most of which is waiting for a device.
#[inline(always)]
fn is_due(thread: &Thread, ticks: u64) -> bool {
    let spent = u64::from(thread.in_calls.get()) + ticks / 1024;
    thread.in_calls.set((spent % BETWEEN_STACKS) as u16);
    spent >= BETWEEN_STACKS
}

/// `cudaErrorMemoryAllocation` and `CUDA_ERROR_OUT_OF_MEMORY`. A function that returns this value
/// has read its arguments, so they were valid.
const OUT_OF_MEMORY: u32 = 2;

/// Bytes that a failed allocation requested. [`taken`] uses the pitch that a successful call
/// stores. Here rows count without the device's padding.
fn asked(frame: &Frame, bytes: SizeArgument) -> u64 {
    match bytes {
        SizeArgument::Pitch => frame.register(2).wrapping_mul(frame.register(3)),
        SizeArgument::Extent => {
            frame.stack(0).wrapping_mul(frame.stack(1)).wrapping_mul(frame.stack(2))
        }
        SizeArgument::Plain => frame.register(1),
        // The driver may run out of memory for itself before it reads the descriptor at argument 1.
        _ if frame.register(1) == 0 => 0,
        _ => taken(frame, bytes),
    }
}

/// Bytes that a successful allocation reserved.
fn taken(frame: &Frame, bytes: SizeArgument) -> u64 {
    match bytes {
        SizeArgument::Plain => frame.register(1),
        SizeArgument::Pitch => {
            // SAFETY: the function succeeded, so it has stored the pitch there.
            unsafe { word(frame.register(1), 0) }.wrapping_mul(frame.register(3))
        }
        SizeArgument::Extent => {
            // SAFETY: the function succeeded, so it has stored a `cudaPitchedPtr` there: pointer,
            // pitch, ….
            let pitch = unsafe { word(frame.register(0), 8) };
            pitch.wrapping_mul(frame.stack(1)).wrapping_mul(frame.stack(2))
        }
        SizeArgument::Array | SizeArgument::ArrayExtent | SizeArgument::Levels => {
            array_bytes::of_channels(frame, bytes)
        }
        SizeArgument::Descriptor | SizeArgument::Descriptor3D => {
            array_bytes::of_descriptor(frame, bytes)
        }
        SizeArgument::Unknown => 0,
    }
}

/// The stack of a call that allocates or frees memory; with Python's functions if the call goes to
/// the driver each time, which takes much longer than the stack.
fn stack_of_memory(thread: &Thread, frame: &Frame, is_slow: bool) -> u32 {
    match is_slow {
        true => stacks::with_python(thread, frame.sp(), frame.fp),
        false => stacks::stack(thread, frame.sp(), frame.fp),
    }
}

fn allocated(
    thread: &Thread,
    number: u32,
    frame: &Frame,
    of: u32,
    [bytes, stream]: [u64; 2],
    clock: u64,
) {
    let stack = stack_of_memory(thread, frame, of == memory::DEVICE);
    let address = match of {
        memory::REGISTERED => frame.register(0),
        // SAFETY: the function succeeded, so it has stored the address in the first word there.
        _ => unsafe { word(frame.register(0), 0) },
    };
    if address != 0 {
        let (kind, stack) = (ExtKind::HostMemory, u64::from(stack));
        match contexts::current() {
            None => ring::quick(thread, kind, number, clock, &[address, bytes, stream, stack]),
            Some([context, device]) => {
                let payload = [address, bytes, stream, stack, context, device];
                ring::quick(thread, kind, number, clock, &payload)
            }
        };
    }
}

/// Records that physical memory was made, mapped or released. When memory is acquired, the record
/// has the time after the call. When memory is given up, it has the time before the call.
fn mapped(thread: &Thread, number: u32, frame: &Frame, how: Mapping, end: u64) {
    // SAFETY: the function succeeded, so it has stored the handle there.
    let handle = || unsafe { word(frame.register(0), 0) };
    let (clock, [object, bytes, other], stack) = match how {
        Mapping::Create => {
            // SAFETY: the function has read a `CUmemAllocationProp` there: two 32-bit words, then
            // the location's type and id.
            let place = unsafe { word(frame.register(2), 8) };
            let stack = stacks::stack(thread, frame.sp(), frame.fp);
            (end, [handle(), frame.register(1), place], stack)
        }
        Mapping::Import | Mapping::Retain => (end, [handle(), 0, 0], 0),
        Mapping::Map => (end, [frame.register(0), frame.register(1), frame.register(3)], 0),
        Mapping::Unmap => (frame.start, [frame.register(0), frame.register(1), 0], 0),
        Mapping::Release => (frame.start, [frame.register(0), 0, 0], 0),
    };
    let payload = [object, bytes, other, u64::from(stack)];
    ring::quick(thread, ExtKind::HostMemory, number, clock, &payload);
}

fn communicated(thread: &Thread, number: u32, frame: &Frame, does: Effect, end: u64) {
    let Effect::Communicates { elements, peer, communicator, stream } = does else { return };
    let (count, data_type) =
        elements.map_or((0, NO_TYPE), |(count, of)| (frame.register(count), frame.register(of)));
    let payload = [
        end,
        u64::from(frame.result as u32) | data_type << 32,
        frame.at(communicator),
        count,
        frame.at(stream),
        peer.map_or(0, |at| u64::from(frame.register(at) as u32) + 1),
    ];
    ring::quick(thread, ExtKind::Collective, number, frame.start, &payload);
}

/// Records a matrix product. This looks up the thread again, since [`gemm::of_matmul`] called the
/// library, which may have called another hook.
fn multiplied(number: u32, frame: &Frame, shape: Option<wire::Shape>, end: u64) {
    let Some(thread) = gate::recording() else { return };
    let payload = wire::pack(end, frame.result as u32, shape.as_ref());
    ring::quick(thread, ExtKind::Gemm, number, frame.start, &payload);
}

/// Records an MPI call, after asking MPI what was exchanged. This looks up the thread again for the
/// same reason as [`multiplied`].
fn met(number: u32, frame: &Frame, does: Effect, end: u64) {
    let Effect::Meets { message, peer, communicator } = does else { return };
    let (mut ranks, mut bytes) = (0, NO_BYTES);
    if frame.result as u32 == 0 {
        ranks = mpi::ranks(frame, frame.at(communicator));
        bytes = mpi::bytes(frame, message, ranks);
    }
    // A negative rank means any rank, or none.
    let peer = peer.map(|at| frame.at(at) as u32 as i32).filter(|peer| *peer >= 0);
    let peer = peer.map_or(0, |peer| peer as u64 + 1);
    let Some(thread) = gate::recording() else { return };
    let result = u64::from(frame.result as u32) | peer << 32;
    let payload = [end, result, ranks, bytes];
    ring::quick(thread, ExtKind::HostCall, number, frame.start, &payload);
}

/// `ncclInProgress`: the call has returned a non-blocking communicator that NCCL is still making.
const IN_PROGRESS: u32 = 7;
/// Used as `ncclDataType_t` where no data is exchanged.
const NO_TYPE: u64 = u32::MAX as u64;
/// Maximum number of ids or ranks of a list that the hook reads.
const LIST_MOST: u64 = 1 << 16;

fn joined(thread: &Thread, number: u32, frame: &Frame, how: Joins, clock: u64) {
    let is_made = matches!(frame.result as u32, 0 | IN_PROGRESS);
    // SAFETY: the call succeeded or is in progress, so the function has stored the communicator
    // there.
    let made = |at: u8| if is_made { unsafe { word(frame.register(at), 0) } } else { 0 };
    let parent = frame.register(0);
    let narrow = |at: u8| u64::from(frame.register(at) as u32);
    // Values that the arguments don't have are 0. NCCL can't be queried for them, since it may
    // still be making the communicator.
    let payload = match how {
        Joins::Rank => [made(0), identity(frame), narrow(1), narrow(2), 0, 0],
        Joins::Scalable => {
            // If the call was refused, the number of ids may have any value.
            let ids = if is_made { narrow(3) * 16 } else { 0 };
            // SAFETY: the function has read `ids` words there, 16 per id.
            let identity = unsafe { words(frame.register(4), ids) };
            [made(0), identity, narrow(1), narrow(2), 0, 0]
        }
        Joins::All => return joined_all(thread, number, frame, is_made, clock),
        Joins::Split => [made(3), 0, 0, 0, parent, narrow(1) | frame.register(2) << 32],
        Joins::Shrink => {
            let ranks = if is_made { narrow(2) } else { 0 };
            let (whole, odd) = (ranks / 2, ranks & 1);
            // SAFETY: the function has read `whole` pairs of 32-bit ranks there.
            let list = unsafe { words(frame.register(1), whole) };
            let last = match odd {
                // SAFETY: the function has read the list's last rank there.
                1 => unsafe { half(frame.register(1), whole as usize * 8) },
                _ => 0,
            };
            [made(3), fnv1a_on(list, &last.to_le_bytes()), 0, 0, parent, narrow(2)]
        }
        Joins::Grow => {
            let identity = match frame.register(2) {
                // SAFETY: the function, which succeeded, has read an id of 16 words there.
                id if is_made && id != 0 => unsafe { words(id, 16) },
                _ => 0,
            };
            [made(4), identity, narrow(1), narrow(3), parent, 0]
        }
        Joins::Leaves => [parent, 0, 0, 0, 0, 0],
    };
    ring::quick(thread, ExtKind::Communicator, number, clock, &payload);
}

/// Records all communicators of `ncclCommInitAll`, whose ranks are all in this process. The number
/// in place of an id must only be unique in this process.
fn joined_all(thread: &Thread, number: u32, frame: &Frame, is_made: bool, clock: u64) {
    let ranks = u64::from(frame.register(1) as u32).min(LIST_MOST);
    let identity =
        fnv1a_on(fnv1a_on(FNV_BASIS, &clock.to_le_bytes()), &thread.tid.get().to_le_bytes());
    for rank in 0..if is_made { ranks } else { 0 } {
        // SAFETY: the function has stored that many communicators there.
        let made = unsafe { word(frame.register(0), rank as usize * 8) };
        let payload = [made, identity, ranks, rank, 0, 0];
        ring::quick(thread, ExtKind::Communicator, number, clock, &payload);
    }
}

/// A number that is the same in all ranks of a communicator: a hash (FNV-1a) of the 128-byte id,
/// which every rank passes.
fn identity(frame: &Frame) -> u64 {
    (0..16).fold(FNV_BASIS, |hash, at| fnv1a_on(hash, &frame.stack(at).to_le_bytes()))
}

/// The hash of `count` words in memory.
///
/// # Safety
/// `address` is 0, or `count` words can be read there.
unsafe fn words(address: u64, count: u64) -> u64 {
    (0..count.min(LIST_MOST)).fold(FNV_BASIS, |hash, at| {
        // SAFETY: the caller guarantees that `count` words can be read at `address`.
        fnv1a_on(hash, &unsafe { word(address, at as usize * 8) }.to_le_bytes())
    })
}

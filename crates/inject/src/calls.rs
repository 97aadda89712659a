//! What the hooks of CUDA's runtime and driver, of NCCL and of cuBLAS report.
//!
//! One hook serves every function (`preload-shim/src/hooks/calls.rs`): it keeps
//! the arguments as they came in a [`Frame`], and the table in
//! [`tprof_wire::calls`] defines their meaning.

use crate::block::Thread;
use crate::frame::{Frame, word};
use crate::{array_bytes, gate, gemm, ring, stacks};
use tprof_wire::calls::{Bytes, Does, FUNCTIONS, Joins, Mapping, memory};
use tprof_wire::gemm as wire;
use tprof_wire::hash::{FNV_BASIS, fnv1a_on};
use tprof_wire::record::ExtKind;

/// Memory is taken and given back, communicators are made, devices selected,
/// whether or not recording is on at this moment: what happens later refers to them.
fn matters(does: Does) -> bool {
    matches!(
        does,
        Does::Allocates { .. }
            | Does::Frees { .. }
            | Does::Resets { .. }
            | Does::Maps(_)
            | Does::Joins(_)
            | Does::Selects
            | Does::Instantiates { .. }
            | Does::Conditions
    )
}

/// A function is about to be called.
pub fn enter(number: u32, frame: &mut Frame) {
    frame.start = 0;
    let Some(function) = FUNCTIONS.get(number as usize) else { return };
    let Some(thread) = gate::recording() else { return };
    if !thread.calls.get() || !(thread.is_on() || matters(function.does)) {
        return;
    }
    frame.start = thread.clock();
    // Before the call, as of any free: another thread may be given the address.
    if let Does::Frees { stream, .. } = function.does
        && frame.register(0) != 0
    {
        let stream = stream.map_or(0, |at| frame.register(at));
        let payload = [frame.register(0), 0, stream, 1 << 32];
        ring::quick(thread, ExtKind::HostMemory, number, frame.start, &payload);
    }
}

/// It returned.
pub fn leave(number: u32, frame: &Frame) {
    if frame.start == 0 {
        return;
    }
    let Some(function) = FUNCTIONS.get(number as usize) else { return };
    let Some(thread) = gate::recording() else { return };
    let end = thread.clock();
    let succeeded = frame.result as u32 == 0;
    let (mut stream, mut kind, mut detail) = (0, 0, 0);
    match function.does {
        Does::Plain { stream: of } => stream = of.map_or(0, |at| frame.register(at)),
        Does::Launches { kernel, stream: of } => {
            stream = if succeeded { frame.at(of) } else { 0 };
            detail = frame.register(kernel);
        }
        Does::Copies { bytes, kind: of, stream: to } => {
            stream = to.map_or(0, |at| frame.register(at));
            kind = of.map_or(0, |at| frame.register(at) as u32 as u64 + 1);
            detail = frame.register(bytes);
        }
        Does::Allocates { bytes, stream: of, memory } => {
            stream = of.map_or(0, |at| frame.register(at));
            if succeeded {
                detail = taken(frame, bytes);
                allocated(thread, number, frame, memory, [detail, stream], end);
            }
        }
        Does::Frees { stream: of, .. } => stream = of.map_or(0, |at| frame.register(at)),
        Does::Selects => detail = frame.register(0),
        // As of before the call: what another thread takes meanwhile is not given back.
        Does::Resets { named } if succeeded => {
            let device = if named { frame.register(0).wrapping_add(1) & 0xffff_ffff } else { 0 };
            let payload = [0, 0, device, 1 << 32];
            ring::quick(thread, ExtKind::HostMemory, number, frame.start, &payload);
        }
        Does::Maps(how) if succeeded => mapped(thread, number, frame, how, end),
        Does::Resets { .. } | Does::Maps(_) | Does::Finds => {}
        Does::Instantiates { flags } => detail = if succeeded { frame.at(flags) } else { 0 },
        Does::Conditions => {}
        Does::Communicates { .. } => {
            return communicated(thread, number, frame, function.does, end);
        }
        Does::Joins(how) => joined(thread, number, frame, how, succeeded, end),
        Does::Multiplies(of) => {
            let shape = if succeeded { gemm::of_call(frame, of) } else { None };
            return multiplied(number, frame, shape, end);
        }
        Does::Matmul => {
            let shape = if succeeded { gemm::of_matmul(frame) } else { None };
            return multiplied(number, frame, shape, end);
        }
    }
    let result = u64::from(frame.result as u32) | kind << 32;
    ring::quick(thread, ExtKind::HostCall, number, frame.start, &[end, result, stream, detail]);
}

/// Bytes that a successful allocation took.
fn taken(frame: &Frame, bytes: Bytes) -> u64 {
    match bytes {
        Bytes::Plain => frame.register(1),
        // SAFETY: the function has stored the pitch there.
        Bytes::Pitch => unsafe { word(frame.register(1), 0) }.wrapping_mul(frame.register(3)),
        Bytes::Extent => {
            // SAFETY: the function has stored a `cudaPitchedPtr` there: pointer, pitch, ….
            let pitch = unsafe { word(frame.register(0), 8) };
            pitch.wrapping_mul(frame.stack(1)).wrapping_mul(frame.stack(2))
        }
        Bytes::Array | Bytes::ArrayExtent | Bytes::Levels => array_bytes::of_channels(frame, bytes),
        Bytes::Descriptor | Bytes::Descriptor3D => array_bytes::of_descriptor(frame, bytes),
        Bytes::Unknown => 0,
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
    let stack = stacks::stack(thread, frame.sp(), frame.fp);
    let address = match of {
        memory::REGISTERED => frame.register(0),
        // SAFETY: the function has stored the address there, first of what it stores.
        _ => unsafe { word(frame.register(0), 0) },
    };
    if address != 0 {
        let payload = [address, bytes, stream, u64::from(stack)];
        ring::quick(thread, ExtKind::HostMemory, number, clock, &payload);
    }
}

/// Physical memory was made, mapped or given up. What takes something is stamped after the call,
/// what gives something up as of before it.
fn mapped(thread: &Thread, number: u32, frame: &Frame, how: Mapping, end: u64) {
    // SAFETY: the function has stored the handle there.
    let handle = || unsafe { word(frame.register(0), 0) };
    let (clock, [what, bytes, of], stack) = match how {
        Mapping::Create => {
            // SAFETY: the function has read a `CUmemAllocationProp` there: two words of 32 bits,
            // then the kind of place and its number.
            let place = unsafe { word(frame.register(2), 8) };
            let stack = stacks::stack(thread, frame.sp(), frame.fp);
            (end, [handle(), frame.register(1), place], stack)
        }
        Mapping::Import | Mapping::Retain => (end, [handle(), 0, 0], 0),
        Mapping::Map => (end, [frame.register(0), frame.register(1), frame.register(3)], 0),
        Mapping::Unmap => (frame.start, [frame.register(0), frame.register(1), 0], 0),
        Mapping::Release => (frame.start, [frame.register(0), 0, 0], 0),
    };
    let payload = [what, bytes, of, u64::from(stack)];
    ring::quick(thread, ExtKind::HostMemory, number, clock, &payload);
}

fn communicated(thread: &Thread, number: u32, frame: &Frame, does: Does, end: u64) {
    let Does::Communicates { count, data_type, peer, communicator, stream } = does else { return };
    let payload = [
        end,
        u64::from(frame.result as u32) | frame.register(data_type) << 32,
        frame.at(communicator),
        frame.register(count),
        frame.at(stream),
        peer.map_or(0, |at| u64::from(frame.register(at) as u32) + 1),
    ];
    ring::quick(thread, ExtKind::Collective, number, frame.start, &payload);
}

/// The thread is found again: asking the library for attributes may have come
/// back to a hook.
fn multiplied(number: u32, frame: &Frame, shape: Option<wire::Shape>, end: u64) {
    let Some(thread) = gate::recording() else { return };
    let payload = wire::pack(end, frame.result as u32, shape.as_ref());
    ring::quick(thread, ExtKind::Gemm, number, frame.start, &payload);
}

fn joined(thread: &Thread, number: u32, frame: &Frame, how: Joins, succeeded: bool, clock: u64) {
    let payload = match how {
        // Not asked of the library: a communicator may still be in the making.
        Joins::Rank => {
            let (size, rank) = (frame.register(1) as u32, frame.register(2) as u32);
            // SAFETY: the function has stored the communicator there.
            let made = if succeeded { unsafe { word(frame.register(0), 0) } } else { 0 };
            [made, identity(frame), u64::from(size), u64::from(rank), 0, 0]
        }
        Joins::Split => {
            // SAFETY: the function has stored the communicator there.
            let made = if succeeded { unsafe { word(frame.register(3), 0) } } else { 0 };
            let colour_and_key = frame.register(1) as u32 as u64 | frame.register(2) << 32;
            [made, 0, 0, 0, frame.register(0), colour_and_key]
        }
        Joins::Leaves => [frame.register(0), 0, 0, 0, 0, 0],
    };
    ring::quick(thread, ExtKind::Communicator, number, clock, &payload);
}

/// A number that is the same in every rank: a hash (FNV-1a) of the 128 bytes
/// that all of them gave.
fn identity(frame: &Frame) -> u64 {
    (0..16).fold(FNV_BASIS, |hash, at| fnv1a_on(hash, &frame.stack(at).to_le_bytes()))
}

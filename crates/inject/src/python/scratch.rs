//! Memory in which a thread takes Python frames.

use super::memory::KernelMemory;
use crate::unwind::Walk;
use tprof_wire::python::{FILE_BYTES, MAX_PYTHON_FRAMES, NAME_BYTES, RawFrame, WalkEnd};
use tprof_wire::record::MAX_FRAMES;

/// Words of the longest record: a stack, or a name and a file.
pub const PAYLOAD: usize = {
    let (stack, name) = (1 + MAX_FRAMES + MAX_PYTHON_FRAMES, 4 + (NAME_BYTES + FILE_BYTES) / 8);
    if stack > name { stack } else { name }
};

/// A thread's Python frames.
#[repr(C)]
pub struct PythonFrames {
    /// Frames, the innermost first.
    pub frames: [RawFrame; MAX_PYTHON_FRAMES],
    /// Hashes; bit 0: the frame is the outermost of its call of the loop.
    pub keys: [u64; MAX_PYTHON_FRAMES],
    /// Number of frames.
    pub len: usize,
    /// Hash over `keys`.
    pub hash: u64,
    /// Why they end.
    pub ends: WalkEnd,
    /// The interpreter vouches for its memory.
    pub direct: bool,
    /// Room in which records are put together.
    pub payload: [u64; PAYLOAD],
}

/// The memory that a thread needs to take Python frames: kept outside its stack, which may be a
/// handler's few kilobytes.
#[repr(C)]
pub struct Scratch {
    /// The frames that were taken.
    pub taken: PythonFrames,
    /// Memory that was read through the kernel.
    pub kernel: KernelMemory,
}

impl Scratch {
    /// Hash over the frames and how they end.
    pub fn hash(&self) -> u64 {
        self.taken.hash ^ (self.taken.ends as u64) << 48
    }

    /// The payload of a stack's record.
    pub fn payload(&mut self, walk: &Walk) -> &[u64] {
        let PythonFrames { keys, len, ends, payload, .. } = &mut self.taken;
        let native = walk.len.min(walk.frames.len());
        let python = (*len).min(keys.len());
        let [head, rest @ ..] = &mut *payload;
        *head = native as u64 | (python as u64) << 16 | (*ends as u64) << 32;
        let whole = walk.frames.iter().take(native).chain(keys.iter().take(python));
        for (to, from) in rest.iter_mut().zip(whole) {
            *to = *from;
        }
        payload.get(..1 + native + python).unwrap_or(payload)
    }
}

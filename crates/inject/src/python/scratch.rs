//! The memory in which a thread collects Python frames.

use super::memory::KernelMemory;
use crate::unwind::Walk;
use tprof_wire::python::{FILE_BYTES, MAX_PYTHON_FRAMES, NAME_BYTES, RawFrame, WalkEnd};
use tprof_wire::record::MAX_FRAMES;

/// Words of the longest record: either that of a stack, or that of a name and a file.
pub const PAYLOAD: usize = {
    let (stack, name) = (1 + MAX_FRAMES + MAX_PYTHON_FRAMES, 4 + (NAME_BYTES + FILE_BYTES) / 8);
    if stack > name { stack } else { name }
};

/// A thread's Python frames.
#[repr(C)]
pub struct PythonFrames {
    /// Frames, the innermost first.
    pub frames: [RawFrame; MAX_PYTHON_FRAMES],
    /// Hashes of the frames. Bit 0 is set if the frame is the outermost one of its call of the
    /// evaluation loop.
    pub keys: [u64; MAX_PYTHON_FRAMES],
    /// Number of frames.
    pub len: usize,
    /// Hash over `keys`.
    pub hash: u64,
    /// How the walk over the frames ended.
    pub ends: WalkEnd,
    /// Whether the interpreter's memory was read directly.
    pub direct: bool,
    /// Space in which records are assembled.
    pub payload: [u64; PAYLOAD],
}

/// The memory that a thread needs to take Python frames. It isn't on the thread's stack, since in a
/// signal handler that may be only a few kilobytes.
#[repr(C)]
pub struct Scratch {
    /// The frames that were taken.
    pub taken: PythonFrames,
    /// The reader of memory through the kernel, with its cache.
    pub kernel: KernelMemory,
}

impl Scratch {
    /// Hash of the frames and of how the walk ended.
    pub fn hash(&self) -> u64 {
        self.taken.hash ^ (self.taken.ends as u64) << 48
    }

    /// Assembles the payload of a stack's record.
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

//! Decodes the records that hooks write about calls.

use crate::gpu::texts::unpack_text;
use crate::targets::collectives::JoinCall;
use tprof_wire::calls::{Effect, FUNCTIONS, Function, Report};
use tprof_wire::gemm::{self, Shape};
use tprof_wire::record::ExtKind;

/// A change of memory, as a hook recorded it.
#[derive(Clone, Copy, Debug)]
pub struct MemoryChange {
    /// Address of the memory.
    pub address: u64,
    /// Bytes; 0 for a free.
    pub bytes: u64,
    /// Handle of the stream. For a reset, the device plus one. For a creation of physical memory,
    /// its location; for a mapping, the handle of the mapped memory.
    pub stream: u64,
    /// Id of the stack.
    pub stack: u32,
    /// Whether the call frees the memory.
    pub free: bool,
    /// The context that owns the memory, and its device; `None` if the process created no context.
    pub context: Option<(u64, u32)>,
}

/// What PyTorch's allocator told a profiler.
#[derive(Clone, Copy, Debug)]
pub struct AllocatorReport {
    /// The kind of the report.
    pub of: Report,
    /// Address of the block; 0 if it isn't known.
    pub address: u64,
    /// Bytes of the block, negative if it was taken back; or the bytes that were asked for.
    pub bytes: i64,
    /// Bytes that are given out after the change.
    pub allocated: Option<u64>,
    /// Bytes that are reserved after the change.
    pub reserved: Option<u64>,
    /// Number of the device.
    pub device: u32,
    /// Id of the stack; 0 if there is none.
    pub stack: u32,
    /// For a lack of memory, the bytes that were free on the device.
    pub device_free: Option<u64>,
}

/// A record of a call.
#[derive(Debug)]
pub enum CallNote {
    /// A function returned to its caller.
    Call {
        /// The function that was called.
        function: &'static Function,
        /// The function's number in the list of hooks.
        number: u32,
        /// The thread's clock when the function returned.
        end: u64,
        /// Result of the call.
        result: u32,
        /// Copy kind plus one; 0 if there is none.
        kind: u32,
        /// The handle of the stream that was passed; 0 if there is none.
        stream: u64,
        /// Further data: see [`tprof_wire::calls::HOST_CALL_WORDS`].
        detail: u64,
        /// Id of the stack; 0 if there is none.
        stack: u32,
    },
    /// A call allocated memory or is about to free it. The record of the call itself follows.
    Memory {
        /// The function that was called.
        function: &'static Function,
        /// Number of the function.
        number: u32,
        /// The change of memory.
        change: MemoryChange,
    },
    /// PyTorch's allocator gave out a block or took it back, or had no memory for it.
    Reported(AllocatorReport),
    /// A collective was called.
    Collective {
        /// The function that was called.
        function: &'static Function,
        /// The thread's clock when the call returned.
        end: u64,
        /// Element type, an `ncclDataType_t`.
        data_type: u32,
        /// Address of the communicator.
        communicator: u64,
        /// Number of elements.
        count: u64,
        /// Handle of the stream.
        stream: u64,
        /// The root, or the other rank of a send or receive.
        peer: Option<u32>,
    },
    /// A matrix multiplication: the function, its number, the clock when it returned, its result,
    /// and its shape.
    Gemm(&'static Function, u32, u64, u32, Option<Shape>),
    /// A communicator was created or destroyed.
    Communicator(JoinCall),
    /// A kernel's stub or handle, and its mangled name.
    Kernel(u64, String),
    /// The handle of a stream, and CUPTI's numbers of its context and of the stream.
    Stream(u64, u64),
}

impl CallNote {
    /// Decodes a record; `None` if the record is malformed.
    pub fn of(kind: ExtKind, number: u32, words: &[u64]) -> Option<CallNote> {
        let function = FUNCTIONS.get(number as usize)?;
        let at = |i: usize| words.get(i).copied();
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        Some(match kind {
            ExtKind::HostCall => {
                let (end, result, kind) = (at(0)?, low(at(1)?), high(at(1)?));
                let stack = at(4).map_or(0, low);
                let (stream, detail) = (at(2)?, at(3)?);
                CallNote::Call { function, number, end, result, kind, stream, detail, stack }
            }
            ExtKind::HostMemory => CallNote::Memory {
                function,
                number,
                change: MemoryChange {
                    address: at(0)?,
                    bytes: at(1)?,
                    stream: at(2)?,
                    stack: low(at(3)?),
                    free: high(at(3)?) & 1 != 0,
                    context: at(4).zip(at(5).and_then(|device| low(device).checked_sub(1))),
                },
            },
            ExtKind::Reported => {
                let Effect::Reports(of) = function.does else { return None };
                let total = |i: usize| Some(at(i)?).filter(|bytes| *bytes != u64::MAX);
                let index = (high(at(4)?) >> 8) as u8 as i8;
                CallNote::Reported(AllocatorReport {
                    of,
                    address: at(0)?,
                    bytes: at(1)? as i64,
                    allocated: total(2),
                    reserved: total(3),
                    // The index -1 means the current device of a backend that has only one.
                    device: u32::try_from(index).unwrap_or(0),
                    stack: low(at(4)?),
                    device_free: total(5),
                })
            }
            ExtKind::Collective => CallNote::Collective {
                function,
                end: at(0)?,
                data_type: high(at(1)?),
                communicator: at(2)?,
                count: at(3)?,
                stream: at(4)?,
                peer: low(at(5)?).checked_sub(1),
            },
            ExtKind::Gemm => {
                let (end, result, shape) = gemm::unpack(words)?;
                CallNote::Gemm(function, number, end, result, shape)
            }
            ExtKind::Communicator => CallNote::Communicator(JoinCall {
                number,
                address: at(0)?,
                identity: at(1)?,
                size: low(at(2)?),
                rank: low(at(3)?),
                parent: at(4)?,
                detail: at(5)?,
            }),
            ExtKind::HostStream => CallNote::Stream(at(0)?, at(1)?),
            ExtKind::KernelName => CallNote::Kernel(at(0)?, unpack_text(words.get(1..)?)?),
            _ => return None,
        })
    }
}

//! Decodes the hooks' records that aren't heap events.

use crate::targets::calls::CallNote;
use crate::targets::file_calls::FileNote;
use crate::targets::interned::Definition;
use crate::targets::operators::{OperatorNote, OperatorRecord};
use crate::targets::spans::SpanRecord;
use tprof_sampler::python::SentFrame;
use tprof_wire::io;
use tprof_wire::operators::{Operator, RangeEdge};
use tprof_wire::python::{MAX_PYTHON_FRAMES, WalkEnd};
use tprof_wire::record::{self, ExtKind};

/// The Python frames of a stack that a process took.
#[derive(Debug)]
pub struct PythonKeys {
    /// The key of each frame, innermost first. Bit 0 of a key is a flag of its own: see
    /// [`ExtKind::Stack`].
    pub keys: Vec<u64>,
    /// How the walk over Python's frames ended.
    pub ends: WalkEnd,
}

/// A record of the hooks that isn't a heap event.
#[derive(Debug)]
pub enum Note {
    /// A stack: its id, how it ended, native frames, Python frames.
    Stack(u32, u8, Vec<u64>, PythonKeys),
    /// The name of a Python frame.
    PythonFrame(SentFrame),
    /// `mmap`: address, length, stack id, and whether the memory is anonymous.
    Map(u64, u64, u32, bool),
    /// A mapping was removed: address and length.
    Unmap(u64, u64),
    /// `shmat`: address, length, stack id.
    Attach(u64, u64, u32),
    /// A System V segment was detached from this address.
    Detach(u64),
    /// `mremap`: old length, new address, new length.
    Remap(u64, u64, u64),
    /// The thread was renamed.
    Name(String),
    /// The thread has ended.
    ThreadExit,
    /// The process exits with this status.
    Exit(i32),
    /// The process forked a child with this pid.
    Fork(u32),
    /// The process is about to exec: its pid (0 for a spawned child), whether tprof will be loaded
    /// (the verdict), the parent's pid, the path.
    Exec(u32, u32, u32, String),
    /// The exec of this pid failed.
    ExecFailed(u32),
    /// The process reaped a child: pid, wait status.
    Reaped(u32, i32),
    /// The process spawned a child: its pid, or 0 if the spawn failed.
    Spawned(u32),
    /// A call of a hooked function of CUDA, NCCL, cuBLAS or MPI.
    Call(CallNote),
    /// The name or list of sizes that an id stands for.
    Defined(u32, Definition),
    /// An operator or range of PyTorch.
    Operator(OperatorRecord),
    /// A span, step, instant or value that the program recorded itself.
    Span(SpanRecord),
    /// A call on a file, or a file's name.
    File(FileNote),
}

impl Note {
    /// Decodes a record from its argument and payload; `None` if the record is malformed.
    pub fn decode(kind: ExtKind, argument: u32, p: &[u64]) -> Option<Note> {
        let at = |i: usize| p.get(i).copied();
        Some(match kind {
            ExtKind::Stack => {
                let head = at(0)?;
                let len = ((head & 0xffff) as usize).min(record::MAX_FRAMES);
                let python = ((head >> 16 & 0xffff) as usize).min(MAX_PYTHON_FRAMES);
                let python = PythonKeys {
                    keys: p.get(len + 1..len + 1 + python)?.to_vec(),
                    ends: WalkEnd::of(head >> 32),
                };
                let frames = p.get(1..=len)?.to_vec();
                Note::Stack(argument & 0xff_ffff, (argument >> 24) as u8, frames, python)
            }
            ExtKind::PythonFrame => Note::PythonFrame(SentFrame::decode(p)?),
            ExtKind::Map => {
                let last = at(3)?;
                Note::Map(at(0)?, pages(at(1)?), (last >> 32) as u32, last as u32 as i32 == -1)
            }
            ExtKind::Attach => Note::Attach(at(0)?, pages(at(1)?), at(2)? as u32),
            ExtKind::Detach => Note::Detach(at(0)?),
            ExtKind::Unmap => Note::Unmap(at(0)?, pages(at(1)?)),
            ExtKind::Remap => Note::Remap(pages(at(1)?), at(2)?, pages(at(3)?)),
            ExtKind::ThreadName => {
                let name = text(p.get(..2)?, 16);
                Note::Name(name.trim_end_matches('\0').to_owned())
            }
            ExtKind::ThreadExit => Note::ThreadExit,
            ExtKind::ProcessExit => Note::Exit(at(0)? as i32),
            ExtKind::Fork => Note::Fork(at(0)? as u32),
            ExtKind::Exec => {
                let facts = at(1)?;
                let path = text(p.get(2..)?, argument as usize);
                Note::Exec(at(0)? as u32, facts as u32 & 0xff, (facts >> 32) as u32, path)
            }
            ExtKind::ExecFailed => Note::ExecFailed(at(0)? as u32),
            ExtKind::Reaped => Note::Reaped(at(0)? as u32, at(1)? as i32),
            ExtKind::Spawned => Note::Spawned(at(0)? as u32),
            ExtKind::HostCall
            | ExtKind::HostMemory
            | ExtKind::Collective
            | ExtKind::Communicator
            | ExtKind::Gemm
            | ExtKind::HostStream
            | ExtKind::KernelName
            | ExtKind::Reported => Note::Call(CallNote::of(kind, argument, p)?),
            ExtKind::Name | ExtKind::Sizes => Note::Defined(argument, Definition::decode(kind, p)?),
            ExtKind::Operator => {
                Note::Operator(OperatorRecord::Over(argument, Operator::unpack(p)?))
            }
            ExtKind::RangeOpen => {
                Note::Operator(OperatorRecord::Opens(argument, RangeEdge::unpack(p)?))
            }
            ExtKind::RangeClosed => Note::Operator(OperatorRecord::Closes(RangeEdge::unpack(p)?)),
            ExtKind::OperatorNote => Note::Operator(OperatorRecord::Note(OperatorNote {
                what: argument,
                number: at(0)?,
                other: at(1)?,
            })),
            ExtKind::SpanPush
            | ExtKind::SpanPop
            | ExtKind::SpanStart
            | ExtKind::SpanEnd
            | ExtKind::SpanMark
            | ExtKind::Step
            | ExtKind::CounterValue
            | ExtKind::Flops
            | ExtKind::Switched
            | ExtKind::SpanArguments
            | ExtKind::SpanComplete
            | ExtKind::PoolTook
            | ExtKind::PoolGave
            | ExtKind::StepBegun => Note::Span(SpanRecord::decode(kind, argument, p)?),
            ExtKind::FileCall => {
                let operation = io::Operation::of(argument)?;
                Note::File(FileNote::Call(operation, io::Call::unpack(p)?))
            }
            ExtKind::FileNamed => {
                let (named, words) = io::Named::unpack(p)?;
                let mut name: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                name.truncate(named.bytes as usize);
                Note::File(FileNote::Named(argument, named, name))
            }
            ExtKind::ThreadStart => return Some(Note::Name(String::new())),
            // The caller has handled all other kinds.
            _ => return None,
        })
    }
}

fn text(words: &[u64], len: usize) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).take(len).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Rounds up to whole pages, because the kernel maps and unmaps only whole pages.
fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(4096).unwrap_or(bytes)
}

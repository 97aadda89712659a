//! Turns the notes of an image into rows of the trace and changes of the state of processes.

use crate::gpu::{self, Gpu};
use crate::output::files::Files;
use crate::output::flushing;
use crate::output::processes::Processes;
use crate::shared::clock::Clock;
use crate::targets::calls::Calls;
use crate::targets::code::Code;
use crate::targets::file_calls::FileWork;
use crate::targets::image::{FollowedThread, Note, Notes};
use crate::targets::interned::Interned;
use crate::targets::operators::Operators;
use crate::targets::spans::Spans;
use std::collections::HashMap;
use tprof_trace::HeapBlock;
use tprof_trace::model::*;
use tprof_wire::record::ExtKind;

/// What an image's notes change: its own state, its file, and the state of all processes.
pub struct NoteSink<'a> {
    /// Index of the file, as in [`Target`](super::target::Target).
    pub file: usize,
    /// Index of the process, as in [`Target`](super::target::Target).
    pub index: ProcessIndex,
    /// Number of the image, as in [`Target`](super::target::Target).
    pub number: u64,
    /// Process id, as in [`Target`](super::target::Target).
    pub pid: u32,
    /// The open trace files.
    pub files: &'a mut Files,
    /// What is known of all processes.
    pub processes: &'a mut Processes,
    /// The clock that converts the ticks of targets to ns.
    pub clock: &'a Clock,
    /// The image's calls to CUDA, NCCL, cuBLAS and MPI.
    pub calls: &'a mut Calls,
    /// Names and sizes that the image's hooks have defined.
    pub interned: &'a mut Interned,
    /// The operators of PyTorch that the image ran.
    pub operators: &'a mut Operators,
    /// The spans that the program recorded itself.
    pub spans: &'a mut Spans,
    /// The image's calls on files, pipes and sockets.
    pub file_work: &'a mut FileWork,
    /// The image's code and stacks.
    pub code: &'a mut Code,
    /// Lengths of the image's shared memory segments by address, as in
    /// [`Target`](super::target::Target).
    pub segments: &'a mut HashMap<u64, u64>,
    /// Path of the executable.
    pub exe: &'a str,
    /// The work of the image's devices.
    pub gpu: &'a mut Gpu,
    /// Rows of the image's threads, by their ids.
    pub threads: &'a mut HashMap<u32, ThreadIndex>,
}

impl Notes for NoteSink<'_> {
    fn note(&mut self, thread: &mut FollowedThread, clock: u64, note: Note) {
        let time_ns = self.clock.ns(clock);
        let process = self.index;
        let Some(file) = self.files.open.get_mut(self.file) else { return };
        let writer = &mut file.writer;
        let map = |kind, address, length, old_length, stack| MapEvent {
            time_ns,
            process,
            thread: thread.index,
            kind,
            address,
            length,
            old_length,
            stack,
        };
        match note {
            Note::Stack(stack, end, frames, python) => {
                self.code.take_sent(time_ns, Stack { process, stack, end, frames }, &python);
            }
            Note::PythonFrame(sent) => self.code.define(sent, writer),
            Note::Map(address, length, stack, anonymous) => {
                if anonymous {
                    self.code.mapped(stack, length);
                }
                writer.map(map(MapKind::Map, address, length, 0, stack))
            }
            Note::Unmap(address, length) => writer.map(map(MapKind::Unmap, address, length, 0, 0)),
            Note::Remap(old, address, length) => {
                writer.map(map(MapKind::Remap, address, length, old, 0))
            }
            Note::Attach(address, length, stack) => {
                self.segments.insert(address, length);
                writer.map(map(MapKind::Attach, address, length, 0, stack))
            }
            // If the segment was attached while recording was off, its length is unknown.
            Note::Detach(address) => {
                let length = self.segments.remove(&address).unwrap_or(0);
                writer.map(map(MapKind::Detach, address, length, 0, 0))
            }
            Note::Name(name) => {
                if !name.is_empty() {
                    let name = writer.name(&name);
                    writer.thread_name(thread.index, time_ns, name);
                }
            }
            Note::Call(call) => {
                self.calls.take(call, thread.index, time_ns, self.clock, writer);
                if let Some(call) = self.calls.stack_of_call.take() {
                    self.gpu.call_stacks.called(call);
                }
            }
            Note::Defined(id, definition) => {
                self.interned.define(id, definition, &mut self.processes.losses)
            }
            Note::Operator(record) => {
                let (of, interned) = (self.clock, &mut *self.interned);
                self.operators.take(record, thread.index, clock, of, interned, file);
                if let Some(has_stepped) = self.operators.take_progress() {
                    self.processes.runs_operators(self.number, has_stepped);
                }
            }
            Note::Span(record) => {
                let by = (thread.index, thread.allocated);
                self.spans.take(record, by, time_ns, self.interned, writer);
            }
            Note::File(note) => {
                self.file_work.take(note, (thread.index, thread.tid), time_ns, self.clock);
            }
            Note::ThreadExit => thread.ended = Some(time_ns),
            Note::Exit(status) => self.processes.announces(self.number, status),
            Note::Fork(child) => self.processes.forked(child, self.number, time_ns),
            Note::Exec(0, verdict, _, path) if path == "/proc/self/exe" => {
                thread.spawning = Some((self.exe.to_owned(), verdict, time_ns));
            }
            Note::Exec(pid, verdict, parent, path) if pid != 0 && path == "/proc/self/exe" => {
                self.processes.executes(pid, parent, self.exe.to_owned(), verdict, time_ns);
            }
            Note::Exec(0, verdict, _, path) => thread.spawning = Some((path, verdict, time_ns)),
            Note::Exec(pid, verdict, parent, path) => {
                self.processes.executes(pid, parent, path, verdict, time_ns)
            }
            Note::ExecFailed(pid) => self.processes.exec_failed(pid),
            Note::Reaped(pid, status) => self.processes.reaped(pid, status, time_ns),
            Note::Spawned(pid) => {
                if let Some((path, verdict, at)) = thread.spawning.take()
                    && pid != 0
                {
                    self.processes.spawned(pid, self.pid, path, verdict, at);
                }
            }
        }
    }

    fn agent(
        &mut self,
        thread: &FollowedThread,
        clock: u64,
        kind: ExtKind,
        argument: u32,
        payload: &[u64],
    ) -> bool {
        if let ExtKind::NcclContext
        | ExtKind::NcclCall
        | ExtKind::NcclTask
        | ExtKind::NcclTransfer = kind
        {
            let collectives = &mut self.calls.collectives;
            return collectives.plugin(kind, payload, thread.index, clock, self.clock).is_some();
        }
        let Some(file) = self.files.open.get_mut(self.file) else { return true };
        let mut place = gpu::ThreadRows { file, threads: self.threads };
        let record = gpu::AgentRecord { kind, argument, clock, thread: thread.index, payload };
        let spans = &*self.spans;
        let was_on = |time_ns| spans.was_on(time_ns);
        let losses = &mut self.processes.losses;
        let sound = self.gpu.take(record, &mut place, self.clock, losses, &was_on);
        self.calls.cupti_calls_from_ns = self.gpu.calls_from_ns;
        self.calls.relies_on_hooks = self.gpu.relies_on_hooks;
        if let Some(call) = self.gpu.last_call.take() {
            self.calls.recorded_by_cupti(&call);
        }
        sound
    }

    fn block_full(&mut self, block: &mut HeapBlock) {
        let Some(file) = self.files.open.get_mut(self.file) else { return };
        let events = block.len() as u64;
        if let Err(e) = file.writer.heap(block) {
            self.processes.losses.lose("heap events", flushing::UNWRITTEN, events);
            self.processes.losses.complain(&e.to_string());
        }
    }
}

//! Remembers which code was mapped where in an image, and when. A stack is resolved with the
//! mappings of its own time, and its addresses are queued to be symbolized.
//!
//! After `dlclose` and `dlopen` an address may belong to another function. Therefore a frame in the
//! trace has a generation in the bits above the address: the number of other modules that were
//! mapped at the address before (`docs/format.md`).

mod recent;

use self::recent::Recent;
use super::image::PythonKeys;
use crate::output::shown_path::shown_path;
use crate::targets::mmap_callers::MmapCallers;
use rustc_hash::FxHashSet;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tprof_sampler::python::{FoundPython, SentFrame, SentNames, merge};
use tprof_symbols::ModuleFile;
use tprof_trace::TraceWriter;
use tprof_trace::model::{Module, ProcessIndex, SYNTHETIC_FRAME, Stack};
use tprof_unwind::modules::LoadedModule;
use tprof_wire::python::WalkEnd;
use tprof_wire::record::StackEnd;

/// The lowest bit of a frame's generation. The bits below contain the address.
const ADDRESS_SHIFT: u32 = 57;
const ADDRESS_BITS: u64 = (1 << ADDRESS_SHIFT) - 1;
/// Largest generation that fits above an address.
const MAX_GENERATIONS: u64 = 0x7f;

/// An address to be symbolized: the frame as the trace stores it, the frame's module, and the pc as
/// an ELF address.
pub type UnnamedFrame = (u64, Arc<ModuleFile>, u64);

/// Frames of one process that have to be symbolized.
pub struct Unresolved {
    /// The process that the frames belong to: file index << 32 | process index.
    pub target: u64,
    /// The frames to symbolize.
    pub places: Vec<UnnamedFrame>,
}

/// A module that is mapped or was mapped before.
pub struct MappedModule {
    start: u64,
    end: u64,
    /// Difference between an address and the ELF address, wrapping.
    bias: u64,
    module: Arc<ModuleFile>,
    /// Number of other modules that were mapped at these addresses before.
    generation: u64,
}

/// The Python frames of a stack that the process took itself. Each is stored as in the trace, with
/// whether it is the outermost frame of a call of the interpreter's loop. `ends` says how the walk
/// over Python's frames ended.
struct PythonFrames {
    frames: Vec<(u64, bool)>,
    ends: WalkEnd,
}

/// A Python interpreter. Forked images share it.
pub type SharedPython = Arc<Mutex<FoundPython>>;

/// The code and the stacks of an image.
pub struct Code {
    process: ProcessIndex,
    redact: bool,
    /// Modules that are mapped now, sorted by address, each with the time since which it is mapped.
    current: Vec<(u64, Arc<MappedModule>)>,
    /// Modules that were replaced: the time from which and until which each was mapped, and the
    /// module.
    past: Vec<(u64, u64, Arc<MappedModule>)>,
    /// All modules that were ever mapped.
    known: Vec<Arc<MappedModule>>,
    /// Mappings that were read but are not applied yet, with the time of reading.
    read: VecDeque<(u64, Vec<LoadedModule>)>,
    /// Stacks since the last pass, each with the time when it was taken.
    stacks: Vec<(u64, Stack, PythonFrames)>,
    /// Python frames that the process has named.
    names: SentNames,
    /// Counts the bytes of anonymous memory by the code that mapped them.
    mappers: MmapCallers,
    /// The image's interpreter; forked children share it.
    interpreter: Option<SharedPython>,
    /// All addresses that stacks have contained, as the trace stores them.
    seen: FxHashSet<u64>,
    /// Cached frames of addresses in code that is still mapped.
    recent: Recent,
    /// Addresses for which no module is known yet, each with the time when it was seen.
    unplaced: Vec<(u64, u64)>,
    to_name: Vec<UnnamedFrame>,
    /// Number of stacks that were cut because unwind tables were missing.
    pub not_ready: u64,
    /// Whether the mappings could not be read because the image had already ended.
    pub was_late: bool,
}

impl Code {
    /// Returns the state of a new image. If it is a forked child, it then [inherits](Code::inherit)
    /// its parent's modules.
    pub fn new(process: ProcessIndex, redact: bool) -> Code {
        Code {
            process,
            redact,
            current: Vec::new(),
            past: Vec::new(),
            known: Vec::new(),
            read: VecDeque::new(),
            stacks: Vec::new(),
            names: SentNames::default(),
            mappers: MmapCallers::default(),
            interpreter: None,
            seen: FxHashSet::default(),
            recent: Recent::default(),
            unplaced: Vec::new(),
            to_name: Vec::new(),
            not_ready: 0,
            was_late: false,
        }
    }

    /// Returns the modules that are mapped now, for a forked child to inherit.
    pub fn in_force(&self) -> Vec<Arc<MappedModule>> {
        self.current.iter().map(|(_, p)| Arc::clone(p)).collect()
    }

    /// Adds the modules that are mapped in the parent of this image.
    pub fn inherit(&mut self, from: &[Arc<MappedModule>], now: u64, writer: &mut TraceWriter) {
        for p in from {
            self.place(p.start, p.end, p.bias, Arc::clone(&p.module), now, writer);
        }
        self.locate(0);
    }

    /// Adds a stack, to be written in the next pass. The process waited for its mappings before it
    /// took the stack, so they will have arrived by then.
    pub fn take(&mut self, time_ns: u64, stack: Stack) {
        let none = PythonFrames { frames: Vec::new(), ends: WalkEnd::Whole };
        self.stacks.push((time_ns, stack, none));
    }

    /// Adds a stack like [`Code::take`], with Python frames that the next pass inserts. The process
    /// also waited for its interpreter to be found, so that will be known by then.
    pub fn take_sent(&mut self, time_ns: u64, stack: Stack, python: &PythonKeys) {
        let known =
            python.keys.iter().filter_map(|key| Some((self.names.frame(key & !1)?, key & 1 == 1)));
        let frames = known.collect();
        if let Some(innermost) = stack.frames.first() {
            self.mappers.stack_defined(stack.stack, *innermost, time_ns);
        }
        self.stacks.push((time_ns, stack, PythonFrames { frames, ends: python.ends }));
    }

    /// Counts anonymous memory that a call with this stack mapped.
    pub fn mapped(&mut self, stack: u32, bytes: u64) {
        self.mappers.mapped(stack, bytes);
    }

    /// Returns the modules whose code mapped at least `least` bytes of anonymous memory.
    pub fn mappers(&self, least: u64) -> Vec<Arc<ModuleFile>> {
        let mut sums: HashMap<&Path, (&Arc<ModuleFile>, u64)> = HashMap::new();
        for (address, time_ns, bytes) in self.mappers.all() {
            if let Some(placement) = self.at(address, time_ns) {
                let path = placement.module.path.as_path();
                let (_, sum) = sums.entry(path).or_insert((&placement.module, 0));
                *sum = sum.saturating_add(bytes);
            }
        }
        sums.into_values().filter(|sum| sum.1 >= least).map(|sum| Arc::clone(sum.0)).collect()
    }

    /// Adds the name of a Python frame, which the process sent.
    pub fn define(&mut self, sent: SentFrame, writer: &mut TraceWriter) {
        self.names.define(sent, self.process, self.redact, writer);
    }

    /// Gives up on the names of Python frames that never arrived, and returns their number. The
    /// caller calls this once, at the end.
    pub fn drop_undefined_names(&mut self, writer: &mut TraceWriter) -> u64 {
        self.names.give_up(self.process, writer)
    }

    /// Sets the process's interpreter.
    pub fn interprets(&mut self, interpreter: SharedPython) {
        self.interpreter = Some(interpreter);
    }

    /// Returns the image's interpreter, for a forked child.
    pub fn interpreter(&self) -> Option<SharedPython> {
        self.interpreter.clone()
    }

    /// Inserts the Python frames into a stack, between the frames of the interpreter's loop.
    fn put_python_in(&self, stack: &mut Stack, python: PythonFrames) {
        if python.frames.is_empty() {
            return;
        }
        let mut found = self
            .interpreter
            .as_ref()
            .map(|found| found.lock().unwrap_or_else(PoisonError::into_inner));
        let is_loop = |frame: &u64| found.as_mut().is_some_and(|found| found.is_loop(*frame));
        let whole = stack.end == StackEnd::Whole as u8;
        let cut = python.ends != WalkEnd::Whole;
        stack.frames = merge(std::mem::take(&mut stack.frames), python.frames, whole, cut, is_loop);
        stack.end = match python.ends {
            // A stack whose Python frames are complete counts as whole, even if the walk over
            // native frames was cut.
            WalkEnd::Whole => StackEnd::Whole as u8,
            WalkEnd::TooDeep => StackEnd::TooDeep as u8,
            WalkEnd::Unreadable => stack.end,
        };
    }

    /// Queues the mappings as they were at `read_ns`. They are applied when stacks need them.
    pub fn take_modules(&mut self, read_ns: u64, modules: Vec<LoadedModule>) {
        // The queue must be in order of time. The sampler may have reported newer mappings than the
        // worker has read.
        let at = self.read.partition_point(|(time, _)| *time <= read_ns);
        self.read.insert(at, (read_ns, modules));
    }

    /// Whether there are stacks but no mappings to resolve them with.
    pub fn has_unresolved_stacks(&self) -> bool {
        let none = self.current.is_empty() && self.read.is_empty();
        none && !(self.unplaced.is_empty() && self.stacks.is_empty())
    }

    /// Returns the number of addresses that will stay without a name because their mapping was not
    /// read.
    pub fn nameless(&self) -> u64 {
        // If the mappings were read, an address without a module is in code that no file contains,
        // such as compiled at run time.
        let unread = self.current.is_empty() || self.was_late;
        if unread { self.unplaced.len() as u64 } else { 0 }
    }

    /// Writes the stacks taken so far, each resolved with the mappings of its time.
    pub fn write_stacks(&mut self, writer: &mut TraceWriter) {
        self.mappers.pass_ended();
        if self.stacks.is_empty() {
            return;
        }
        let mut stacks = std::mem::take(&mut self.stacks);
        stacks.sort_by_key(|(time, ..)| *time);
        for (time, mut stack, python) in stacks.drain(..) {
            self.learn(time, writer);
            self.not_ready += u64::from(stack.end == StackEnd::NotReady as u8);
            self.put_python_in(&mut stack, python);
            let settled = self.unplaced.len();
            for frame in stack.frames.iter_mut().filter(|f| **f & SYNTHETIC_FRAME == 0) {
                *frame = self.frame(*frame & ADDRESS_BITS, time);
            }
            writer.stack(&stack);
            // Only this stack's addresses are looked up. For older ones nothing has changed since
            // the last try.
            self.locate(settled);
        }
        self.stacks = stacks;
    }

    /// Returns the trace's frame for an address. If the frame is new, queues it to be symbolized.
    fn frame(&mut self, address: u64, time_ns: u64) -> u64 {
        if let Some(frame) = self.recent.frame(address, time_ns) {
            return frame;
        }
        let generation = self.at(address, time_ns).map_or(0, |p| p.generation);
        let frame = address | generation << ADDRESS_SHIFT;
        if self.seen.insert(frame) {
            self.unplaced.push((frame, time_ns));
        }
        let since_ns = self.in_force_at(address).map(|(since, _)| *since);
        if let Some(since_ns) = since_ns.filter(|since| *since <= time_ns) {
            self.recent.remember(address, since_ns, frame);
        }
        frame
    }

    /// Applies the queued mappings that were read until this time.
    pub fn learn(&mut self, until_ns: u64, writer: &mut TraceWriter) {
        while self.read.front().is_some_and(|(time, _)| *time <= until_ns) {
            let Some((time, modules)) = self.read.pop_front() else { break };
            for m in modules {
                self.place(m.start, m.end, m.bias, Arc::new(m.module_file()), time, writer);
            }
            self.locate(0);
        }
    }

    /// Queues a frame of the kernel to be symbolized.
    pub fn name_kernel(&mut self, frame: u64, address: u64) {
        self.to_name.push((frame, tprof_symbols::kernel(), address));
    }

    /// Returns the addresses to be symbolized, and removes them from the queue.
    pub fn drain_unnamed(&mut self) -> Vec<UnnamedFrame> {
        std::mem::take(&mut self.to_name)
    }

    /// Returns the module that contained a return address at a time. If that is unknown, returns
    /// the module that contains it now.
    fn at(&self, address: u64, time_ns: u64) -> Option<&Arc<MappedModule>> {
        let pc = address.wrapping_sub(1);
        let now = self.in_force_at(address);
        if now.is_some_and(|(since, _)| *since <= time_ns) {
            return now.map(|(_, p)| p);
        }
        let then = |(since, until, p): &&(u64, u64, Arc<MappedModule>)| {
            (*since..*until).contains(&time_ns) && (p.start..p.end).contains(&pc)
        };
        self.past.iter().rev().find(then).map(|(_, _, p)| p).or(now.map(|(_, p)| p))
    }

    /// Returns the module that contains a return address now, and the time since which it is
    /// mapped.
    fn in_force_at(&self, address: u64) -> Option<&(u64, Arc<MappedModule>)> {
        let pc = address.wrapping_sub(1);
        let after = self.current.partition_point(|(_, p)| p.start <= pc);
        let now = after.checked_sub(1).and_then(|i| self.current.get(i));
        now.filter(|(_, p)| pc < p.end)
    }

    /// Applies one mapping, and writes the module's row if the module is new.
    fn place(
        &mut self,
        start: u64,
        end: u64,
        bias: u64,
        module: Arc<ModuleFile>,
        time_ns: u64,
        writer: &mut TraceWriter,
    ) {
        self.recent.forget();
        let same = |p: &MappedModule| {
            (p.start, p.end, p.bias) == (start, end, bias) && p.module.is_same_file(&module)
        };
        if let Some((since, _)) = self.current.iter_mut().find(|(_, p)| same(p)) {
            *since = time_ns.min(*since);
            return;
        }
        // The new module replaces the modules that overlap it, and these move to `past`. But if one
        // of them was mapped later than the new module, this report is late: the new module itself
        // has already been replaced.
        let overlaps = |p: &MappedModule| p.start < end && start < p.end;
        let later = self.current.iter().filter(|(since, p)| *since > time_ns && overlaps(p));
        let gone_ns = later.map(|(since, _)| *since).min();
        if gone_ns.is_none() {
            let past = &mut self.past;
            self.current.retain(|(since, p)| {
                let stays = !overlaps(p);
                if !stays {
                    past.push((*since, time_ns, Arc::clone(p)));
                }
                stays
            });
        }
        // A module that is mapped again at its old place has its old generation.
        let placement = match self.known.iter().find(|p| same(p)) {
            Some(known) => Arc::clone(known),
            None => {
                let path = shown_path(&module.path, self.redact);
                let row = Module {
                    process: self.process,
                    start,
                    end,
                    bias,
                    path: writer.name(&path),
                    build_id: writer.name(&module.build_id),
                    time_ns,
                };
                writer.module(&row);
                let others = self.known.iter().filter(|p| p.start < end && start < p.end);
                let generation = others.map(|p| p.generation + 1).max().unwrap_or(0);
                let generation = generation.min(MAX_GENERATIONS);
                let new = Arc::new(MappedModule { start, end, bias, module, generation });
                self.known.push(Arc::clone(&new));
                new
            }
        };
        if let Some(gone_ns) = gone_ns {
            self.past.push((time_ns, gone_ns, placement));
            return;
        }
        let at = self.current.partition_point(|(_, p)| p.start <= start);
        self.current.insert(at, (time_ns, placement));
    }

    /// Finds the modules of addresses that have none yet, beginning at index `from`.
    fn locate(&mut self, from: usize) {
        let mut kept = from;
        for i in from..self.unplaced.len() {
            let Some(&(frame, time_ns)) = self.unplaced.get(i) else { break };
            let address = frame & ADDRESS_BITS;
            let Some(p) = self.at(address, time_ns) else {
                self.unplaced.swap(kept, i);
                kept += 1;
                continue;
            };
            let pc = address.wrapping_sub(1).wrapping_sub(p.bias);
            self.to_name.push((frame, Arc::clone(&p.module), pc));
        }
        self.unplaced.truncate(kept);
    }
}

//! Keeps which code was mapped where in an image, and when. Stacks are read by the mappings of
//! their own time, and their addresses are passed on to be symbolized.
//!
//! After `dlclose` and `dlopen` an address may belong to another function. Therefore frames in the
//! trace carry, in the bits above the address, the number of other modules that were mapped there
//! before (`docs/format.md`).

mod recent;

use self::recent::Recent;
use super::image::PythonKeys;
use crate::modules::LoadedModule;
use crate::out::info::shown_path;
use crate::python::{FoundPython, SentFrame, SentNames, merge};
use crate::symbols::{self, ModuleFile};
use crate::targets::mmap_callers::MmapCallers;
use rustc_hash::FxHashSet;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tprof_trace::TraceWriter;
use tprof_trace::model::{Module, ProcessIndex, SYNTHETIC_FRAME, Stack};
use tprof_wire::python::WalkEnd;
use tprof_wire::record::StackEnd;

/// The lowest bit of a frame's generation; the bits below hold the address.
const ADDRESS_SHIFT: u32 = 57;
const ADDRESS_BITS: u64 = (1 << ADDRESS_SHIFT) - 1;
/// Largest generation that fits above an address.
const MAX_GENERATIONS: u64 = 0x7f;

/// An address to be symbolized: the frame in the trace's form, its module, and the pc as an ELF
/// address.
pub type UnnamedFrame = (u64, Arc<ModuleFile>, u64);

/// Frames of one process that have to be symbolized.
pub struct Unresolved {
    /// File index << 32 | process index.
    pub target: u64,
    /// The frames to symbolize.
    pub places: Vec<UnnamedFrame>,
}

/// A module that is mapped or was mapped before.
pub struct MappedModule {
    start: u64,
    end: u64,
    /// Address minus ELF address, wrapping.
    bias: u64,
    module: Arc<ModuleFile>,
    /// Number of other modules that were mapped there before it.
    generation: u64,
}

/// The Python frames of a stack that the process took itself. Each is in the trace's form, with
/// whether it is the outermost frame of a call of the interpreter's loop. `ends` says how the walk
/// ended.
struct PythonFrames {
    frames: Vec<(u64, bool)>,
    ends: WalkEnd,
}

/// An interpreter, which forked images share.
pub type SharedPython = Arc<Mutex<FoundPython>>;

/// The code and the stacks of an image.
pub struct Code {
    process: ProcessIndex,
    redact: bool,
    /// Modules that are mapped now, by address, each with the time since when.
    current: Vec<(u64, Arc<MappedModule>)>,
    /// Modules that were replaced: mapped since when, until when, and the module.
    past: Vec<(u64, u64, Arc<MappedModule>)>,
    /// All modules that were ever mapped.
    known: Vec<Arc<MappedModule>>,
    /// Mappings that were read, with the time of reading, but not applied yet.
    read: VecDeque<(u64, Vec<LoadedModule>)>,
    /// Stacks since the last pass, with the time when each was taken.
    stacks: Vec<(u64, Stack, PythonFrames)>,
    /// Python frames that the process has named.
    names: SentNames,
    /// Bytes by the code that mapped anonymous memory.
    mappers: MmapCallers,
    /// The image's interpreter; forked children share it.
    interpreter: Option<SharedPython>,
    /// Addresses that stacks have contained, in the trace's form.
    seen: FxHashSet<u64>,
    /// Addresses recently seen in code that is still mapped.
    recent: Recent,
    /// Addresses for which no module is known yet, with the time when each was seen.
    unplaced: Vec<(u64, u64)>,
    to_name: Vec<UnnamedFrame>,
    /// Number of stacks that were cut because unwind tables were missing.
    pub not_ready: u64,
    /// Whether its mappings could not be read when they were asked for.
    pub was_late: bool,
}

impl Code {
    /// Returns the code of a new image. A forked child then [inherits](Code::inherit) its parent's.
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

    /// Returns the modules that are mapped now, for a forked child.
    pub fn in_force(&self) -> Vec<Arc<MappedModule>> {
        self.current.iter().map(|(_, p)| Arc::clone(p)).collect()
    }

    /// Copies the modules that are mapped in the parent.
    pub fn inherit(&mut self, from: &[Arc<MappedModule>], now: u64, writer: &mut TraceWriter) {
        for p in from {
            self.place(p.start, p.end, p.bias, Arc::clone(&p.module), now, writer);
        }
        self.locate(0);
    }

    /// Adds a stack, which is written in the next pass. By then the mappings have arrived that the
    /// process waited for before it took the stack.
    pub fn take(&mut self, time_ns: u64, stack: Stack) {
        let none = PythonFrames { frames: Vec::new(), ends: WalkEnd::Whole };
        self.stacks.push((time_ns, stack, none));
    }

    /// Like [`Code::take`], but the next pass also inserts the stack's Python frames. By then the
    /// interpreter that the process waited for is known as well.
    pub fn take_sent(&mut self, time_ns: u64, stack: Stack, python: &PythonKeys) {
        let known =
            python.keys.iter().filter_map(|key| Some((self.names.frame(key & !1)?, key & 1 == 1)));
        let frames = known.collect();
        if let Some(innermost) = stack.frames.first() {
            self.mappers.stack_defined(stack.stack, *innermost, time_ns);
        }
        self.stacks.push((time_ns, stack, PythonFrames { frames, ends: python.ends }));
    }

    /// Notes that a call with this stack mapped anonymous memory.
    pub fn mapped(&mut self, stack: u32, bytes: u64) {
        self.mappers.mapped(stack, bytes);
    }

    /// Returns the modules whose code mapped at least `least` bytes of anonymous memory.
    pub fn mappers(&self, least: u64) -> Vec<Arc<ModuleFile>> {
        let mut sums: HashMap<&Path, (&Arc<ModuleFile>, u64)> = HashMap::new();
        for (address, time_ns, bytes) in self.mappers.all() {
            if let Some(placement) = self.at(address, time_ns) {
                let path = placement.module.path.as_path();
                sums.entry(path).or_insert((&placement.module, 0)).1 += bytes;
            }
        }
        sums.into_values().filter(|sum| sum.1 >= least).map(|sum| Arc::clone(sum.0)).collect()
    }

    /// Adds the definition of a Python frame.
    pub fn define(&mut self, sent: SentFrame, writer: &mut TraceWriter) {
        self.names.define(sent, self.process, self.redact, writer);
    }

    /// Gives up on names that never came, and returns their number. Called once, at the end.
    pub fn drop_undefined_names(&mut self, writer: &mut TraceWriter) -> u64 {
        self.names.give_up(self.process, writer)
    }

    /// Sets the process's interpreter.
    pub fn interprets(&mut self, interpreter: SharedPython) {
        self.interpreter = Some(interpreter);
    }

    /// Returns its interpreter, for a forked child.
    pub fn interpreter(&self) -> Option<SharedPython> {
        self.interpreter.clone()
    }

    /// Inserts the Python frames at their places in a stack.
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

    /// Adds the mappings as they were at `read_ns`.
    pub fn take_modules(&mut self, read_ns: u64, modules: Vec<LoadedModule>) {
        // The list is in order of time: mappings that samples report may be newer than those that
        // were read.
        let at = self.read.partition_point(|(time, _)| *time <= read_ns);
        self.read.insert(at, (read_ns, modules));
    }

    /// Whether there are stacks but no mappings at all.
    pub fn has_unresolved_stacks(&self) -> bool {
        let none = self.current.is_empty() && self.read.is_empty();
        none && !(self.unplaced.is_empty() && self.stacks.is_empty())
    }

    /// Returns the number of addresses that will never be symbolized because their mapping was not
    /// read.
    pub fn nameless(&self) -> u64 {
        // The other addresses without a module lie in code that no file contains.
        let unread = self.current.is_empty() || self.was_late;
        if unread { self.unplaced.len() as u64 } else { 0 }
    }

    /// Writes the stacks taken so far, each by the mappings of its time.
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
            // Older addresses had no module at the last try, and no mapping came since.
            self.locate(settled);
        }
        self.stacks = stacks;
    }

    /// Returns the trace's frame for an address; one seen for the first time is queued to be named.
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

    /// Applies the mappings that were read until then.
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
        self.to_name.push((frame, symbols::kernel(), address));
    }

    /// Returns the addresses to be symbolized that were not returned before.
    pub fn drain_unnamed(&mut self) -> Vec<UnnamedFrame> {
        std::mem::take(&mut self.to_name)
    }

    /// Returns the code that held a return address at a time. If that is unknown, returns the code
    /// that is there now.
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

    /// Returns the code at a return address now, and the time since when it is there.
    fn in_force_at(&self, address: u64) -> Option<&(u64, Arc<MappedModule>)> {
        let pc = address.wrapping_sub(1);
        let after = self.current.partition_point(|(_, p)| p.start <= pc);
        let now = after.checked_sub(1).and_then(|i| self.current.get(i));
        now.filter(|(_, p)| pc < p.end)
    }

    /// Applies one mapping, and writes the module's row if it is new.
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
        // The new module replaces code at the same addresses, which moves to `past`. But if the
        // code that is there now came later than this module, the report is late: this module was
        // replaced already.
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
        // A module that is mapped again at its old place gets its old generation.
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

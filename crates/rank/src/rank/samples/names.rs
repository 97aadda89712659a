//! Interns the functions of frames. Frames at any line or address of a function, in any process,
//! have the same function.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
pub use tprof_facts::frames::Layer;
use tprof_facts::frames::{self, Frame, NO_NAME};
use tprof_facts::labels::base_name;
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, StackId};

/// Index of an interned function.
pub type FuncId = u32;

/// The identity of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Func {
    /// Name. All functions without a name in one module share a text that says so.
    pub name: Arc<str>,
    /// Source file; that of a native function is known only from debug information.
    pub file: Arc<str>,
    /// Base name of its module.
    pub module: Arc<str>,
    /// The layer that the function belongs to.
    pub layer: Layer,
}

impl Func {
    /// Whether the function has no name. All such functions of a module count as one.
    pub fn is_nameless(&self) -> bool {
        let inner = self.name.strip_prefix('(').and_then(|name| name.strip_suffix(NO_NAME));
        inner == Some(&*self.module)
    }

    /// Whether this is a stub of the linker, through which a function of another file is called.
    pub fn is_stub(&self) -> bool {
        self.layer == Layer::Native && self.name.ends_with("@plt")
    }

    /// If this is a synthetic frame for a wait, returns the file or peer that the thread waited
    /// for.
    pub fn waited_for(&self) -> Option<&str> {
        if self.layer != Layer::Kernel {
            return None;
        }
        self.name.strip_prefix("(waits for ")?.strip_suffix(')')
    }

    /// Whether this stands for a function of the kernel without a name.
    pub fn is_nameless_kernel(&self) -> bool {
        self.layer == Layer::Kernel && &*self.name == NAMELESS_KERNEL
    }
}

/// The name that stands for the kernel's functions if their names are hidden.
const NAMELESS_KERNEL: &str = "[kernel]";

/// Interned functions, of one or several files.
#[derive(Debug, Default)]
pub struct FunctionTable {
    all: Vec<Func>,
    ids: HashMap<Func, FuncId>,
}

impl FunctionTable {
    /// The function with this id.
    pub fn get(&self, id: FuncId) -> &Func {
        &self.all[id as usize]
    }

    /// All functions by id.
    pub fn all(&self) -> &[Func] {
        &self.all
    }

    /// Returns for each id whether its function passes. `passes` is called once for each function,
    /// not for each frame.
    pub fn which(&self, passes: impl Fn(&Func) -> bool) -> Vec<bool> {
        self.all.iter().map(passes).collect()
    }

    /// The id of a function.
    pub fn id(&mut self, func: Func) -> FuncId {
        if let Some(id) = self.ids.get(&func) {
            return *id;
        }
        let id = self.all.len() as FuncId;
        self.all.push(func.clone());
        self.ids.insert(func, id);
        id
    }
}

/// The functions of a stack.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// The functions, innermost first, inlined ones included.
    pub functions: Vec<FuncId>,
    /// The source line that each function was at; 0 if unknown.
    pub lines: Vec<u32>,
    /// Whether the stack was cut.
    pub cut: bool,
}

/// Finds the functions of one file's frames.
pub struct FrameFunctions<'a> {
    file: &'a TraceFile,
    frames: frames::Frames<'a>,
    known: FxHashMap<(ProcessIndex, u64), Vec<(FuncId, u32)>>,
}

impl<'a> FrameFunctions<'a> {
    /// Finds functions in this file; reads none yet.
    pub fn new(file: &'a TraceFile) -> FrameFunctions<'a> {
        FrameFunctions { file, frames: frames::Frames::new(file), known: FxHashMap::default() }
    }

    /// The functions of a stack.
    pub fn stack(
        &mut self,
        process: ProcessIndex,
        stack: StackId,
        names: &mut FunctionTable,
    ) -> Stack {
        let Some(found) = self.file.stack(process, stack) else { return Stack::default() };
        let mut all: Vec<FuncId> = Vec::with_capacity(found.frames.len());
        let mut lines = Vec::with_capacity(found.frames.len());
        for frame in self.frames.shown(found) {
            if !self.known.contains_key(&(process, frame)) {
                let named = self.frame(process, frame, names);
                self.known.insert((process, frame), named);
            }
            let functions = &self.known[&(process, frame)];
            // Successive kernel functions without a name are merged into one, since a reader learns
            // nothing from their number.
            let last = functions.last().map(|(id, _)| id);
            let nameless = last.is_some_and(|id| names.get(*id).is_nameless_kernel());
            if !nameless || all.last() != last {
                all.extend(functions.iter().map(|(id, _)| *id));
                lines.extend(functions.iter().map(|(_, line)| *line));
            }
        }
        Stack { functions: all, lines, cut: found.end != 0 }
    }

    fn frame(
        &self,
        process: ProcessIndex,
        frame: u64,
        names: &mut FunctionTable,
    ) -> Vec<(FuncId, u32)> {
        let func = |frame: Frame<'_>| {
            let module = base_name(frame.module);
            let name = frame.function_or_module().into();
            let file = frame.file.into();
            Func { name, file, module: module.into(), layer: frame.layer }
        };
        let found = self.frames.at(process, frame);
        let line = |frame: Frame<'_>| (frame.line, func(frame));
        let found = found.into_iter().map(line);
        found.map(|(line, func)| (names.id(func), line)).collect()
    }
}

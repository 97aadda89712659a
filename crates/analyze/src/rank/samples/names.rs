//! Functions of frames: one for all the lines and addresses of a function, in
//! whatever process.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, StackId, Symbol};
use tprof_trace::{CodeMap, TraceFile};

/// An interned function.
pub type FuncId = u32;

/// Whose code a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// The kernel's.
    Kernel,
    /// Compiled.
    Native,
    /// Python's.
    Python,
}

impl Layer {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Layer::Kernel => "kernel",
            Layer::Native => "native",
            Layer::Python => "python",
        }
    }
}

/// What a function is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Func {
    /// Name; of all that has none in a module, one that says so.
    pub name: Arc<str>,
    /// Source file; of native functions, where debug information tells.
    pub file: Arc<str>,
    /// Base name of its module.
    pub module: Arc<str>,
    /// Whose.
    pub layer: Layer,
}

impl Func {
    /// The kernel's, and nobody knows which.
    pub fn is_nameless_kernel(&self) -> bool {
        self.layer == Layer::Kernel && &*self.name == NAMELESS_KERNEL
    }
}

/// What stands for the kernel's functions where their names are hidden.
const NAMELESS_KERNEL: &str = "[kernel]";

/// Interned functions; of several files together.
#[derive(Debug, Default)]
pub struct Names {
    all: Vec<Func>,
    ids: HashMap<Func, FuncId>,
}

impl Names {
    /// What an id stands for.
    pub fn get(&self, id: FuncId) -> &Func {
        &self.all[id as usize]
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

/// Functions of a stack.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// Innermost first.
    pub functions: Vec<FuncId>,
    /// How many of the first are inlined into the one after them.
    pub inlined: usize,
    /// Whether it was cut.
    pub cut: bool,
}

/// Finds the functions of one file's frames.
pub(crate) struct Frames<'a> {
    file: &'a TraceFile,
    code: CodeMap<'a>,
    known: FxHashMap<(ProcessIndex, u64), Vec<FuncId>>,
}

impl<'a> Frames<'a> {
    pub fn new(file: &'a TraceFile) -> Frames<'a> {
        Frames { file, code: CodeMap::new(file), known: FxHashMap::default() }
    }

    /// The functions of a stack.
    pub fn stack(&mut self, process: ProcessIndex, stack: StackId, names: &mut Names) -> Stack {
        let Some(found) = self.file.stack(process, stack) else { return Stack::default() };
        let mut inlined = 0;
        let mut all = Vec::with_capacity(found.frames.len());
        for &frame in &found.frames {
            if !self.known.contains_key(&(process, frame)) {
                let named = self.frame(process, frame, names);
                self.known.insert((process, frame), named);
            }
            let functions = &self.known[&(process, frame)];
            if all.is_empty() {
                inlined = functions.len().saturating_sub(1);
            }
            // How many functions of the kernel had no name tells nobody anything.
            let nameless = functions.last().is_some_and(|id| names.get(*id).is_nameless_kernel());
            if !nameless || all.last() != functions.last() {
                all.extend_from_slice(functions);
            }
        }
        Stack { functions: all, inlined, cut: found.end != 0 }
    }

    fn frame(&self, process: ProcessIndex, frame: u64, names: &mut Names) -> Vec<FuncId> {
        let file = self.file;
        let mut symbols: Vec<&Symbol> = file.symbols(process, frame).iter().collect();
        symbols.retain(|symbol| !file.name(symbol.function).is_empty());
        symbols.sort_by_key(|symbol| symbol.depth);
        if symbols.is_empty() {
            let module = self.code.module(process, frame).map_or("", |m| file.name(m.path));
            let module = base_name(module);
            // Addresses apart would hide how much of a stripped module it is.
            let name = match module {
                // Made at run time, most likely: its addresses are others in each run.
                "" => "(code of no known file)".to_owned(),
                module => format!("({module}, no name)"),
            };
            return vec![names.id(Func {
                name: name.into(),
                file: "".into(),
                module: module.into(),
                layer: Layer::Native,
            })];
        }
        let func = |symbol: &&Symbol| {
            let module = file.name(symbol.module);
            let layer = match module {
                "[kernel]" => Layer::Kernel,
                "[python]" => Layer::Python,
                _ => Layer::Native,
            };
            Func {
                name: file.name(symbol.function).into(),
                file: file.name(symbol.file).into(),
                module: base_name(module).into(),
                layer,
            }
        };
        symbols.iter().map(|symbol| names.id(func(symbol))).collect()
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

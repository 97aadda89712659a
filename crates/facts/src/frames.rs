//! Resolves the frames of stacks to functions and formats them.
//!
//! The format is `function (file:line)` if there is debug information, `function (module)` if there
//! is a symbol table, otherwise `module+offset`. Absolute addresses are not used, since they differ
//! from process to process, so that equal stacks would look different.

use std::borrow::Cow;
use std::fmt;

use tprof_trace::model::{ProcessIndex, SYNTHETIC_FRAME, Stack, StackId, Symbol};
use tprof_trace::{CodeMap, TraceFile, address_of};

use crate::labels::base_name;
use crate::pass_through::{FrameFunction, PassThroughFrames};

/// Prefix of the text that stands for the missing outer frames of a stack; the reason follows.
pub const CUT: &str = "(cut off";
/// The text that stands for a stack that was not recorded.
pub const NO_STACK: &str = "(no stack was taken)";

/// Returns the text that stands for the missing outer frames of a stack. `end` is the file's number
/// of the reason why the stack ends early. `None` if the stack is whole.
pub fn cut(end: u8) -> Option<&'static str> {
    match end {
        0 => None,
        1 => Some("(cut off: too deep)"),
        2 => Some("(cut off: code without unwind information)"),
        3 => Some("(cut off: the next frame lay outside the stack)"),
        4 => Some("(cut off: unwind tables were not ready)"),
        _ => Some("(cut off)"),
    }
}

/// Suffix of the name that is displayed for functions without a name.
pub const NO_NAME: &str = ", no name)";

/// The layer of software that a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// Code of the kernel.
    Kernel,
    /// Compiled code of the process.
    Native,
    /// Python code, run by the interpreter.
    Python,
}

impl Layer {
    /// Returns the layer as one word.
    pub fn word(self) -> &'static str {
        match self {
            Layer::Kernel => "kernel",
            Layer::Native => "native",
            Layer::Python => "python",
        }
    }
}

/// How far a frame could be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// The name of its function is known.
    Function,
    /// Only the place of its code is known.
    Place,
    /// Nothing is known: the frame stands for missing frames.
    Nothing,
}

/// One function of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Name of the function, or the place of its code, or the text for missing frames.
    pub function: Cow<'a, str>,
    /// How far the frame could be resolved.
    pub known: Resolution,
    /// Source file; empty if unknown.
    pub file: &'a str,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: &'a str,
    /// Address in the module; 0 if there is none.
    pub relative: u64,
    /// The layer that the function belongs to.
    pub layer: Layer,
}

impl<'a> Frame<'a> {
    /// Returns the function if it is known. Otherwise returns a name that stands for all nameless
    /// code of the frame's module.
    pub fn function_or_module(&self) -> Cow<'_, str> {
        match (self.known, base_name(self.module)) {
            (Resolution::Function, _) => Cow::Borrowed(&self.function),
            // The code was most likely generated at run time, so its addresses differ in each run
            // and can't identify it.
            (_, "") => Cow::Borrowed("(code of no known file)"),
            // All nameless code of a module gets one name, since separate addresses would hide how
            // much time a stripped module takes in total.
            (_, module) => Cow::Owned(format!("({module}{NO_NAME}")),
        }
    }

    /// Creates a frame that stands for missing frames.
    pub fn missing(what: &'static str) -> Frame<'a> {
        Frame {
            function: Cow::Borrowed(what),
            known: Resolution::Nothing,
            file: "",
            line: 0,
            module: "",
            relative: 0,
            layer: Layer::Native,
        }
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        match (self.file.is_empty(), self.line, base_name(self.module)) {
            _ if self.known != Resolution::Function => Ok(()),
            (false, 0, _) => write!(f, " ({})", self.file),
            (false, line, _) => write!(f, " ({}:{line})", self.file),
            (true, _, "") => Ok(()),
            (true, _, module) => write!(f, " ({module})"),
        }
    }
}

/// Finds the functions of one file's frames.
#[derive(Debug)]
pub struct Frames<'a> {
    file: &'a TraceFile,
    code: CodeMap<'a>,
    passages: PassThroughFrames,
}

impl<'a> Frames<'a> {
    /// Prepares to resolve frames of a file.
    pub fn new(file: &'a TraceFile) -> Frames<'a> {
        Frames { file, code: CodeMap::new(file), passages: PassThroughFrames::of(file) }
    }

    /// Returns the functions of an address, the innermost inlined function first. If none is known,
    /// returns one frame without a function's name.
    pub fn at(&self, process: ProcessIndex, address: u64) -> Vec<Frame<'a>> {
        let file = self.file;
        let module = self.code.module(process, address);
        let (path, bias) = module.map_or(("", 0), |m| (file.name(m.path), m.bias));
        let relative = module.map_or(0, |_| address_of(address).wrapping_sub(bias));
        let mut symbols: Vec<&Symbol> = file.symbols(process, address).iter().collect();
        symbols.retain(|symbol| !file.name(symbol.function).is_empty());
        symbols.sort_by_key(|symbol| symbol.depth);
        if symbols.is_empty() {
            let function = Cow::Owned(self.code.unnamed(file, process, address));
            let layer = Layer::Native;
            let (file, line, module, known) = ("", 0, path, Resolution::Place);
            return vec![Frame { function, known, file, line, module, relative, layer }];
        }
        let frame = |symbol: &Symbol| {
            let (source, own) = (file.name(symbol.file), file.name(symbol.module));
            Frame {
                function: Cow::Borrowed(file.name(symbol.function)),
                known: Resolution::Function,
                file: source,
                line: symbol.line,
                module: if own.is_empty() { path } else { own },
                relative,
                layer: layer(own, source, address),
            }
        };
        symbols.into_iter().map(frame).collect()
    }

    /// Returns the addresses of a stack to show, innermost first. Frames of tprof's libraries
    /// through which calls of the job only pass are left out.
    pub fn shown(&self, stack: &Stack) -> Vec<u64> {
        let process = stack.process;
        self.passages.without(process, &stack.frames, |frame| {
            let outer = self.at(process, frame).pop()?;
            let is_kernel = outer.layer == Layer::Kernel;
            Some(FrameFunction { function: outer.function.into_owned(), is_kernel })
        })
    }

    /// Returns the functions of the addresses that [`Self::shown`] returns for a stack, outermost
    /// first, with a text for missing frames.
    pub fn of_stack(&self, process: ProcessIndex, stack: StackId) -> Vec<Frame<'a>> {
        let Some(found) = self.file.stack(process, stack) else {
            return vec![Frame::missing(NO_STACK)];
        };
        let mut frames: Vec<Frame<'a>> = cut(found.end).map(Frame::missing).into_iter().collect();
        for &address in self.shown(found).iter().rev() {
            frames.extend(self.at(process, address).into_iter().rev());
        }
        if frames.is_empty() {
            frames.push(Frame::missing(NO_STACK));
        }
        frames
    }
}

/// Returns the layer of a frame. tprof records a special module for frames that are not native
/// code. Imported traces have no such module, but their Python frames have synthetic addresses and
/// a source file.
pub fn layer(module: &str, source: &str, address: u64) -> Layer {
    match module {
        "[kernel]" => Layer::Kernel,
        "[python]" => Layer::Python,
        "" if address_of(address) & SYNTHETIC_FRAME != 0 && !source.is_empty() => Layer::Python,
        _ => Layer::Native,
    }
}

//! Functions of a stack, for formats that know nothing else.

use tprof_trace::model::{ProcessIndex, StackId};
use tprof_trace::{CodeMap, TraceFile, address_of};

/// Names the frames of one file.
pub(crate) struct Frames<'a> {
    file: &'a TraceFile,
    code: CodeMap<'a>,
}

/// One function of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Located<'a> {
    /// Its name, or where its code lies.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: &'a str,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty if unknown.
    pub module: &'a str,
    /// Address in the module; 0 if there is none.
    pub relative: u64,
}

impl<'a> Frames<'a> {
    pub fn new(file: &'a TraceFile) -> Frames<'a> {
        Frames { file, code: CodeMap::new(file) }
    }

    /// Functions from the outermost to the innermost, inlined ones included.
    pub fn outermost_first(&self, process: ProcessIndex, stack: StackId) -> Vec<String> {
        self.located(process, stack).into_iter().map(|frame| frame.function).collect()
    }

    /// As [`Self::outermost_first`], with where each is.
    pub fn located(&self, process: ProcessIndex, stack: StackId) -> Vec<Located<'a>> {
        let said = |what: &str| Located { function: what.to_owned(), ..Located::default() };
        let Some(found) = self.file.stack(process, stack) else {
            return vec![said("(no stack)")];
        };
        let mut frames = Vec::new();
        if found.end != 0 {
            frames.push(said("(cut off)"));
        }
        for &frame in found.frames.iter().rev() {
            let module = self.code.module(process, frame);
            let (path, bias) = module.map_or(("", 0), |m| (self.file.name(m.path), m.bias));
            let relative = module.map_or(0, |_| address_of(frame).wrapping_sub(bias));
            let mut symbols: Vec<_> = (self.file.symbols(process, frame).iter())
                .filter(|symbol| !self.file.name(symbol.function).is_empty())
                .collect();
            symbols.sort_by_key(|symbol| std::cmp::Reverse(symbol.depth));
            if symbols.is_empty() {
                let function = self.code.unnamed(self.file, process, frame);
                frames.push(Located { function, module: path, relative, ..Located::default() });
            }
            for symbol in symbols {
                let module = match self.file.name(symbol.module) {
                    "" => path,
                    module => module,
                };
                frames.push(Located {
                    function: self.file.name(symbol.function).to_owned(),
                    file: self.file.name(symbol.file),
                    line: symbol.line,
                    module,
                    relative,
                });
            }
        }
        if frames.is_empty() {
            frames.push(said("(no stack)"));
        }
        frames
    }
}

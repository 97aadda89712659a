//! Finds the line of the program's own code in a stack.

use tprof_rank::samples::{FrameFunctions, FunctionTable, Part};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, StackId, ThreadState};

use crate::host::Place;

/// A line of the program's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeLine {
    /// Name of the function.
    pub function: String,
    /// Path of the file.
    pub file: String,
    /// Number of the line.
    pub line: u32,
}

impl CodeLine {
    /// Whether this is a line of Python.
    pub(super) fn is_python(&self) -> bool {
        self.file.ends_with(".py")
    }
}

/// Looks up the lines of a file's stacks.
pub(super) struct CodeLines<'a> {
    functions: FrameFunctions<'a>,
    names: FunctionTable,
}

impl<'a> CodeLines<'a> {
    pub fn new(file: &'a TraceFile) -> CodeLines<'a> {
        CodeLines { functions: FrameFunctions::new(file), names: FunctionTable::default() }
    }

    /// Returns the line of a stack; `None` if the stack has none.
    pub fn of(&mut self, process: ProcessIndex, stack: StackId) -> Option<CodeLine> {
        if stack == 0 {
            return None;
        }
        let stack = self.functions.stack(process, stack, &mut self.names);
        let place = Place::of(Part::Unknown, ThreadState::Running, &stack, &self.names);
        let Place { function, file, line, .. } = place;
        (line > 0 && !file.is_empty()).then_some(CodeLine { function, file, line })
    }
}

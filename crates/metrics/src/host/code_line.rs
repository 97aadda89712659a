//! Finds the line of the program's own code in a stack.

use tprof_document::{Cell, Column, Unit};
use tprof_facts::labels::base_name;
use tprof_rank::samples::{FrameFunctions, FunctionTable, Part, is_interpreter};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, StackId, ThreadState};

use super::Place;

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
    pub(crate) fn is_python(&self) -> bool {
        self.file.ends_with(".py")
    }
}

/// The columns of a line: where it is in a few words, under this heading; function, file and line.
pub(crate) fn columns(heading: &'static str) -> Vec<Column> {
    vec![
        Column::functions("place", heading),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
    ]
}

/// The cells of these columns; `why` says why there is no line, where there is none.
pub(crate) fn cells(line: Option<&CodeLine>, why: &'static str) -> Vec<Cell> {
    let text = |of: fn(&CodeLine) -> &str| Cell::known(line.map(of), why);
    let place = line.map(|at| format!("{} ({}:{})", at.function, base_name(&at.file), at.line));
    vec![
        Cell::known(place, why),
        text(|line| &line.function),
        text(|line| &line.file),
        Cell::known(line.map(|line| u64::from(line.line)), why),
    ]
}

impl Place {
    /// The line of the program's code; `None` if it is unknown.
    pub(crate) fn code_line(&self) -> Option<CodeLine> {
        // A stack without Python's functions ends in the interpreter, whose lines tell nothing.
        if is_interpreter(&self.library) {
            return None;
        }
        let line =
            CodeLine { function: self.function.clone(), file: self.file.clone(), line: self.line };
        (line.line > 0 && !line.file.is_empty()).then_some(line)
    }
}

/// Looks up the lines of a file's stacks.
pub(crate) struct CodeLines<'a> {
    functions: FrameFunctions<'a>,
    names: FunctionTable,
}

impl<'a> CodeLines<'a> {
    pub fn new(file: &'a TraceFile) -> CodeLines<'a> {
        CodeLines { functions: FrameFunctions::new(file), names: FunctionTable::default() }
    }

    /// Returns the line of a stack; `None` if the stack has none.
    pub fn of(&mut self, process: ProcessIndex, stack: StackId) -> Option<CodeLine> {
        self.place(process, stack)?.code_line()
    }

    /// Returns where a stack is in the program's code; `None` without a stack.
    pub fn place(&mut self, process: ProcessIndex, stack: StackId) -> Option<Place> {
        if stack == 0 {
            return None;
        }
        let stack = self.functions.stack(process, stack, &mut self.names);
        Some(Place::of(Part::Unknown, ThreadState::Running, &stack, &self.names))
    }
}

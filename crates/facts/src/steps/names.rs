//! Selects the spans of a file that show steps and phases, by their names.

use rustc_hash::FxHashMap;
use tprof_trace::TraceFile;
use tprof_trace::model::{NameId, SpanKind, SpanOutline};

use super::shows_steps;

/// Selects spans that show steps or phases. Each name is examined only once.
#[derive(Debug)]
pub struct StepNames<'f> {
    file: &'f TraceFile,
    /// Whether ranges of this kind and name show steps or phases, for the names so far.
    known: FxHashMap<(SpanKind, NameId), bool>,
    /// Names of operators that show steps. A file has millions of operators and at most two such
    /// names.
    operators: Vec<NameId>,
}

impl<'f> StepNames<'f> {
    /// Prepares to select spans of a file.
    pub fn of(file: &'f TraceFile) -> StepNames<'f> {
        let operators = file.names().filter(|(_, name)| shows_steps(SpanKind::Operator, name));
        let operators = operators.map(|(id, _)| id).collect();
        StepNames { file, known: FxHashMap::default(), operators }
    }

    /// Whether a span shows a step or a phase.
    pub fn has(&mut self, span: &SpanOutline) -> bool {
        match span.kind {
            SpanKind::Operator => self.operators.contains(&span.name),
            SpanKind::Annotation | SpanKind::Nvtx => {
                let shows = || shows_steps(span.kind, self.file.name(span.name));
                *self.known.entry((span.kind, span.name)).or_insert_with(shows)
            }
            _ => false,
        }
    }
}

//! Adds derived values to the rows of a file: short names, indexes, sizes of inputs, lines of code.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde_json::Value;
use tprof_analyze::joined::{LaunchCall, WorkRow};
use tprof_facts::labels::base_name;
use tprof_rank::base::names;
use tprof_trace::TraceFile;
use tprof_trace::model::{
    Kernel, MemoryCopy, NameId, ProcessIndex, Sample, Span, SpanKind, StackId,
};

use crate::context::Context;

/// A piece of device work, with its index in the work of its rank.
#[derive(Clone, Debug)]
pub(crate) struct PlacedWork<R> {
    pub row: R,
    /// Index in the work of the rank; `None` if no wanted column needs it.
    pub at: Option<u32>,
    /// Short name of a kernel; empty if no wanted column needs it.
    pub short_name: Arc<str>,
}

impl<R> PlacedWork<R> {
    pub fn launch(&self, context: &Context<'_>) -> Option<LaunchCall> {
        context.joined().launch_of(self.at?)
    }

    pub fn step(&self, context: &Context<'_>) -> Option<u64> {
        context.joined().step_of(self.at?)
    }
}

/// The derived values that the wanted columns need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowRequest {
    /// Whether the indexes of rows are needed.
    pub places: bool,
    /// Whether derived texts are needed.
    pub texts: bool,
}

/// Shortens the names of kernels. Each name is shortened once.
#[derive(Default)]
pub(crate) struct ShortNames(FxHashMap<NameId, Arc<str>>);

impl ShortNames {
    pub fn kernel(
        &mut self,
        row: Kernel,
        context: &Context<'_>,
        request: RowRequest,
    ) -> PlacedWork<Kernel> {
        let short_name = match request.texts {
            true => {
                let of = || names::short(context.trace.name(row.name)).into();
                self.0.entry(row.name).or_insert_with(of).clone()
            }
            false => Arc::default(),
        };
        let work = || WorkRow {
            process: row.process,
            device: row.device,
            context: row.context,
            stream: row.stream,
            start_ns: row.start_ns,
            duration_ns: row.duration_ns,
            correlation: row.correlation,
            name: row.name,
        };
        let at = request.places.then(|| context.joined().place(&work())).flatten();
        PlacedWork { row, at, short_name }
    }
}

/// Finds the index of a copy in the work of its rank, if a wanted column needs it.
pub(crate) fn copy(
    row: MemoryCopy,
    context: &Context<'_>,
    request: RowRequest,
) -> PlacedWork<MemoryCopy> {
    let work = || WorkRow {
        process: row.process,
        device: row.device,
        context: row.context,
        stream: row.stream,
        start_ns: row.start_ns,
        duration_ns: row.duration_ns,
        correlation: row.correlation,
        name: row.name,
    };
    let at = request.places.then(|| context.joined().place(&work())).flatten();
    PlacedWork { row, at, short_name: Arc::default() }
}

/// A host span, with its index among the spans.
#[derive(Clone, Debug)]
pub(crate) struct SpanRow {
    pub row: Span,
    /// Index among the spans; `None` if no wanted column needs it.
    pub at: Option<u32>,
    /// The inputs of an operator, if they were recorded and a wanted column needs them.
    pub inputs: Option<Arc<OperatorInputs>>,
}

/// Sizes and types of an operator's inputs, as JSON lists; empty if they were not recorded.
#[derive(Debug, Default)]
pub(crate) struct OperatorInputs {
    pub shapes: String,
    pub types: String,
}

/// Parses the arguments of operators. Each different text is parsed once.
#[derive(Default)]
pub(crate) struct InputTexts(FxHashMap<NameId, Option<Arc<OperatorInputs>>>);

impl InputTexts {
    pub fn row(&mut self, row: Span, context: &Context<'_>, request: RowRequest) -> SpanRow {
        let at = request.places.then(|| context.places().take(&row)).flatten();
        let inputs = match request.texts && row.kind == SpanKind::Operator {
            true => {
                self.0.entry(row.args).or_insert_with(|| inputs(context.trace, row.args)).clone()
            }
            false => None,
        };
        SpanRow { row, at, inputs }
    }
}

fn inputs(trace: &TraceFile, args: NameId) -> Option<Arc<OperatorInputs>> {
    let text = trace.name(args);
    if !text.contains("\"Input ") {
        return None;
    }
    let args: Value = serde_json::from_str(text).ok()?;
    let of = |key: &str| args.get(key).map_or(String::new(), Value::to_string);
    Some(Arc::new(OperatorInputs { shapes: of("Input Dims"), types: of("Input type") }))
}

/// A CPU sample with the innermost code of its stack.
#[derive(Clone, Debug)]
pub(crate) struct SampleRow {
    pub row: Sample,
    /// The innermost code of the stack; `None` if no wanted column needs it, or if the sample has
    /// no stack.
    pub innermost: Option<Arc<Place>>,
}

/// A function, and the line of it that ran.
#[derive(Debug)]
pub(crate) struct Place {
    pub function: String,
    pub file: String,
    pub line: u32,
    /// Base name of the library or program; empty if unknown.
    pub module: String,
}

/// Finds the innermost code of stacks. Each stack is looked up once.
#[derive(Default)]
pub(crate) struct InnermostPlaces(FxHashMap<(ProcessIndex, StackId), Option<Arc<Place>>>);

impl InnermostPlaces {
    pub fn row(&mut self, row: Sample, context: &Context<'_>, request: RowRequest) -> SampleRow {
        let place = || {
            let frames = context.innermost(row.process, row.stack);
            let innermost = frames.first()?;
            Some(Arc::new(Place {
                function: innermost.function_or_module().into_owned(),
                file: innermost.file.to_owned(),
                line: innermost.line,
                module: base_name(innermost.module).to_owned(),
            }))
        };
        let innermost = match request.texts {
            true => self.0.entry((row.process, row.stack)).or_insert_with(place).clone(),
            false => None,
        };
        SampleRow { row, innermost }
    }
}

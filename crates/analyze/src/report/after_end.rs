//! Finds device work that a part of a program launched but that began after the part's end, since
//! launches return before their work runs.

use tprof_trace::TraceFile;
use tprof_trace::calls::is_launch;
use tprof_trace::model::{Kernel, MemoryCopy, Span, SpanKind};

/// The device work that began after the end of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkAfterEnd {
    /// Whether other work was launched before the program had waited for its devices. If so, it is
    /// unknown which part of the program the work in that time belongs to.
    pub is_mixed: bool,
    /// Number of kernels and copies that began after the end of the part and that the program did
    /// not wait for.
    left_out: usize,
}

impl WorkAfterEnd {
    /// Looks for work after a part that ended at `to_ns`. If its program had waited for its devices
    /// at `waited_ns`, work that began later does not belong to the part.
    pub fn of(file: &TraceFile, to_ns: u64, waited_ns: Option<u64>) -> WorkAfterEnd {
        let until_ns = waited_ns.unwrap_or(u64::MAX);
        let is_behind = |start_ns: u64| (to_ns..until_ns).contains(&start_ns);
        let launches = |span: &Span| {
            matches!(span.kind, SpanKind::Runtime | SpanKind::Driver)
                && is_behind(span.start_ns)
                && is_launch(file.name(span.name))
        };
        let is_mixed = waited_ns.is_some()
            && file.blocks_between::<Span>(to_ns, until_ns).any(|block| block.iter().any(launches));
        if waited_ns.is_some() && !is_mixed {
            return WorkAfterEnd::default();
        }
        let kernels = file.blocks_between::<Kernel>(to_ns, until_ns).flatten();
        let copies = file.blocks_between::<MemoryCopy>(to_ns, until_ns).flatten();
        let starts = kernels.map(|row| row.start_ns).chain(copies.map(|row| row.start_ns));
        WorkAfterEnd { is_mixed, left_out: starts.filter(|start| is_behind(*start)).count() }
    }

    /// Returns a note for the reader of the report, if work was left out.
    pub fn note(self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "{} kernels and copies began behind the end of this part, and are left out: wait for \
                 the device within it (torch.cuda.synchronize) to have them in it",
                self.left_out
            )
        })
    }
}

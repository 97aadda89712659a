//! What devices do behind the end of a part of a program: launches return before their work runs.

use tprof_trace::TraceFile;
use tprof_trace::calls::is_launch;
use tprof_trace::model::{Kernel, MemoryCopy, Span, SpanKind};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Other work was launched until the program had waited for its devices: whose it is that ran
    /// in that time is not known.
    pub is_mixed: bool,
    /// Kernels and copies that began behind the end, and are not among those waited for.
    left_out: usize,
}

impl Behind {
    /// Of a part that ended at `to_ns`, whose program had waited for its devices at `waited_ns`.
    pub fn of(file: &TraceFile, to_ns: u64, waited_ns: u64) -> Behind {
        let mut spans = file.blocks_between::<Span>(to_ns, waited_ns);
        let is_mixed = waited_ns > to_ns
            && spans.any(|block| {
                block.iter().any(|span| {
                    matches!(span.kind, SpanKind::Runtime | SpanKind::Driver)
                        && (to_ns..waited_ns).contains(&span.start_ns)
                        && is_launch(file.name(span.name))
                })
            });
        let since_ns = if is_mixed { to_ns } else { waited_ns };
        let kernels = file.blocks_between::<Kernel>(to_ns, u64::MAX).flatten();
        let copies = file.blocks_between::<MemoryCopy>(to_ns, u64::MAX).flatten();
        let starts = kernels.map(|row| row.start_ns).chain(copies.map(|row| row.start_ns));
        let left_out = starts.filter(|start| *start >= since_ns).count();
        Behind { is_mixed, left_out }
    }

    /// What a reader should know.
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

//! Makes stacks of the samples of GPU instructions: the kernel, the place in it, and why the warp
//! waited. Formats that write stacks share this.

use rustc_hash::FxHashMap;
use tprof_facts::stalls::StallReason;
use tprof_trace::TraceFile;
use tprof_trace::model::{KernelStall, NameId, ProcessIndex};

use crate::rows::wanted;
use crate::{OpenRank, Written};

/// Samples of a kernel, at one place and for one reason.
pub(crate) struct StallStack<'a> {
    /// The process that ran the kernel.
    pub process: ProcessIndex,
    /// Name of the kernel.
    pub kernel: &'a str,
    /// Source line, `kernels.py:12`, or distance from the beginning of the function, `+0x40`.
    pub place: String,
    /// The source file with its directory, and the line; empty if they are not known.
    pub source: String,
    /// Why the warps waited.
    pub reason: StallReason<'a>,
    /// Number of samples.
    pub samples: u64,
}

impl StallStack<'_> {
    /// The reason behind its group: `memory: long_scoreboard`.
    pub fn shown_reason(&self) -> String {
        format!("{}: {}", self.reason.group.name(), self.reason.name)
    }
}

/// Passes the samples of a file within the slice. A row is of the moment at which it was written, up
/// to a minute after its samples.
pub(crate) fn each<'a>(
    part: &'a OpenRank<'_>,
    written: &mut Written,
    mut take: impl FnMut(StallStack<'a>),
) {
    let file: &TraceFile = &part.trace;
    let mut reasons: FxHashMap<NameId, StallReason<'a>> = FxHashMap::default();
    for row in wanted::<KernelStall>(part, written) {
        let reason =
            *reasons.entry(row.reason).or_insert_with(|| StallReason::of(file.name(row.reason)));
        // These are a part of the samples of another reason.
        if reason.is_not_issued {
            continue;
        }
        let path = file.name(row.file);
        let (place, source) = match row.line {
            0 => (format!("+{:#x}", row.offset), String::new()),
            line => {
                let name = path.rsplit('/').next().unwrap_or(path);
                (format!("{name}:{line}"), format!("{path}:{line}"))
            }
        };
        take(StallStack {
            process: row.process,
            kernel: file.name(row.kernel),
            place,
            source,
            reason,
            samples: row.samples,
        });
    }
}

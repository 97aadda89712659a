//! `io`: calls on files, pipes and sockets, by file and by the line that made them.
//!
//! - `uses`: the file and the line of each row;
//! - `sums`: a rank's calls by file, operation and line;
//! - `rates`: how fast each file system was;
//! - `steps`: what each step transferred;
//! - `again`: what was read from storage more than once;
//! - `judged`: what the findings judge;
//! - `line_bytes`: what a thread transferred at each line, for the report `host`;
//! - `unseen`: what of the bytes that the kernel counted no recorded call transferred;
//! - `tables`: the tables of the report.

mod again;
mod judged;
mod line_bytes;
mod rates;
mod steps;
mod sums;
mod tables;
#[cfg(test)]
mod tests;
mod unseen;
mod uses;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

pub use again::ReadAgain;
pub use judged::{DataSet, JudgedFiles, ReaderTime};
pub use line_bytes::LineBytes;
pub use rates::Rates;
pub use steps::StepFiles;
pub use sums::{FileSums, RankFiles, SumsByUse};
pub use unseen::Unseen;
pub use uses::Use;

/// Registers the report, for the list of kinds.
pub const KIND: DocumentKind = DocumentKind {
    name: "io",
    about: "reads, writes and other calls on files and sockets, by line",
    analysis: || boxed(Io),
};

/// Calls on files and sockets: `tprof report io`.
struct Io;

impl Analysis for Io {
    const KIND: &'static str = KIND.name;
    const HTA: bool = false;
    type Part = RankFiles;

    fn needs(&self, _: &Options) -> Needs {
        // The rows of calls are in a table of their own.
        Needs::STEPS
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankFiles {
        let (from, to) = match options.window {
            Some(window) => window.on(at.clock),
            None => (0, u64::MAX),
        };
        RankFiles::of(rank, from..to)
    }

    fn join(&self, parts: Vec<(RankContext, RankFiles)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}

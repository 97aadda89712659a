//! `io`: calls on files, pipes and sockets, by file and by the line that made them.
//!
//! - `sums`: a rank's calls by file, operation and line;
//! - `unseen`: what of the bytes that the kernel counted no recorded call transferred;
//! - `tables`: the tables of the report.

mod sums;
mod tables;
#[cfg(test)]
mod tests;
mod unseen;

use tprof_document::{Analysis, Body, DocumentKind, Options, RankContext, boxed};
use tprof_rank::{Needs, RankTrace};

pub use sums::{FileSums, RankFiles, Use};
pub use unseen::Unseen;

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
        // The rows are in a table of their own.
        Needs::default()
    }

    fn rank(&self, rank: &RankTrace<'_>, at: &RankContext, options: &Options) -> RankFiles {
        let (from, to) = match options.window {
            Some(window) => window.on(at.clock),
            None => (0, u64::MAX),
        };
        RankFiles::of(rank.file, from..to)
    }

    fn join(&self, parts: Vec<(RankContext, RankFiles)>, _: &Options) -> Body {
        tables::body(&parts)
    }
}

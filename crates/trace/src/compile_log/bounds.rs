//! Bounds how much of a log's text is read, and how much memory its content may take.
//!
//! tprof bounds the text of a log that it copies into a run. A reader still needs bounds, because a
//! compressed log may expand to any length, and because any line may add a row. Content beyond a
//! bound is left out and counted; see [`LeftOut`].

use super::code::GeneratedKernel;
use super::graph::{GraphStage, OperatorCounts};
use super::log::{
    CacheUse, CompileId, CompiledFrame, GeneratedCode, GraphBreak, LeftOut, Recompiled,
};

/// Bounds on how much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of bytes of text. Only the beginning of a longer log is read.
    pub text: u64,
    /// Maximum number of bytes that stored rows and texts take. Vectors that grow may take up to
    /// twice as many.
    pub kept: usize,
}

impl Default for Bounds {
    /// 2 GiB of text and 64 MiB of rows. A run stores at most an eighth of that text per log. Rows
    /// take 11 % of a log of PyTorch 2.4 and less than 1 % of a log of 2.8 or 2.15, so the rows of
    /// every log in a run fit.
    fn default() -> Bounds {
        Bounds { text: 2 << 30, kept: 64 << 20 }
    }
}

/// Counts the bytes that rows may still take, and the content that was left out.
#[derive(Debug, Default)]
pub(super) struct Budget {
    left: usize,
    pub left_out: LeftOut,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget { left: bytes, left_out: LeftOut::default() }
    }

    /// Takes bytes from the budget. If fewer are left, takes none and returns false.
    pub(super) fn takes(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Adds a row, or counts it as left out.
    pub(super) fn push<T: Kept>(&mut self, rows: &mut Vec<T>, row: T) {
        match self.takes(row.bytes()) {
            true => rows.push(row),
            false => self.left_out.rows += 1,
        }
    }
}

/// A row whose memory counts against the budget.
pub(super) trait Kept: Sized {
    /// Returns the number of bytes that the row refers to, without the row itself.
    fn referred(&self) -> usize;

    /// Returns the number of bytes of the row, including the bytes that it refers to.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.referred()
    }
}

impl Kept for String {
    fn referred(&self) -> usize {
        self.len()
    }
}

impl<T: Kept> Kept for Option<T> {
    fn referred(&self) -> usize {
        self.as_ref().map_or(0, Kept::referred)
    }
}

impl<T: Kept> Kept for Vec<T> {
    fn referred(&self) -> usize {
        self.iter().map(Kept::bytes).sum()
    }
}

impl Kept for CacheUse {
    fn referred(&self) -> usize {
        self.why.referred()
    }
}

impl Kept for GraphBreak {
    fn referred(&self) -> usize {
        let texts = [&self.file, &self.reason, &self.explanation];
        texts.into_iter().map(Kept::referred).sum::<usize>() + self.hints.referred()
    }
}

impl Kept for Recompiled {
    fn referred(&self) -> usize {
        self.reasons.referred()
    }
}

impl Kept for GeneratedKernel {
    fn referred(&self) -> usize {
        self.name.len() + self.sources.referred() + self.operators.referred()
    }
}

impl Kept for GeneratedCode {
    fn referred(&self) -> usize {
        self.path.referred() + self.kernels.referred()
    }
}

impl Kept for (CompileId, GraphStage, OperatorCounts) {
    fn referred(&self) -> usize {
        // The nodes of a map are two thirds full on average.
        self.2.keys().map(|name| name.bytes() * 3 / 2 + 16).sum()
    }
}

impl Kept for CompiledFrame {
    fn referred(&self) -> usize {
        let texts = [
            &self.function,
            &self.file,
            &self.failure,
            &self.recompile_reason,
            &self.cuda_graphs_skipped,
        ];
        texts.into_iter().map(Kept::referred).sum::<usize>() + self.restart_reasons.referred()
    }
}

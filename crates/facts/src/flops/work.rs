//! What an operator has to do.

use super::element::ElementType;

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Products of matrices.
    Gemm,
    /// Convolutions.
    Convolution,
    /// Attention in one operator.
    Attention,
    /// Normalisation of layers, groups, batches.
    Norm,
    /// Softmax.
    Softmax,
    /// Sums and the like over dimensions.
    Reduction,
    /// One result for each element.
    Elementwise,
    /// Pooling, and scaling of pictures.
    Pooling,
    /// Sums of rows of a table.
    Embedding,
    /// Updates of parameters.
    Optimizer,
    /// Copies and the like: no arithmetic.
    Copy,
}

impl Family {
    /// For a person.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gemm => "gemm",
            Family::Convolution => "convolution",
            Family::Attention => "attention",
            Family::Norm => "norm",
            Family::Softmax => "softmax",
            Family::Reduction => "reduction",
            Family::Elementwise => "elementwise",
            Family::Pooling => "pooling",
            Family::Embedding => "embedding",
            Family::Optimizer => "optimizer",
            Family::Copy => "copy",
        }
    }

    /// Of operators within each other, those of the highest level count.
    pub fn level(self) -> Level {
        match self {
            Family::Gemm | Family::Convolution | Family::Attention => Level::Product,
            Family::Copy => Level::Move,
            _ => Level::Arithmetic,
        }
    }
}

/// How much of an operator's cost its formula stands for. An operator counts unless one within
/// it counts of its level or a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Bytes only.
    Move,
    /// Some operations for each element.
    Arithmetic,
    /// Products of matrices, and what consists of them: matrix units work on them.
    Product,
}

/// What one run of an operator has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Kind.
    pub family: Family,
    /// Floating-point operations, as `torch.utils.flop_counter` counts them where it has a
    /// formula.
    pub flops: u64,
    /// Those that the result needs: without pairs that a causal mask leaves out, and without
    /// what torch counts too much for weights' gradients of grouped convolutions.
    pub needed: u64,
    /// Bytes of the inputs, each read once; none where a type or size is not known.
    pub read: Option<u64>,
    /// Bytes of the results, each written once; as `read`.
    pub written: Option<u64>,
    /// Type of what is computed with.
    pub of: Option<ElementType>,
}

impl Work {
    /// All of its operations are needed.
    pub(super) fn new(family: Family, flops: u64) -> Work {
        Work { family, flops, needed: flops, read: None, written: None, of: None }
    }

    /// With these bytes.
    pub(super) fn moves(self, read: Option<u64>, written: Option<u64>) -> Work {
        Work { read, written, ..self }
    }

    /// With this type.
    pub(super) fn of(self, of: Option<ElementType>) -> Work {
        Work { of, ..self }
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> Option<u64> {
        self.read?.checked_add(self.written?)
    }
}

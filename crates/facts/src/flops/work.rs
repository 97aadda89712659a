//! The work of an operator.

use super::element::ElementType;

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Products of matrices.
    Gemm,
    /// Convolutions of any dimension.
    Convolution,
    /// Attention in one operator.
    Attention,
    /// Normalisation of layers, groups, batches.
    Norm,
    /// Softmax and its gradients.
    Softmax,
    /// Sums and the like over dimensions.
    Reduction,
    /// Operators with one result for each element.
    Elementwise,
    /// Pooling, and scaling of pictures.
    Pooling,
    /// Sums of rows of a table.
    Embedding,
    /// Updates of parameters by optimizers.
    Optimizer,
    /// Copies and the like: no arithmetic.
    Copy,
}

impl Family {
    /// The displayed name.
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

    /// The level: among operators within each other, those of the highest level count.
    pub fn level(self) -> Level {
        match self {
            Family::Gemm | Family::Convolution | Family::Attention => Level::Product,
            Family::Copy => Level::Move,
            _ => Level::Arithmetic,
        }
    }
}

/// How much of an operator's cost its formula covers. An operator counts unless an operator within
/// it counts that has its level or a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The formula only counts bytes.
    Move,
    /// The formula counts some operations for each element.
    Arithmetic,
    /// Products of matrices, and operators that consist of them: matrix units work on them.
    Product,
}

/// The work of one run of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The kind of work.
    pub family: Family,
    /// Floating-point operations; those that `torch.utils.flop_counter` counts, if it has a
    /// formula.
    pub flops: u64,
    /// The operations that the result needs: without pairs that a causal mask leaves out, and
    /// without those that torch counts too many for weights' gradients of grouped convolutions.
    pub needed: u64,
    /// Bytes of the inputs, each read once; `None` if a type or size is unknown.
    pub read: Option<u64>,
    /// Bytes of the results, each written once; as `read`.
    pub written: Option<u64>,
    /// Type of the elements that it computes with.
    pub of: Option<ElementType>,
}

impl Work {
    /// Work whose operations are all needed.
    pub(super) fn new(family: Family, flops: u64) -> Work {
        Work { family, flops, needed: flops, read: None, written: None, of: None }
    }

    /// Sets the bytes that are read and written.
    pub(super) fn moves(self, read: Option<u64>, written: Option<u64>) -> Work {
        Work { read, written, ..self }
    }

    /// Sets the type of the elements.
    pub(super) fn of(self, of: Option<ElementType>) -> Work {
        Work { of, ..self }
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> Option<u64> {
        self.read?.checked_add(self.written?)
    }
}

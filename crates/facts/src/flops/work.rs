//! Defines the work of an operator.

use super::element::ElementType;

/// The kind of work that an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Products of matrices.
    Gemm,
    /// Convolutions of any dimension.
    Convolution,
    /// Attention in a single operator.
    Attention,
    /// Normalisation of layers, groups, batches.
    Norm,
    /// Softmax and its gradients.
    Softmax,
    /// Sums and other reductions over dimensions.
    Reduction,
    /// Operators with one result for each element.
    Elementwise,
    /// Pooling, and scaling of images.
    Pooling,
    /// Sums of rows of a table.
    Embedding,
    /// Updates of parameters by optimizers.
    Optimizer,
    /// Copies and other operators without arithmetic.
    Copy,
}

impl Family {
    /// Returns the displayed name.
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

    /// Returns the level of the work. Of nested operators, those with the highest level count.
    pub fn level(self) -> Level {
        match self {
            Family::Gemm | Family::Convolution | Family::Attention => Level::Product,
            Family::Copy => Level::Move,
            _ => Level::Arithmetic,
        }
    }
}

/// How much of an operator's cost its formula covers. An operator counts unless it contains an
/// operator that counts and has the same or a higher level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The formula only counts bytes.
    Move,
    /// The formula counts some operations for each element.
    Arithmetic,
    /// The formula counts products of matrices, which matrix units compute.
    Product,
}

/// The work of one run of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The kind of work.
    pub family: Family,
    /// Number of floating-point operations. If `torch.utils.flop_counter` has a formula, this is
    /// its count.
    pub flops: u64,
    /// Number of operations that the result needs. It excludes pairs that a causal mask leaves out,
    /// and the excess in torch's count for weight gradients of grouped convolutions.
    pub needed: u64,
    /// Bytes of the inputs, if each is read once; `None` if a type or size is unknown.
    pub read: Option<u64>,
    /// Bytes of the results, if each is written once; `None` if a type or size is unknown.
    pub written: Option<u64>,
    /// Type of the elements that the operator computes with.
    pub of: Option<ElementType>,
}

impl Work {
    /// Creates work whose operations are all needed.
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

    /// Returns the bytes read and written.
    pub fn bytes(&self) -> Option<u64> {
        self.read?.checked_add(self.written?)
    }
}

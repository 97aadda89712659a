//! Matrix multiplications of cuBLAS and cuBLASLt: where a call's arguments have sizes and types,
//! and the layout of the record of a call.

/// The locations of a multiplication's arguments in a cuBLAS function. All functions begin with a
/// handle, two operations, and m, n and k in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// Types of the matrices.
    pub types: Types,
    /// How the call says how many multiplications it makes.
    pub batch: Batch,
    /// Whether m, n, k and counts have 64 bits (functions whose names end in `_64`).
    pub wide: bool,
}

/// How a call says how many multiplications it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// The call is one multiplication.
    One,
    /// This word of the stack is the number of multiplications, all of one shape.
    Word(u8),
    /// This word of the stack is the number of groups, and the next word points at the number of
    /// multiplications in each group. Then the operations, m, n and k are arrays on the host with
    /// one element for each group.
    Groups(u8),
}

/// Types of matrices, as `cudaDataType` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// The function's name fixes one type for all matrices.
    All(u8),
    /// The words of the stack with the types of A, B and C, and the compute type
    /// (`cublasComputeType_t`).
    At {
        /// Index of the word with A's type.
        a: u8,
        /// Index of the word with B's type.
        b: u8,
        /// Index of the word with C's type.
        c: u8,
        /// Index of the word with the compute type.
        compute: Option<u8>,
    },
}

/// Single precision: `CUDA_R_32F`.
pub const FLOAT: u8 = 0;
/// Double precision: `CUDA_R_64F`.
pub const DOUBLE: u8 = 1;
/// Half precision: `CUDA_R_16F`.
pub const HALF: u8 = 2;
/// Complex, single precision: `CUDA_C_32F`.
pub const COMPLEX_FLOAT: u8 = 4;
/// Complex, double precision: `CUDA_C_64F`.
pub const COMPLEX_DOUBLE: u8 = 5;

/// Attribute of cuBLASLt's layouts: `CUBLASLT_MATRIX_LAYOUT_TYPE` (32 bits).
pub const LAYOUT_TYPE: u32 = 0;
/// Attribute of cuBLASLt's layouts: `CUBLASLT_MATRIX_LAYOUT_ROWS` (64 bits).
pub const LAYOUT_ROWS: u32 = 2;
/// Attribute of cuBLASLt's layouts: `CUBLASLT_MATRIX_LAYOUT_COLS` (64 bits).
pub const LAYOUT_COLUMNS: u32 = 3;
/// Attribute of cuBLASLt's layouts: `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT` (32 bits).
pub const LAYOUT_BATCH: u32 = 5;
/// Attribute of cuBLASLt's descriptors: `CUBLASLT_MATMUL_DESC_COMPUTE_TYPE` (32 bits).
pub const MATMUL_COMPUTE: u32 = 0;
/// Attribute of cuBLASLt's descriptors: `CUBLASLT_MATMUL_DESC_TRANSA` (32 bits).
pub const MATMUL_TRANSPOSE_A: u32 = 3;
/// Attribute of cuBLASLt's descriptors: `CUBLASLT_MATMUL_DESC_TRANSB` (32 bits).
pub const MATMUL_TRANSPOSE_B: u32 = 4;

/// The shape of a multiplication: op(A) of `m` by `k` times op(B) of `k` by `n`, repeated `batch`
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sizes of the matrices.
    pub extent: Extent,
    /// Number of multiplications.
    pub batch: u64,
    /// `cublasOperation_t` of A and of B: 0 for none, 1 for transposed, 2 for conjugate transposed;
    /// or [`SEVERAL`].
    pub operations: [u8; 2],
    /// `cudaDataType` of A, B and C.
    pub types: [u8; 3],
    /// The call's `cublasComputeType_t`; [`NOT_GIVEN`] if the call doesn't pass one.
    pub compute: u8,
}

/// The sizes of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// All multiplications have this size.
    Of {
        /// Rows of op(A) and of the result.
        m: u64,
        /// Columns of op(B) and of the result.
        n: u64,
        /// Columns of op(A), rows of op(B).
        k: u64,
    },
    /// The multiplications are in groups of several sizes.
    Groups {
        /// Sum of m · n · k over all multiplications; `u64::MAX` if it does not fit.
        products: u64,
        /// Number of groups.
        groups: u64,
    },
}

/// [`Shape::compute`] of a call that passes no compute type, so that the math mode of its handle
/// applies.
pub const NOT_GIVEN: u8 = u8::MAX;
/// Value in [`Shape::operations`] if the operation differs from group to group.
pub const SEVERAL: u8 = 3;

/// [`crate::record::ExtKind::Gemm`]: a call returned. The record's argument is the function's
/// number, and its clock the time when the call began. Words:
///
/// - Clock when the call returned.
/// - The call's result. The high half is 1 if the shape is known, and 2 if the call has groups.
/// - m, n and k; for groups, products, groups and 0.
/// - Batch.
/// - Operations, types and compute type, a byte each.
pub const GEMM_WORDS: usize = 7;

const KNOWN: u64 = 1;
const GROUPS: u64 = 2;

/// Packs a call into a record's payload.
#[inline]
pub fn pack(end: u64, result: u32, shape: Option<&Shape>) -> [u64; GEMM_WORDS] {
    let Some(s) = shape else { return [end, u64::from(result), 0, 0, 0, 0, 0] };
    let [a, b] = s.operations;
    let [of_a, of_b, of_c] = s.types;
    let kinds = u64::from_le_bytes([a, b, of_a, of_b, of_c, s.compute, 0, 0]);
    let (known, [m, n, k]) = match s.extent {
        Extent::Of { m, n, k } => (KNOWN, [m, n, k]),
        Extent::Groups { products, groups } => (GROUPS, [products, groups, 0]),
    };
    [end, u64::from(result) | known << 32, m, n, k, s.batch, kinds]
}

/// Unpacks a payload into the clock when the call returned, its result, and the shape.
pub fn unpack(words: &[u64]) -> Option<(u64, u32, Option<Shape>)> {
    let [end, result, m, n, k, batch, kinds] = *words.first_chunk::<GEMM_WORDS>()?;
    let [a, b, of_a, of_b, of_c, compute, ..] = kinds.to_le_bytes();
    let (operations, types) = ([a, b], [of_a, of_b, of_c]);
    let extent = match result >> 32 {
        KNOWN => Some(Extent::Of { m, n, k }),
        GROUPS => Some(Extent::Groups { products: m, groups: n }),
        _ => None,
    };
    let shape = extent.map(|extent| Shape { extent, batch, operations, types, compute });
    Some((end, result as u32, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_trip() {
        let shape = Shape {
            extent: Extent::Of { m: 1, n: u64::MAX, k: 3 },
            batch: 4,
            operations: [1, 2],
            types: [FLOAT, HALF, 28],
            compute: NOT_GIVEN,
        };
        assert_eq!(unpack(&pack(9, 7, Some(&shape))), Some((9, 7, Some(shape))));
        let groups = Shape { extent: Extent::Groups { products: u64::MAX, groups: 8 }, ..shape };
        assert_eq!(unpack(&pack(9, 7, Some(&groups))), Some((9, 7, Some(groups))));
        assert_eq!(unpack(&pack(9, u32::MAX, None)), Some((9, u32::MAX, None)));
        assert_eq!(unpack(&pack(9, 7, None)[1..]), None);
    }
}

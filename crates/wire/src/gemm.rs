//! Matrix multiplications of cuBLAS and cuBLASLt: where a call says how large
//! they are and of which types, and the record of one.

/// Where a function of cuBLAS has the arguments of a multiplication. All of them
/// begin alike: handle, two operations, then m, n and k in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// Types of the matrices.
    pub types: Types,
    /// Word of the stack that says how many multiplications; none for one.
    pub batch: Option<u8>,
    /// Whether numbers have 64 bits (the names that end in `_64`).
    pub wide: bool,
}

/// Types of matrices, as `cudaDataType` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// One for all, by the function's name.
    All(u8),
    /// Words of the stack that say those of A, B and C, and how it is computed
    /// (`cublasComputeType_t`).
    At {
        /// Of A.
        a: u8,
        /// Of B.
        b: u8,
        /// Of C.
        c: u8,
        /// How.
        compute: Option<u8>,
    },
}

/// `CUDA_R_32F`.
pub const FLOAT: u8 = 0;
/// `CUDA_R_64F`.
pub const DOUBLE: u8 = 1;
/// `CUDA_R_16F`.
pub const HALF: u8 = 2;
/// `CUDA_C_32F`.
pub const COMPLEX_FLOAT: u8 = 4;
/// `CUDA_C_64F`.
pub const COMPLEX_DOUBLE: u8 = 5;

/// Attributes of cuBLASLt's layouts: `CUBLASLT_MATRIX_LAYOUT_TYPE` (32 bits).
pub const LAYOUT_TYPE: u32 = 0;
/// `CUBLASLT_MATRIX_LAYOUT_ROWS` (64 bits).
pub const LAYOUT_ROWS: u32 = 2;
/// `CUBLASLT_MATRIX_LAYOUT_COLS` (64 bits).
pub const LAYOUT_COLUMNS: u32 = 3;
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT` (32 bits).
pub const LAYOUT_BATCH: u32 = 5;
/// Of its descriptors: `CUBLASLT_MATMUL_DESC_COMPUTE_TYPE` (32 bits).
pub const MATMUL_COMPUTE: u32 = 0;
/// `CUBLASLT_MATMUL_DESC_TRANSA` (32 bits).
pub const MATMUL_TRANSPOSE_A: u32 = 3;
/// `CUBLASLT_MATMUL_DESC_TRANSB` (32 bits).
pub const MATMUL_TRANSPOSE_B: u32 = 4;

/// What is multiplied: `batch` times, op(A) of `m` by `k` with op(B) of `k` by `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows of op(A) and of the result.
    pub m: u64,
    /// Columns of op(B) and of the result.
    pub n: u64,
    /// Columns of op(A), rows of op(B).
    pub k: u64,
    /// How many.
    pub batch: u64,
    /// `cublasOperation_t` of A and of B: 0 as it is, 1 transposed, 2 also conjugate.
    pub operations: [u8; 2],
    /// `cudaDataType` of A, B and C.
    pub types: [u8; 3],
    /// `cublasComputeType_t`; [`NOT_SAID`] where the call does not say.
    pub compute: u8,
}

/// [`Shape::compute`] of a call that leaves it to its handle's mode.
pub const NOT_SAID: u8 = u8::MAX;

/// [`crate::record::ExtKind::Gemm`]: a call returned, of the function in the record's argument,
/// at the record's clock. Words: clock when it returned; what it returned, in the high half
/// whether the shape is known; m; n; k; batch; operations, types and compute, a byte each.
pub const GEMM_WORDS: usize = 7;

/// A call, as a record's payload.
#[inline]
pub fn pack(end: u64, result: u32, shape: Option<&Shape>) -> [u64; GEMM_WORDS] {
    let Some(s) = shape else { return [end, u64::from(result), 0, 0, 0, 0, 0] };
    let [a, b] = s.operations;
    let [of_a, of_b, of_c] = s.types;
    let kinds = u64::from_le_bytes([a, b, of_a, of_b, of_c, s.compute, 0, 0]);
    [end, u64::from(result) | 1 << 32, s.m, s.n, s.k, s.batch, kinds]
}

/// From a payload: clock when it returned, what it returned, the shape.
pub fn unpack(words: &[u64]) -> Option<(u64, u32, Option<Shape>)> {
    let [end, result, m, n, k, batch, kinds] = *words.first_chunk::<GEMM_WORDS>()?;
    let [a, b, of_a, of_b, of_c, compute, ..] = kinds.to_le_bytes();
    let (operations, types) = ([a, b], [of_a, of_b, of_c]);
    let shape = Shape { m, n, k, batch, operations, types, compute };
    Some((end, result as u32, (result >> 32 & 1 != 0).then_some(shape)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_trip() {
        let shape = Shape {
            m: 1,
            n: u64::MAX,
            k: 3,
            batch: 4,
            operations: [1, 2],
            types: [FLOAT, HALF, 28],
            compute: NOT_SAID,
        };
        assert_eq!(unpack(&pack(9, 7, Some(&shape))), Some((9, 7, Some(shape))));
        assert_eq!(unpack(&pack(9, u32::MAX, None)), Some((9, u32::MAX, None)));
        assert_eq!(unpack(&pack(9, 7, None)[1..]), None);
    }
}

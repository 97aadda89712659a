//! What a kernel does, by its name: enough to suggest which limit it may run into.

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum KernelKind {
    /// Multiplies matrices or convolves: many operations for each byte.
    Matrix,
    /// Computes each element by itself, or moves it: few operations for each byte.
    Elementwise,
    /// Sums, normalises, sorts or gathers: few operations for each byte.
    Reduction,
    /// Unknown from its name.
    Unknown,
}

/// Parts of names of kernels that multiply matrices, convolve or attend.
const MATRIX: [&str; 13] = [
    "gemm", "Gemm", "GEMM", "gemv", "conv", "Conv", "cutlass", "xmma", "scudnn", "winograd",
    "flash", "fmha", "Cijk_",
];
/// Parts of names of kernels that work element by element or copy.
const ELEMENTWISE: [&str; 8] = [
    "elementwise",
    "multi_tensor_apply",
    "direct_copy",
    "CatArray",
    "fill",
    "Fill",
    "nchwToNhwc",
    "nhwcToNchw",
];
/// Parts of names of kernels that reduce, normalise, sort or gather.
const REDUCTION: [&str; 16] = [
    "reduce",
    "Reduce",
    "softmax",
    "SoftMax",
    "norm",
    "Norm",
    "bn_fw",
    "bn_bw",
    "sort",
    "Sort",
    "scan",
    "Scan",
    "embedding",
    "index",
    "gather",
    "scatter",
];

/// What a kernel of this name does. Triton names fused kernels after all that
/// they do, so they are recognised by their parts too.
pub(super) fn kind(name: &str) -> KernelKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    // A functor of an elementwise kernel may be named after a reduction.
    if name.contains("elementwise_kernel") {
        KernelKind::Elementwise
    } else if has(&MATRIX) {
        KernelKind::Matrix
    } else if has(&REDUCTION) {
        KernelKind::Reduction
    } else if has(&ELEMENTWISE) {
        KernelKind::Elementwise
    } else {
        KernelKind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelKind, kind};

    #[test]
    fn kernels_are_distinguished_by_name() {
        use KernelKind::{Elementwise, Matrix, Reduction, Unknown};
        for (name, what) in [
            ("volta_sgemm_128x32_nt", Matrix),
            ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32", Matrix),
            ("Cijk_Ailk_Bljk_SB_MT64x64x16", Matrix),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
                Elementwise,
            ),
            ("void cudnn::ops::nchwToNhwcKernel<float>", Elementwise),
            ("void at::native::reduce_kernel<512, 1>", Reduction),
            ("void cudnn::bn_bw_1C11_kernel_new<float>", Reduction),
            ("my_kernel", Unknown),
        ] {
            assert_eq!(kind(name), what, "{name}");
        }
    }
}

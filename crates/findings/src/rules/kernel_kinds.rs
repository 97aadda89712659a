//! Guesses the purpose of a kernel from its name. The guess is good enough to suggest which limit
//! of the hardware the kernel may reach.

/// The purpose of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum KernelKind {
    /// Multiplies matrices or convolves: many operations for each byte.
    Matrix,
    /// Computes each element by itself, or moves it: few operations for each byte.
    Elementwise,
    /// Sums, normalises, sorts or gathers: few operations for each byte.
    Reduction,
    /// A kernel whose name doesn't show its purpose.
    Unknown,
}

/// Parts of the names of kernels that multiply matrices, convolve or compute attention. They come
/// from cuBLAS (`nvjet` and `xmma` from version 12 on), cuDNN, CUTLASS, Triton's templates in
/// Inductor (`triton_tem_fused_mm`), FlashAttention, hipBLASLt (`Cijk_`) and MIOpen.
const MATRIX: [&str; 33] = [
    "gemm",
    "Gemm",
    "GEMM",
    "gemv",
    "nvjet",
    "xmma",
    "wgmma",
    "cutlass",
    "Cutlass",
    "matmul",
    "MatMul",
    "Matmul",
    "triton_tem_fused",
    "triton_mm",
    "Cijk_",
    "trsm",
    "trmm",
    "syrk",
    "herk",
    "conv",
    "Conv",
    "fprop",
    "dgrad",
    "wgrad",
    "scudnn",
    "winograd",
    "Winograd",
    "flash",
    "Flash",
    "fmha",
    "Fmha",
    "attention",
    "attn",
];
/// Words that begin like `conv`, but name kernels that convert the type of elements.
const CONVERSIONS: [&str; 2] = ["convert", "Convert"];
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

/// Returns the kind of a kernel with this name. Triton names a fused kernel after all of its
/// operations, so parts of such names are recognized too.
pub(super) fn kind(name: &str) -> KernelKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let is_matrix = |part: &str| {
        name.contains(part) && !(part.eq_ignore_ascii_case("conv") && has(&CONVERSIONS))
    };
    // The functor of an elementwise kernel may have the name of a reduction, so check for
    // elementwise kernels first.
    if name.contains("elementwise_kernel") {
        KernelKind::Elementwise
    } else if MATRIX.iter().any(|part| is_matrix(part)) {
        KernelKind::Matrix
    } else if has(&REDUCTION) {
        KernelKind::Reduction
    } else if has(&ELEMENTWISE) {
        KernelKind::Elementwise
    } else {
        KernelKind::Unknown
    }
}

/// Whether a kernel multiplies matrices or convolves in fp32 without tensor cores. Such kernels are
/// `sgemm` of cuBLAS, CUTLASS and MAGMA, `scudnn`, and `xmma` kernels whose operands are all `f32`.
/// With TF32, the names contain `tf32f32` and the instruction `tensor16x8x8` instead.
pub(super) fn is_fp32_matrix(name: &str) -> bool {
    let tensor = [
        "tensor", "tf32", "s884", "s1688", "s16816", "h884", "h1688", "wgmma", "f16f16", "bf16bf16",
    ];
    let plain = ["sgemm", "scudnn", "simt_gemm", "gemmSN", "gemm_f32f32_f32f32_f32", "_ffma_"];
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    has(&plain) && !has(&tensor)
}

#[cfg(test)]
mod tests {
    use super::{KernelKind, is_fp32_matrix, kind};

    #[test]
    fn names_show_whether_products_use_tensor_cores() {
        for name in [
            "volta_sgemm_128x32_nt",
            "magma_sgemmEx_kernel<float, float, float, false, true, 6, 4, 6, 3, 4>",
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>",
            "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize64x64x8_stage3",
        ] {
            assert!(is_fp32_matrix(name), "{name}");
        }
        for name in [
            "cutlass_80_tensorop_s1688gemm_256x64",
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
            "nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNT",
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        ] {
            assert!(!is_fp32_matrix(name), "{name}");
        }
    }

    #[test]
    fn the_name_of_a_kernel_shows_its_kind() {
        use KernelKind::{Elementwise, Matrix, Reduction, Unknown};
        for (name, what) in [
            ("volta_sgemm_128x32_nt", Matrix),
            ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32", Matrix),
            ("Cijk_Ailk_Bljk_SB_MT64x64x16", Matrix),
            ("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNT", Matrix),
            ("triton_tem_fused_addmm_relu_3", Matrix),
            ("void flash::compute_attn_ws<Flash_fwd_kernel_traits>", Matrix),
            ("void cudnn::cnn::wgrad2d_c1_k1_nhwc_kernel_specialized<float>", Matrix),
            ("ck_tile::FmhaFwdKernel", Matrix),
            ("loop_convert_fusion_2", Unknown),
            ("triton_poi_fused_relu_1", Unknown),
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

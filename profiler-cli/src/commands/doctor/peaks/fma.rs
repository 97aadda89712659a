//! Measures the peak operations per second of vector units: fused multiply-add on registers, in
//! enough independent chains to hide the latency.
#![allow(unsafe_code)] // vector instructions, after a check that the processor has them

/// Number of chains. Units with a latency of four to six cycles and two results per cycle need ten
/// to twelve chains. Twelve chains and two operands fit into 16 registers.
const CHAINS: usize = 12;
/// Number of links per chain in a piece of work.
const LINKS: usize = 20_000;

/// The widest vector unit of the processor. `fp32` and `fp64` do a piece of work, and return its
/// number of operations.
pub(super) struct VectorUnit {
    pub name: &'static str,
    pub fp32: fn() -> f64,
    pub fp64: fn() -> f64,
}

/// Defines a function that runs the chains. Parameters: its name, the target features, the function
/// that fills a vector, the function that multiplies and adds, the number of elements in a vector,
/// and their type.
macro_rules! chains {
    ($name:ident, $feature:literal, $fill:expr, $link:expr, $lanes:literal, $number:ty) => {
        #[target_feature(enable = $feature)]
        fn $name() -> f64 {
            let (factor, more): ($number, $number) = black_box((0.999, 0.001));
            let (factor, more) = ($fill(factor), $fill(more));
            let mut sums = [factor; CHAINS];
            for _ in 0..LINKS {
                for sum in &mut sums {
                    *sum = $link(*sum, factor, more);
                }
            }
            black_box(sums);
            (LINKS * CHAINS * $lanes * 2) as f64
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod unit {
    use super::{CHAINS, LINKS, VectorUnit};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    chains!(avx512_f32, "avx512f", _mm512_set1_ps, _mm512_fmadd_ps, 16, f32);
    chains!(avx512_f64, "avx512f", _mm512_set1_pd, _mm512_fmadd_pd, 8, f64);
    chains!(avx2_f32, "avx2,fma", _mm256_set1_ps, _mm256_fmadd_ps, 8, f32);
    chains!(avx2_f64, "avx2,fma", _mm256_set1_pd, _mm256_fmadd_pd, 4, f64);
    chains!(sse2_f32, "sse2", _mm_set1_ps, sse2_link_f32, 4, f32);
    chains!(sse2_f64, "sse2", _mm_set1_pd, sse2_link_f64, 2, f64);

    #[target_feature(enable = "sse2")]
    fn sse2_link_f32(sum: __m128, factor: __m128, more: __m128) -> __m128 {
        _mm_add_ps(_mm_mul_ps(sum, factor), more)
    }

    #[target_feature(enable = "sse2")]
    fn sse2_link_f64(sum: __m128d, factor: __m128d, more: __m128d) -> __m128d {
        _mm_add_pd(_mm_mul_pd(sum, factor), more)
    }

    pub(in super::super) fn widest() -> VectorUnit {
        if is_x86_feature_detected!("avx512f") {
            return VectorUnit {
                name: "AVX-512",
                // SAFETY: `avx512_f32` only requires AVX-512F, which `is_x86_feature_detected!`
                // found above.
                fp32: || unsafe { avx512_f32() },
                // SAFETY: `avx512_f64` only requires AVX-512F, which `is_x86_feature_detected!`
                // found above.
                fp64: || unsafe { avx512_f64() },
            };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return VectorUnit {
                name: "AVX2",
                // SAFETY: `avx2_f32` only requires AVX2 and FMA, which `is_x86_feature_detected!`
                // found above.
                fp32: || unsafe { avx2_f32() },
                // SAFETY: `avx2_f64` only requires AVX2 and FMA, which `is_x86_feature_detected!`
                // found above.
                fp64: || unsafe { avx2_f64() },
            };
        }
        VectorUnit {
            name: "SSE2",
            // SAFETY: `sse2_f32` only requires SSE2, which every x86-64 processor has.
            fp32: || unsafe { sse2_f32() },
            // SAFETY: `sse2_f64` only requires SSE2, which every x86-64 processor has.
            fp64: || unsafe { sse2_f64() },
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod unit {
    use super::{CHAINS, LINKS, VectorUnit};
    use std::arch::aarch64::*;
    use std::hint::black_box;

    chains!(neon_f32, "neon", vdupq_n_f32, link_f32, 4, f32);
    chains!(neon_f64, "neon", vdupq_n_f64, link_f64, 2, f64);

    #[target_feature(enable = "neon")]
    fn link_f32(sum: float32x4_t, factor: float32x4_t, more: float32x4_t) -> float32x4_t {
        vfmaq_f32(more, sum, factor)
    }

    #[target_feature(enable = "neon")]
    fn link_f64(sum: float64x2_t, factor: float64x2_t, more: float64x2_t) -> float64x2_t {
        vfmaq_f64(more, sum, factor)
    }

    pub(in super::super) fn widest() -> VectorUnit {
        VectorUnit {
            name: "NEON",
            // SAFETY: `neon_f32` only requires NEON, which every processor of this target has.
            fp32: || unsafe { neon_f32() },
            // SAFETY: `neon_f64` only requires NEON, which every processor of this target has.
            fp64: || unsafe { neon_f64() },
        }
    }
}

pub(super) use unit::widest;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_work_has_two_operations_for_each_link_and_element() {
        let VectorUnit { fp32, fp64, .. } = widest();
        let links = (LINKS * CHAINS * 2) as f64;
        let (lanes32, lanes64) = (fp32() / links, fp64() / links);
        assert_eq!(lanes32, 2.0 * lanes64);
        assert!([4.0, 8.0, 16.0].contains(&lanes32), "{lanes32}");
    }
}

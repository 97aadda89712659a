//! Finds the shapes of the matrices that a cuBLAS or cuBLASLt call multiplied.
//!
//! A cuBLAS call has the shapes in its arguments. A cuBLASLt call has them in opaque descriptors,
//! so the hook asks the called library for the descriptors' attributes. It does so after the call
//! and only if the call succeeded, so that the caller's pointers are known to be valid.

use crate::call_args::Frame;
use crate::callee;
use core::ffi::{c_int, c_void};
use tprof_wire::calls::FUNCTIONS;
use tprof_wire::gemm::*;

/// The `cublasOperation_t` of an argument.
fn operation(value: u64) -> u8 {
    (value as u32).min(2) as u8
}

/// The shape of a cuBLAS call that succeeded; `None` if its number of groups is impossibly large.
pub fn of_call(frame: &Frame, gemm: Gemm) -> Option<Shape> {
    let number = |value: u64| if gemm.wide { value } else { u64::from(value as u32) };
    let (types, compute) = match gemm.types {
        Types::All(each) => ([each; 3], NOT_GIVEN),
        Types::At { a, b, c, compute } => (
            [a, b, c].map(|word| frame.stack(word) as u8),
            compute.map_or(NOT_GIVEN, |word| frame.stack(word) as u8),
        ),
    };
    let (extent, batch, operations) = match gemm.batch {
        Batch::Groups(word) => of_groups(frame, word, gemm.wide)?,
        one => {
            let batch = if let Batch::Word(word) = one { number(frame.stack(word)) } else { 1 };
            let [m, n, k] = [3, 4, 5].map(|at| number(frame.register(at)));
            let operations = [1, 2].map(|at| operation(frame.register(at)));
            (Extent::Of { m, n, k }, batch, operations)
        }
    };
    Some(Shape { extent, batch, operations, types, compute })
}

/// Maximum number of groups. If a call seems to have more, tprof has misread its arguments.
const GROUPS_MOST: u64 = 1 << 20;

/// Adds up the sizes of all groups, or returns the common size if all groups have the same.
fn of_groups(frame: &Frame, word: u8, wide: bool) -> Option<(Extent, u64, [u8; 2])> {
    let count = frame.stack(word);
    let count = if wide { count } else { u64::from(count as u32) };
    let sizes = frame.stack(word + 1);
    // SAFETY: the library has just succeeded with these arrays. They are in the caller's host
    // memory and have one element for each group.
    let read = |array: u64, at: u64, wide: bool| unsafe {
        match wide {
            true => (array as *const u64).wrapping_add(at as usize).read_unaligned(),
            false => u64::from((array as *const u32).wrapping_add(at as usize).read_unaligned()),
        }
    };
    if count > GROUPS_MOST || count > 0 && sizes == 0 {
        return None;
    }
    let (mut products, mut batch, mut first, mut same) = (Some(0u64), 0u64, None, true);
    let mut operations = [SEVERAL; 2];
    for group in 0..count {
        let [m, n, k] = [3, 4, 5].map(|at| read(frame.register(at), group, wide));
        let [a, b] = [1, 2].map(|at| operation(read(frame.register(at), group, false)));
        let size = read(sizes, group, wide);
        let product = [n, k, size].iter().try_fold(m, |all: u64, n| all.checked_mul(*n));
        products = products.and_then(|sum| sum.checked_add(product?));
        batch = batch.saturating_add(size);
        match first {
            None => (first, operations) = (Some([m, n, k]), [a, b]),
            Some(known) => {
                same &= known == [m, n, k];
                for (known, of_group) in operations.iter_mut().zip([a, b]) {
                    if *known != of_group {
                        *known = SEVERAL;
                    }
                }
            }
        }
    }
    let extent = match first {
        Some([m, n, k]) if same => Extent::Of { m, n, k },
        _ => Extent::Groups { products: products.unwrap_or(u64::MAX), groups: count },
    };
    Some((extent, batch, operations))
}

/// The type of `cublasLt…GetAttribute(object, attribute, to, bytes, written)`.
type Get = unsafe extern "C" fn(u64, u32, *mut c_void, usize, *mut usize) -> c_int;

/// A variable whose address is in this library.
static OWN: u8 = 0;

/// The function `name` of the cuBLASLt library that was called.
fn getter(name: &'static [u8], place: u32, frame: &Frame) -> Option<Get> {
    let own = (&raw const OWN) as usize;
    let number = FUNCTIONS.len() as u32 + place;
    let address = callee::find(name, number, frame.caller(), b"libcublasLt.so", own);
    // SAFETY: `address` is that of the function `name`, which has this type in cuBLASLt's header.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, Get>(address) })
}

/// Reads an attribute into a `T`; `None` if the library doesn't return it. Answers are not cached,
/// since a program may change an object, or copy another one over it, without any call.
#[inline(always)]
fn ask<T: Default>(get: Get, object: u64, attribute: u32) -> Option<T> {
    if object == 0 {
        return None;
    }
    let mut value = T::default();
    let to = (&raw mut value).cast();
    // SAFETY: the library has just succeeded with this object. It writes at most `size_of::<T>()`
    // bytes to `value`, and accepts a null pointer for the number of bytes written.
    let status = unsafe { get(object, attribute, to, size_of::<T>(), core::ptr::null_mut()) };
    (status == 0).then_some(value)
}

/// The shape of a `cublasLtMatmul` call that succeeded.
pub fn of_matmul(frame: &Frame) -> Option<Shape> {
    let layouts = getter(b"cublasLtMatrixLayoutGetAttribute\0", 0, frame)?;
    let descriptors = getter(b"cublasLtMatmulDescGetAttribute\0", 1, frame)?;
    let (how, a, b, result) =
        (frame.register(1), frame.register(4), frame.stack(0), frame.stack(5));
    let of_call = |attribute| ask::<u32>(descriptors, how, attribute);
    let operations = [
        operation(of_call(MATMUL_TRANSPOSE_A)?.into()),
        operation(of_call(MATMUL_TRANSPOSE_B)?.into()),
    ];
    let along_k = if operations[0] == 0 { LAYOUT_COLUMNS } else { LAYOUT_ROWS };
    let type_of = |layout| ask::<u32>(layouts, layout, LAYOUT_TYPE).map(|number| number as u8);
    let [m, n] = [LAYOUT_ROWS, LAYOUT_COLUMNS].map(|attribute| ask(layouts, result, attribute));
    Some(Shape {
        extent: Extent::Of { m: m?, n: n?, k: ask(layouts, a, along_k)? },
        batch: ask::<u32>(layouts, result, LAYOUT_BATCH)?.into(),
        operations,
        types: [type_of(a)?, type_of(b)?, type_of(result)?],
        compute: of_call(MATMUL_COMPUTE)? as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::calls::{Effect, Number};

    /// A frame followed by arguments in memory.
    #[repr(C)]
    struct LaidOutCall {
        frame: Frame,
        stack: [u64; 17],
    }

    fn call(registers: [u64; 6], stack: &[u64]) -> LaidOutCall {
        let mut call = LaidOutCall { frame: Frame::of_registers(registers), stack: [0; 17] };
        call.stack[..stack.len()].copy_from_slice(stack);
        call
    }

    fn shape(number: Number, call: &LaidOutCall) -> Shape {
        let Effect::Multiplies(gemm) = FUNCTIONS[number as usize].does else {
            panic!("{number:?}")
        };
        // `of_call` reads the words of the stack from the memory after the frame.
        let frame: *const Frame = (&raw const *call).cast();
        frame.expose_provenance();
        // SAFETY: the frame is the first field of `call`, which outlives the reference.
        of_call(unsafe { &*frame }, gemm).unwrap()
    }

    #[test]
    fn high_bits_of_registers_are_ignored_for_numbers_of_32_bits() {
        let dirt = 0xdead_beef_0000_0000;
        let of_narrow = call([9, dirt | 1, 0, dirt | 128, dirt | 64, dirt | 32], &[]);
        let got = shape(Number::cublasSgemm_v2, &of_narrow);
        assert_eq!((got.extent, got.batch), (Extent::Of { m: 128, n: 64, k: 32 }, 1));
        assert_eq!((got.operations, got.types), ([1, 0], [FLOAT; 3]));
        let wide = call([9, 0, 2, 1 << 33, 64, 32], &[]);
        let got = shape(Number::cublasZgemm_v2_64, &wide);
        assert_eq!(got.extent, Extent::Of { m: 1 << 33, n: 64, k: 32 });
        assert_eq!((got.operations, got.types), ([0, 2], [COMPLEX_DOUBLE; 3]));
    }

    #[test]
    fn types_and_batches_are_read_from_the_stack() {
        let (alpha, matrix, beta) = (0xa, 0xb, 0xc);
        let words =
            [alpha, matrix, 14, 8, 64, matrix, 2, 8, 64, beta, matrix, 0, 8, 64, 12, 68, 99];
        let got = shape(Number::cublasGemmStridedBatchedEx, &call([9, 0, 1, 8, 9, 10], &words));
        assert_eq!((got.batch, got.types, got.compute), (12, [14, HALF, FLOAT], 68));
        let words = [alpha, matrix, 8, matrix, 8, beta, matrix, 8, 5];
        let got = shape(Number::cublasDgemmBatched, &call([9, 0, 1, 8, 9, 10], &words));
        assert_eq!((got.batch, got.types, got.compute), (5, [DOUBLE; 3], NOT_GIVEN));
    }

    #[test]
    fn groups_of_several_sizes_are_added_up_and_equal_ones_are_a_batch() {
        let at = |array: &[u32]| array.as_ptr() as u64;
        let (a, b, m) = ([0u32, 1, 0], [1u32; 3], [16u32, 8, 100]);
        let (n, k, sizes) = ([32u32, 32, 1], [64u32, 4, 1], [2u32, 3, 5]);
        let registers = [9, at(&a), at(&b), at(&m), at(&n), at(&k)];
        // The bits above the 32 of the count may have any value.
        let words = |count: u64| [0, 0, 0, 0, 0, 0, 0, 0, 0xdead << 32 | count, at(&sizes)];
        let got = shape(Number::cublasSgemmGroupedBatched, &call(registers, &words(3)));
        let products = 16 * 32 * 64 * 2 + 8 * 32 * 4 * 3 + 100 * 5;
        assert_eq!(got.extent, Extent::Groups { products, groups: 3 });
        assert_eq!((got.batch, got.operations, got.types), (10, [SEVERAL, 1], [FLOAT; 3]));
        let got = shape(Number::cublasSgemmGroupedBatched, &call(registers, &words(1)));
        assert_eq!((got.extent, got.batch), (Extent::Of { m: 16, n: 32, k: 64 }, 2));
        assert_eq!(got.operations, [0, 1]);
        // The product of 64-bit numbers may exceed 64 bits.
        let wide = |array: &[u64]| array.as_ptr() as u64;
        let (m, n, k) = ([1u64 << 40, 1], [1u64 << 30, 1], [1u64, 1]);
        let sizes = [1u64, 1];
        let registers = [9, at(&a), at(&b), wide(&m), wide(&n), wide(&k)];
        let words = [0, 0, 14, 0, 0, 14, 0, 0, 0, 0, 0, 2, wide(&sizes), 68];
        let got = shape(Number::cublasGemmGroupedBatchedEx_64, &call(registers, &words));
        assert_eq!(got.extent, Extent::Groups { products: u64::MAX, groups: 2 });
        assert_eq!((got.batch, got.types, got.compute), (2, [14, 14, 0], 68));
        // A call with zero groups.
        let words = [0, 0, 14, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 68];
        let got = shape(Number::cublasGemmGroupedBatchedEx_64, &call(registers, &words));
        assert_eq!((got.extent, got.batch), (Extent::Groups { products: 0, groups: 0 }, 0));
    }
}

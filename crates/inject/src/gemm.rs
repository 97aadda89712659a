//! What a call of cuBLAS or cuBLASLt multiplied.
//!
//! cuBLAS says it in its arguments. cuBLASLt says it in descriptors whose inside
//! is its own affair: the library that was called is asked for their attributes,
//! after it returned and only where it succeeded, so that the caller's pointers
//! are known to be good.

use crate::callee;
use crate::calls::Frame;
use core::ffi::{c_int, c_void};
use tprof_wire::calls::FUNCTIONS;
use tprof_wire::gemm::*;

/// `cublasOperation_t` of an argument.
fn operation(value: u64) -> u8 {
    (value as u32).min(2) as u8
}

/// Of a call of cuBLAS.
pub fn of_call(frame: &Frame, gemm: Gemm) -> Shape {
    let number = |value: u64| if gemm.wide { value } else { u64::from(value as u32) };
    let (types, compute) = match gemm.types {
        Types::All(each) => ([each; 3], NOT_SAID),
        Types::At { a, b, c, compute } => (
            [a, b, c].map(|word| frame.stack(word) as u8),
            compute.map_or(NOT_SAID, |word| frame.stack(word) as u8),
        ),
    };
    Shape {
        m: number(frame.register(3)),
        n: number(frame.register(4)),
        k: number(frame.register(5)),
        batch: gemm.batch.map_or(1, |word| number(frame.stack(word))),
        operations: [operation(frame.register(1)), operation(frame.register(2))],
        types,
        compute,
    }
}

/// `cublasLt…GetAttribute(object, attribute, to, bytes, written)`.
type Get = unsafe extern "C" fn(u64, u32, *mut c_void, usize, *mut usize) -> c_int;

/// An address in this library.
static OWN: u8 = 0;

/// The function of this name beside the one that was called.
fn getter(name: &'static [u8], place: u32, frame: &Frame) -> Option<Get> {
    let own = (&raw const OWN) as usize;
    let number = FUNCTIONS.len() as u32 + place;
    let address = callee::find(name, number, frame.caller, b"libcublasLt.so", own);
    // SAFETY: an address of the function of this name, which has this type.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, Get>(address) })
}

/// A place of `T`'s size for an attribute; `None` if it cannot be had. Answers are not
/// remembered: a program may change an object, or copy another over it, without a call.
#[inline(always)]
fn ask<T: Default>(get: Get, object: u64, attribute: u32) -> Option<T> {
    if object == 0 {
        return None;
    }
    let mut value = T::default();
    let to = (&raw mut value).cast();
    // SAFETY: the library succeeded with this object a moment ago; the place has as many
    // bytes as are said, and no other number will do: it need not say how many it wrote.
    let status = unsafe { get(object, attribute, to, size_of::<T>(), core::ptr::null_mut()) };
    (status == 0).then_some(value)
}

/// Of a call of `cublasLtMatmul` that succeeded.
pub fn of_matmul(frame: &Frame) -> Option<Shape> {
    let layouts = getter(b"cublasLtMatrixLayoutGetAttribute\0", 0, frame)?;
    let descriptors = getter(b"cublasLtMatmulDescGetAttribute\0", 1, frame)?;
    let (how, a, b, result) =
        (frame.register(1), frame.register(4), frame.stack(0), frame.stack(5));
    let said = |attribute| ask::<u32>(descriptors, how, attribute);
    let operations =
        [operation(said(MATMUL_TRANSPOSE_A)?.into()), operation(said(MATMUL_TRANSPOSE_B)?.into())];
    let along_k = if operations[0] == 0 { LAYOUT_COLUMNS } else { LAYOUT_ROWS };
    let type_of = |layout| ask::<u32>(layouts, layout, LAYOUT_TYPE).map(|number| number as u8);
    Some(Shape {
        m: ask(layouts, result, LAYOUT_ROWS)?,
        n: ask(layouts, result, LAYOUT_COLUMNS)?,
        k: ask(layouts, a, along_k)?,
        batch: ask::<u32>(layouts, result, LAYOUT_BATCH)?.into(),
        operations,
        types: [type_of(a)?, type_of(b)?, type_of(result)?],
        compute: said(MATMUL_COMPUTE)? as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::calls::{Does, Number};

    /// A frame with arguments in memory behind it.
    #[repr(C)]
    struct Call {
        frame: Frame,
        stack: [u64; 17],
    }

    fn call(registers: [u64; 6], stack: &[u64]) -> Call {
        let mut call = Call {
            frame: Frame { start: 1, result: 0, registers, fp: 0, caller: 0 },
            stack: [0; 17],
        };
        call.stack[..stack.len()].copy_from_slice(stack);
        call
    }

    fn shape(number: Number, call: &Call) -> Shape {
        let Does::Multiplies(gemm) = FUNCTIONS[number as usize].does else { panic!("{number:?}") };
        // The stack's words are read behind the frame.
        let frame: *const Frame = (&raw const *call).cast();
        // SAFETY: the frame is the call's first field.
        of_call(unsafe { &*frame }, gemm)
    }

    #[test]
    fn numbers_of_32_bits_leave_the_rest_of_the_register_alone() {
        let dirt = 0xdead_beef_0000_0000;
        let of_narrow = call([9, dirt | 1, 0, dirt | 128, dirt | 64, dirt | 32], &[]);
        let got = shape(Number::cublasSgemm_v2, &of_narrow);
        assert_eq!((got.m, got.n, got.k, got.batch), (128, 64, 32, 1));
        assert_eq!((got.operations, got.types), ([1, 0], [FLOAT; 3]));
        let wide = call([9, 0, 2, 1 << 33, 64, 32], &[]);
        let got = shape(Number::cublasZgemm_v2_64, &wide);
        assert_eq!((got.m, got.operations, got.types), (1 << 33, [0, 2], [COMPLEX_DOUBLE; 3]));
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
        assert_eq!((got.batch, got.types, got.compute), (5, [DOUBLE; 3], NOT_SAID));
    }
}

//! Stands in for cuBLASLt: descriptors, layouts and their attributes, and `cublasLtMatmul`.
#![allow(unsafe_code, non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_int, c_void};
use tprof_fake_cuda::gemm::{Product, multiply};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 7;
/// Number of attributes.
const MOST: usize = 40;

type Data = *const c_void;

/// A descriptor or a layout: the value and width of each attribute, by its number.
struct Object([(u64, usize); MOST]);

fn made(values: &[(usize, u64, usize)]) -> *mut c_void {
    let mut object = Object([(0, 0); MOST]);
    for &(at, value, bytes) in values {
        object.0[at] = (value, bytes);
    }
    Box::into_raw(Box::new(object)).cast()
}

unsafe fn get(
    of: *const c_void,
    number: u32,
    to: *mut c_void,
    bytes: usize,
    n: *mut usize,
) -> c_int {
    // SAFETY: the caller passes a descriptor or layout that this library made and that is not
    // destroyed.
    let object = unsafe { &*of.cast::<Object>() };
    match object.0.get(number as usize) {
        Some(&(value, wide)) if wide != 0 && wide <= bytes => {
            // SAFETY: the caller passes room for `bytes` bytes at `to`, and `n` is null or valid.
            unsafe {
                to.cast::<u8>().copy_from((&raw const value).cast(), wide);
                if !n.is_null() {
                    *n = wide;
                }
            }
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

unsafe fn set(of: *mut c_void, number: u32, from: Data, bytes: usize) -> c_int {
    // SAFETY: the caller passes a descriptor or layout that this library made, and no other thread
    // uses it during the call.
    let object = unsafe { &mut *of.cast::<Object>() };
    match object.0.get_mut(number as usize) {
        Some(place) if place.1 == bytes => {
            place.0 = 0;
            // SAFETY: the caller passes `bytes` bytes at `from`; `place.1` says that the attribute
            // has as many.
            unsafe { (&raw mut place.0).cast::<u8>().copy_from(from.cast(), bytes) };
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

macro_rules! attributes {
    ($($get:ident $set:ident $destroy:ident;)*) => {$(
        /// Stands in for cuBLASLt's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            of: *const c_void, number: u32, to: *mut c_void, bytes: usize, written: *mut usize,
        ) -> c_int {
            // SAFETY: the caller passes an object of this library and valid pointers to write to.
            unsafe { get(of, number, to, bytes, written) }
        }
        /// Stands in for cuBLASLt's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            of: *mut c_void, number: u32, from: Data, bytes: usize,
        ) -> c_int {
            // SAFETY: the caller passes an object of this library and a value of `bytes` bytes.
            unsafe { set(of, number, from, bytes) }
        }
        /// Stands in for cuBLASLt's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(of: *mut c_void) -> c_int {
            // SAFETY: this library made the object with `Box::into_raw`, and the caller destroys it
            // once.
            drop(unsafe { Box::from_raw(of.cast::<Object>()) });
            SUCCESS
        }
    )*};
}
attributes! {
    cublasLtMatrixLayoutGetAttribute cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutDestroy;
    cublasLtMatmulDescGetAttribute cublasLtMatmulDescSetAttribute cublasLtMatmulDescDestroy;
}

/// Stands in for cuBLASLt's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(
    descriptor: *mut *mut c_void,
    compute: u32,
    scale: u32,
) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe {
        *descriptor =
            made(&[(0, compute.into(), 4), (1, scale.into(), 4), (3, 0, 4), (4, 0, 4), (5, 0, 4)]);
    }
    SUCCESS
}

/// Stands in for cuBLASLt's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut c_void,
    data_type: u32,
    rows: u64,
    columns: u64,
    ld: i64,
) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe {
        *layout = made(&[
            (0, data_type.into(), 4),
            (1, 0, 4),
            (2, rows, 8),
            (3, columns, 8),
            (4, ld as u64, 8),
            (5, 1, 4),
            (6, 0, 8),
        ]);
    }
    SUCCESS
}

/// Stands in for cuBLASLt's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmul(
    _handle: *mut c_void,
    descriptor: *mut c_void,
    _alpha: Data,
    _a: Data,
    a_is: *mut c_void,
    _b: Data,
    b_is: *mut c_void,
    _beta: Data,
    _c: Data,
    _c_is: *mut c_void,
    _d: *mut c_void,
    d_is: *mut c_void,
    _algorithm: Data,
    _workspace: *mut c_void,
    _bytes: usize,
    stream: *mut c_void,
) -> c_int {
    if [descriptor, a_is, b_is, d_is].contains(&std::ptr::null_mut()) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller passes descriptors and layouts that this library made and that are not
    // destroyed.
    let [how, a, b, d] =
        [descriptor, a_is, b_is, d_is].map(|object| unsafe { &*object.cast::<Object>() }.0);
    let a_turned = how[3].0 as u32;
    let product = Product {
        function: "cublasLtMatmul",
        m: d[2].0,
        n: d[3].0,
        k: if a_turned == 0 { a[3].0 } else { a[2].0 },
        batch: d[5].0,
        operations: [a_turned, how[4].0 as u32],
        types: [a[0].0 as u32, b[0].0 as u32, d[0].0 as u32],
        compute: Some(how[0].0 as u32),
    };
    multiply(product, stream);
    SUCCESS
}

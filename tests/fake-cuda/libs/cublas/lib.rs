//! Stands in for cuBLAS, with the multiplications that the tests' program makes. Like the real cuBLAS,
//! it passes some of them on to cuBLASLt.
#![allow(unsafe_code, non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tprof_fake_cuda::gemm::{Product, multiply, multiply_groups};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 7;

type Data = *const c_void;

/// A handle, which contains the address of its stream.
struct Handle(AtomicUsize);

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut *mut c_void) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *handle = Box::into_raw(Box::new(Handle(AtomicUsize::new(0)))).cast() };
    SUCCESS
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetStream_v2(handle: *mut c_void, stream: *mut c_void) -> c_int {
    // SAFETY: `cublasCreate_v2` made the handle, and the caller has not destroyed it.
    unsafe { (*handle.cast::<Handle>()).0.store(stream as usize, Relaxed) };
    SUCCESS
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: *mut c_void) -> c_int {
    // SAFETY: `cublasCreate_v2` made the handle, and the caller destroys it once.
    drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    SUCCESS
}

unsafe fn run(handle: *mut c_void, product: Product<'_>) -> c_int {
    if handle.is_null() || (product.m as i64) < 0 {
        return INVALID_VALUE;
    }
    // SAFETY: `cublasCreate_v2` made the handle, and the caller has not destroyed it.
    let stream = unsafe { (*handle.cast::<Handle>()).0.load(Relaxed) };
    multiply(product, stream as *mut c_void);
    SUCCESS
}

macro_rules! plain {
    ($($name:ident $number:ty, $type:literal;)*) => {$(
        /// Stands in for cuBLAS's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: *mut c_void, a_is: u32, b_is: u32, m: $number, n: $number, k: $number,
            _alpha: Data, _a: Data, _lda: $number, _b: Data, _ldb: $number, _beta: Data,
            _c: Data, _ldc: $number,
        ) -> c_int {
            let product = Product {
                function: stringify!($name),
                m: m as u64, n: n as u64, k: k as u64, batch: 1,
                operations: [a_is, b_is], types: [$type; 3], compute: None,
            };
            // SAFETY: the caller passes a handle that `cublasCreate_v2` made.
            unsafe { run(handle, product) }
        }
    )*};
}
plain! {
    cublasSgemm_v2 c_int, 0;
    cublasDgemm_v2 c_int, 1;
    cublasZgemm_v2 c_int, 5;
    cublasHgemm c_int, 2;
    cublasSgemm_v2_64 i64, 0;
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSgemmBatched(
    handle: *mut c_void,
    a_is: u32,
    b_is: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: Data,
    _a: Data,
    _lda: c_int,
    _b: Data,
    _ldb: c_int,
    _beta: Data,
    _c: Data,
    _ldc: c_int,
    batch: c_int,
) -> c_int {
    let product = Product {
        function: "cublasSgemmBatched",
        m: m as u64,
        n: n as u64,
        k: k as u64,
        batch: batch as u64,
        operations: [a_is, b_is],
        types: [0; 3],
        compute: None,
    };
    // SAFETY: the caller passes a handle that `cublasCreate_v2` made.
    unsafe { run(handle, product) }
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDgemmStridedBatched(
    handle: *mut c_void,
    a_is: u32,
    b_is: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: Data,
    _a: Data,
    _lda: c_int,
    _stride_a: c_longlong,
    _b: Data,
    _ldb: c_int,
    _stride_b: c_longlong,
    _beta: Data,
    _c: Data,
    _ldc: c_int,
    _stride_c: c_longlong,
    batch: c_int,
) -> c_int {
    let product = Product {
        function: "cublasDgemmStridedBatched",
        m: m as u64,
        n: n as u64,
        k: k as u64,
        batch: batch as u64,
        operations: [a_is, b_is],
        types: [1; 3],
        compute: None,
    };
    // SAFETY: the caller passes a handle that `cublasCreate_v2` made.
    unsafe { run(handle, product) }
}

unsafe extern "C" {
    fn cublasLtMatmulDescCreate(descriptor: *mut *mut c_void, compute: u32, scale: u32) -> c_int;
    fn cublasLtMatmulDescSetAttribute(
        descriptor: *mut c_void,
        attribute: u32,
        from: *const c_void,
        bytes: usize,
    ) -> c_int;
    fn cublasLtMatmulDescDestroy(descriptor: *mut c_void) -> c_int;
    fn cublasLtMatrixLayoutCreate(
        layout: *mut *mut c_void,
        data_type: u32,
        rows: u64,
        columns: u64,
        ld: i64,
    ) -> c_int;
    fn cublasLtMatrixLayoutDestroy(layout: *mut c_void) -> c_int;
    fn cublasLtMatmul(
        handle: *mut c_void,
        descriptor: *mut c_void,
        alpha: Data,
        a: Data,
        a_is: *mut c_void,
        b: Data,
        b_is: *mut c_void,
        beta: Data,
        c: Data,
        c_is: *mut c_void,
        d: *mut c_void,
        d_is: *mut c_void,
        algorithm: Data,
        workspace: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) -> c_int;
}

/// Like cuBLAS's function, implemented with cuBLASLt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmEx(
    handle: *mut c_void,
    a_is: u32,
    b_is: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: Data,
    a: Data,
    a_type: u32,
    lda: c_int,
    b: Data,
    b_type: u32,
    ldb: c_int,
    beta: Data,
    c: *mut c_void,
    c_type: u32,
    ldc: c_int,
    compute: u32,
    _algorithm: c_int,
) -> c_int {
    if handle.is_null() || m < 0 {
        return INVALID_VALUE;
    }
    let null = std::ptr::null_mut();
    let (m, n, k) = (m as u64, n as u64, k as u64);
    let turned = |is: u32, rows, columns| if is == 0 { (rows, columns) } else { (columns, rows) };
    let layout = |number: u32, (rows, columns): (u64, u64), ld: c_int| {
        let mut made = null;
        // SAFETY: the answer goes to a local variable.
        unsafe { cublasLtMatrixLayoutCreate(&raw mut made, number, rows, columns, ld.into()) };
        made
    };
    // SAFETY: the calls below made these objects, only cuBLASLt's functions use them, and each is destroyed
    // once.
    unsafe {
        let mut how = null;
        cublasLtMatmulDescCreate(&raw mut how, compute, 0);
        cublasLtMatmulDescSetAttribute(how, 3, (&raw const a_is).cast(), 4);
        cublasLtMatmulDescSetAttribute(how, 4, (&raw const b_is).cast(), 4);
        let of_a = layout(a_type, turned(a_is, m, k), lda);
        let of_b = layout(b_type, turned(b_is, k, n), ldb);
        let of_c = layout(c_type, (m, n), ldc);
        let stream = (*handle.cast::<Handle>()).0.load(Relaxed) as *mut c_void;
        let status = cublasLtMatmul(
            handle, how, alpha, a, of_a, b, of_b, beta, c, of_c, c, of_c, null, null, 0, stream,
        );
        for each in [of_a, of_b, of_c] {
            cublasLtMatrixLayoutDestroy(each);
        }
        cublasLtMatmulDescDestroy(how);
        status
    }
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGemmStridedBatchedEx(
    handle: *mut c_void,
    a_is: u32,
    b_is: u32,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: Data,
    _a: Data,
    a_type: u32,
    _lda: c_int,
    _stride_a: c_longlong,
    _b: Data,
    b_type: u32,
    _ldb: c_int,
    _stride_b: c_longlong,
    _beta: Data,
    _c: *mut c_void,
    c_type: u32,
    _ldc: c_int,
    _stride_c: c_longlong,
    batch: c_int,
    compute: u32,
    _algorithm: c_int,
) -> c_int {
    let product = Product {
        function: "cublasGemmStridedBatchedEx",
        m: m as u64,
        n: n as u64,
        k: k as u64,
        batch: batch as u64,
        operations: [a_is, b_is],
        types: [a_type, b_type, c_type],
        compute: Some(compute),
    };
    // SAFETY: the caller passes a handle that `cublasCreate_v2` made.
    unsafe { run(handle, product) }
}

/// Multiplies groups. The arrays are in host memory, with an element for each group.
unsafe fn run_groups<N: Copy + Into<i64>>(
    function: &'static str,
    handle: *mut c_void,
    operations: [*const u32; 2],
    [m, n, k, sizes]: [*const N; 4],
    count: N,
    (types, compute): ([u32; 3], Option<u32>),
) -> c_int {
    let count: i64 = count.into();
    if handle.is_null() || count < 0 {
        return INVALID_VALUE;
    }
    let group = |at: usize| {
        // SAFETY: the caller passes arrays with an element for each group.
        let number = |array: *const N| -> i64 { unsafe { *array.add(at) }.into() };
        let [m, n, k, batch] = [m, n, k, sizes].map(|array| number(array) as u64);
        // SAFETY: the caller passes arrays with an element for each group.
        let operations = operations.map(|array| unsafe { *array.add(at) });
        Product { function, m, n, k, batch, operations, types, compute }
    };
    let groups: Vec<Product<'_>> = (0..count as usize).map(group).collect();
    // SAFETY: `cublasCreate_v2` made the handle, and the caller has not destroyed it.
    let stream = unsafe { (*handle.cast::<Handle>()).0.load(Relaxed) };
    multiply_groups(function, &groups, stream as *mut c_void);
    SUCCESS
}

/// Stands in for cuBLAS's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSgemmGroupedBatched(
    handle: *mut c_void,
    a_is: *const u32,
    b_is: *const u32,
    m: *const c_int,
    n: *const c_int,
    k: *const c_int,
    _alpha: Data,
    _a: Data,
    _lda: *const c_int,
    _b: Data,
    _ldb: *const c_int,
    _beta: Data,
    _c: Data,
    _ldc: *const c_int,
    count: c_int,
    sizes: *const c_int,
) -> c_int {
    let (name, arrays) = ("cublasSgemmGroupedBatched", [m, n, k, sizes]);
    // SAFETY: the caller passes a handle that `cublasCreate_v2` made, and arrays with an element for each
    // group.
    unsafe { run_groups(name, handle, [a_is, b_is], arrays, count, ([0; 3], None)) }
}

macro_rules! grouped {
    ($($name:ident $number:ty;)*) => {$(
        /// Stands in for cuBLAS's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: *mut c_void, a_is: *const u32, b_is: *const u32,
            m: *const $number, n: *const $number, k: *const $number,
            _alpha: Data, _a: Data, a_type: u32, _lda: *const $number,
            _b: Data, b_type: u32, _ldb: *const $number, _beta: Data,
            _c: Data, c_type: u32, _ldc: *const $number,
            count: $number, sizes: *const $number, compute: u32,
        ) -> c_int {
            let types = ([a_type, b_type, c_type], Some(compute));
            // SAFETY: the caller passes a handle that `cublasCreate_v2` made, and arrays with an element
            // for each group.
            unsafe {
                run_groups(stringify!($name), handle, [a_is, b_is], [m, n, k, sizes], count, types)
            }
        }
    )*};
}
grouped! {
    cublasGemmGroupedBatchedEx c_int;
    cublasGemmGroupedBatchedEx_64 i64;
}

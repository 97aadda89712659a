//! The code that the stand-ins for cuBLAS and cuBLASLt share. A multiplication is a kernel. As in
//! the real libraries, a runtime that is linked into the library launches it, so only CUPTI records
//! the launch.

use crate::feed::{Launch, Work, engine, number};
use std::ffi::{CStr, c_void};
use tprof_cupti_sys::bindings::CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 as LAUNCH;

/// The shapes and types of a multiplication.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// The function that was called.
    pub function: &'a str,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Number of multiplications.
    pub batch: u64,
    /// `cublasOperation_t` of A and B.
    pub operations: [u32; 2],
    /// `cudaDataType` of A, B and C.
    pub types: [u32; 3],
    /// `cublasComputeType_t`, if the call has it.
    pub compute: Option<u32>,
}

/// Launches one kernel for all groups of a call, and logs the call.
pub fn multiply_groups(function: &str, groups: &[Product<'_>], stream: *mut c_void) {
    let engine = engine();
    (engine.init)();
    let rows = groups.iter().map(|group| group.m).max().unwrap_or(0);
    let kernel = launch(c"_Z17grouped_gemm_tilePKPKfPKPf", rows, stream);
    let each: Vec<String> = groups
        .iter()
        .map(|g| format!("[{},{},{},{},{:?}]", g.m, g.n, g.k, g.batch, g.operations))
        .collect();
    let types = groups.first().map_or([0; 3], |group| group.types);
    let line = format!(
        "{{\"what\":\"groups\",\"name\":\"{function}\",\"groups\":[{}],\"types\":{types:?},\
         \"kernels\":[{kernel}]}}",
        each.join(",")
    );
    (engine.log)(line.as_ptr(), line.len());
}

/// Length of the sums above which a multiplication is split over two kernels.
const SPLIT_AT: u64 = 4096;

/// Launches the kernels of a multiplication, and logs the call.
pub fn multiply(product: Product<'_>, stream: *mut c_void) {
    let engine = engine();
    (engine.init)();
    let start = (engine.now)();
    let mut correlations = vec![launch(c"_Z16ampere_sgemm_128PKfS0_Pf", product.m, stream)];
    if product.k > SPLIT_AT {
        correlations.push(launch(c"_Z13splitKreduce_PKfPf", product.n, stream));
    }
    let compute = product.compute.map_or(-1, i64::from);
    let line = format!(
        "{{\"what\":\"gemm\",\"name\":\"{}\",\"m\":{},\"n\":{},\"k\":{},\"batch\":{},\
         \"operations\":{:?},\"types\":{:?},\"compute\":{compute},\"kernels\":{correlations:?},\
         \"start\":{start},\"end\":{}}}",
        product.function,
        product.m,
        product.n,
        product.k,
        product.batch,
        product.operations,
        product.types,
        (engine.now)()
    );
    (engine.log)(line.as_ptr(), line.len());
}

/// Launches a kernel and returns the correlation of the launch.
fn launch(name: &'static CStr, rows: u64, stream: *mut c_void) -> u32 {
    let engine = engine();
    let correlation = (engine.begin)();
    let start = (engine.now)();
    let blocks = rows.div_ceil(128).max(1) as u32;
    let launch = Launch {
        name: name.as_ptr(),
        grid: [blocks, 1, 1],
        block: [256, 1, 1],
        dynamic_shared: 0,
        static_shared: 0,
        registers: 122,
        ns: u64::from(blocks) * number("FAKE_CUDA_BLOCK_NS", 1000) as u64,
        gate: None,
        gate_data: std::ptr::null_mut(),
    };
    (engine.put)(stream, Work::Kernel(launch), correlation);
    (engine.end)(LAUNCH, c"cudaLaunchKernel".as_ptr(), correlation, start, 0);
    correlation
}

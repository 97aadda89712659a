//! Maps numbers of calls to names: those of the driver, and those of the runtime that
//! `tprof-cupti-sys` does not list.

use std::ffi::CStr;

/// Returns the name of a call of the runtime.
pub fn of_runtime(number: u32) -> Option<&'static CStr> {
    Some(match number {
        23 => c"cudaMallocArray_v3020",
        24 => c"cudaFreeArray_v3020",
        141 => c"cudaMalloc3DArray_v3020",
        152 => c"cudaHostRegister_v4000",
        153 => c"cudaHostUnregister_v4000",
        167 => c"cudaDeviceSetLimit_v3020",
        178 => c"cudaIpcGetMemHandle_v4010",
        179 => c"cudaIpcOpenMemHandle_v4010",
        180 => c"cudaIpcCloseMemHandle_v4010",
        192 => c"cudaMallocMipmappedArray_v5000",
        194 => c"cudaFreeMipmappedArray_v5000",
        377 => c"cudaMemPoolTrimTo_v11020",
        391 => c"cudaMallocFromPoolAsync_v11020",
        406 => c"cudaGetDriverEntryPoint_v11030",
        418 => c"cudaGraphInstantiateWithFlags_v11040",
        454 => c"cudaGraphConditionalHandleCreate_v12030",
        468 => c"cudaGetDriverEntryPointByVersion_v12050",
        _ => return None,
    })
}

/// Returns the name of a call of the driver.
pub fn of_driver(number: u32) -> Option<&'static CStr> {
    Some(match number {
        4 => c"cuDeviceGetCount",
        5 => c"cuDeviceGetName",
        17 => c"cuCtxSynchronize",
        89 => c"cuArrayDestroy",
        243 => c"cuMemAlloc_v2",
        245 => c"cuMemFree_v2",
        272 => c"cuArrayCreate_v2",
        274 => c"cuArray3DCreate_v2",
        307 => c"cuLaunchKernel",
        235 => c"cuCtxCreate_v2",
        322 => c"cuCtxDestroy_v2",
        514 => c"cuGraphLaunch",
        545 => c"cuDevicePrimaryCtxReset_v2",
        547 => c"cuMemAddressReserve",
        548 => c"cuMemAddressFree",
        549 => c"cuMemCreate",
        550 => c"cuMemRelease",
        551 => c"cuMemMap",
        552 => c"cuMemUnmap",
        553 => c"cuMemSetAccess",
        565 => c"cuMemRetainAllocationHandle",
        598 => c"cuMemAllocAsync",
        600 => c"cuMemFreeAsync",
        626 => c"cuGetProcAddress",
        647 => c"cuDeviceGetUuid_v2",
        677 => c"cuGetProcAddress_v2",
        800 => c"cuCtxSynchronize_v2",
        _ => return None,
    })
}

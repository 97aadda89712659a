//! Classifies calls of the CUDA and HIP libraries by their names: waits, copies, allocations, and
//! loading of code.

use tprof_trace::calls::function;

/// Ends of the names of calls that wait for a device. The CUDA runtime, the CUDA driver and HIP use
/// the same ends with different prefixes.
const WAITS: [&str; 7] = [
    "DeviceSynchronize",
    "ThreadSynchronize",
    "StreamSynchronize",
    "EventSynchronize",
    "CtxSynchronize",
    "StreamWaitValue32Host",
    "StreamWaitValue64Host",
];

/// The CUDA or HIP function of a call; empty for a call of any other library.
fn plain(name: &str) -> &str {
    let plain = function(name);
    let is_library = ["cuda", "cu", "hip"].iter().any(|prefix| plain.starts_with(prefix));
    if is_library { plain } else { "" }
}

/// Whether this file knows the names of a call's library: the CUDA runtime, the CUDA driver or HIP.
pub fn is_known(name: &str) -> bool {
    !plain(name).is_empty()
}

/// Whether a call does nothing but wait for a device.
pub fn is_wait(name: &str) -> bool {
    let plain = plain(name);
    WAITS.iter().any(|end| plain.ends_with(end))
}

/// Whether a call copies memory and returns only when the copy is done.
pub fn is_synchronous_copy(name: &str) -> bool {
    // On AMD, PyTorch calls hipMemcpyWithStream, which copies and then waits.
    plain(name).contains("Memcpy") && !name.contains("Async") && !name.contains("Batch")
}

/// Whether a call sets memory and may wait until the memory is set.
pub fn is_synchronous_memset(name: &str) -> bool {
    plain(name).contains("Memset") && !name.contains("Async") && !name.contains("Node")
}

/// Whether a call allocates or frees device memory.
pub fn is_device_allocation(name: &str) -> bool {
    let plain = plain(name);
    let base = ["cuda", "cu", "hip"].iter().find_map(|prefix| plain.strip_prefix(prefix));
    let names = [
        "Malloc",
        "Free",
        "MallocPitch",
        "Malloc3D",
        "MallocArray",
        "FreeArray",
        "MemAlloc",
        "MemFree",
        "MemAllocPitch",
        "MemCreate",
        "MemRelease",
        "MemMap",
        "MemUnmap",
        "ExtMallocWithFlags",
    ];
    base.is_some_and(|base| names.contains(&base))
}

/// Whether a call pins or unpins memory of the host. It may wait for the device.
pub fn is_pinned_allocation(name: &str) -> bool {
    let plain = plain(name);
    let base = ["cuda", "cu", "hip"].iter().find_map(|prefix| plain.strip_prefix(prefix));
    let names = [
        "MallocHost",
        "HostAlloc",
        "FreeHost",
        "HostRegister",
        "HostUnregister",
        "MemAllocHost",
        "MemHostAlloc",
        "MemFreeHost",
        "MemHostRegister",
        "MemHostUnregister",
        "HostMalloc",
        "HostFree",
    ];
    base.is_some_and(|base| names.contains(&base))
}

/// Whether a call loads or links code for a device, which the first use of a kernel does.
pub fn loads_code(name: &str) -> bool {
    let plain = plain(name);
    ["LibraryLoad", "ModuleLoad", "LinkCreate", "LinkAdd", "LinkComplete"]
        .iter()
        .any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_distinguished_by_name() {
        for name in [
            "cudaStreamSynchronize",
            "cuCtxSynchronize",
            "hipEventSynchronize",
            "cuEventSynchronize_ptsz",
        ] {
            assert!(is_wait(name), "{name}");
        }
        for name in ["cudaStreamWaitEvent", "cudaEventQuery", "MyStreamSynchronize", "cudaMemcpy"] {
            assert!(!is_wait(name), "{name}");
        }
        assert!(is_known("__cudaLaunchKernel_ptsz") && is_known("hipLaunchKernel"));
        assert!(!is_known("urEnqueueKernelLaunch"));
        assert!(is_synchronous_copy("cudaMemcpy") && is_synchronous_copy("cuMemcpyHtoD_v2"));
        assert!(is_synchronous_copy("hipMemcpyWithStream"));
        assert!(
            !is_synchronous_copy("cudaMemcpyAsync") && !is_synchronous_copy("cuMemcpyDtoHAsync_v2")
        );
        assert!(is_synchronous_memset("cudaMemset") && is_synchronous_memset("cuMemsetD8_v2"));
        assert!(!is_synchronous_memset("cudaMemsetAsync"));
        assert!(is_device_allocation("cudaMalloc") && is_device_allocation("cuMemFree_v2"));
        assert!(
            !is_device_allocation("cudaMallocAsync") && !is_device_allocation("cudaMallocHost")
        );
        for name in ["cudaMallocHost", "cudaHostRegister", "cuMemFreeHost", "hipHostMalloc"] {
            assert!(is_pinned_allocation(name), "{name}");
        }
        assert!(!is_pinned_allocation("cudaMalloc") && !is_pinned_allocation("cuMemFree_v2"));
    }
}

//! The offsets in bytes of the times in each kind of record. They are from NVIDIA's headers of CUDA
//! 12.0 to 13.5, between which no field moves.

use crate::bindings::*;
use crate::record::*;
use core::mem::offset_of;

/// Offsets of the times in a record, the start time first. Empty for kinds without times; `None`
/// for kinds that are not listed here.
pub fn offsets(kind: CUpti_ActivityKind) -> Option<&'static [usize]> {
    Some(match kind {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL | CUPTI_ACTIVITY_KIND_KERNEL => &[
            offset_of!(Kernel, start),
            offset_of!(Kernel, end),
            offset_of!(Kernel, completed),
            offset_of!(Kernel, queued),
            offset_of!(Kernel, submitted),
        ],
        CUPTI_ACTIVITY_KIND_MEMCPY => &[offset_of!(Memcpy, start), offset_of!(Memcpy, end)],
        CUPTI_ACTIVITY_KIND_MEMCPY2 => {
            &[offset_of!(MemcpyPeer, start), offset_of!(MemcpyPeer, end)]
        }
        CUPTI_ACTIVITY_KIND_MEMSET => &[offset_of!(Memset, start), offset_of!(Memset, end)],
        CUPTI_ACTIVITY_KIND_RUNTIME
        | CUPTI_ACTIVITY_KIND_DRIVER
        | CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API => {
            &[offset_of!(Api, start), offset_of!(Api, end)]
        }
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION => {
            &[offset_of!(Synchronization, start), offset_of!(Synchronization, end)]
        }
        CUPTI_ACTIVITY_KIND_OVERHEAD => &[offset_of!(Overhead, start), offset_of!(Overhead, end)],
        CUPTI_ACTIVITY_KIND_MEMORY2 => &[offset_of!(Memory, timestamp)],
        CUPTI_ACTIVITY_KIND_DEVICE
        | CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE
        | CUPTI_ACTIVITY_KIND_CONTEXT
        | CUPTI_ACTIVITY_KIND_STREAM
        | CUPTI_ACTIVITY_KIND_NAME
        | CUPTI_ACTIVITY_KIND_FUNCTION
        | CUPTI_ACTIVITY_KIND_MODULE
        | CUPTI_ACTIVITY_KIND_MARKER_DATA
        | CUPTI_ACTIVITY_KIND_NVLINK
        | CUPTI_ACTIVITY_KIND_PCIE
        | CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => &[],
        // tprof doesn't decode the following kinds, so their structs are not declared, and the
        // offsets are numbers.
        CUPTI_ACTIVITY_KIND_MARKER
        | CUPTI_ACTIVITY_KIND_ENVIRONMENT
        | CUPTI_ACTIVITY_KIND_PREEMPTION => &[8],
        CUPTI_ACTIVITY_KIND_CDP_KERNEL
        | CUPTI_ACTIVITY_KIND_GRAPH_TRACE
        | CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE => &[8, 16],
        CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER
        | CUPTI_ACTIVITY_KIND_JIT
        | CUPTI_ACTIVITY_KIND_OPENMP => &[16, 24],
        CUPTI_ACTIVITY_KIND_MEMORY => &[24, 32],
        CUPTI_ACTIVITY_KIND_HOST_LAUNCH => &[32, 40],
        CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE => &[40, 48],
        CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS => &[48, 56],
        CUPTI_ACTIVITY_KIND_MEMORY_POOL => &[56],
        CUPTI_ACTIVITY_KIND_OPENACC_DATA
        | CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH
        | CUPTI_ACTIVITY_KIND_OPENACC_OTHER => &[64, 72],
        _ => return None,
    })
}

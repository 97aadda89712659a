//! The struct through which each kind of record is read, in all versions from CUDA 12.0 on.

use crate::bindings::*;
use core::ffi::c_char;
use core::mem::{offset_of, size_of};

/// The record of a kernel.
pub type Kernel = CUpti_ActivityKernel9;
/// The record of a copy.
pub type Memcpy = CUpti_ActivityMemcpy5;
/// The record of a copy between two devices.
pub type MemcpyPeer = CUpti_ActivityMemcpyPtoP4;
/// The record of a fill.
pub type Memset = CUpti_ActivityMemset4;
/// The record of an allocation or a free of device memory.
pub type Memory = CUpti_ActivityMemory3;
/// The record of a wait.
pub type Synchronization = CUpti_ActivitySynchronization;
/// The record of time that CUPTI or the driver spent on its own work.
pub type Overhead = CUpti_ActivityOverhead;
/// The record of a call of the runtime or driver API.
pub type Api = CUpti_ActivityAPI;
/// The record of a context.
pub type Context = CUpti_ActivityContext;
/// The record of a device.
pub type Device = CUpti_ActivityDevice4;
/// The record of a stream.
pub type Stream = CUpti_ActivityStream;
/// The record of a graph that ran as a whole.
pub type GraphTrace = CUpti_ActivityGraphTrace;
/// The record of a graph that ran as a whole, since CUDA 12.4. It also has the device where the
/// graph ended. It begins with the fields of [`GraphTrace`].
pub type GraphTrace2 = CUpti_ActivityGraphTrace2;
/// The device number if the graph's first node ran on the host. Only [`GraphTrace2`] has it.
pub const ON_HOST: u32 = i32::MAX as u32;
/// The record of a name that the program gave to an object.
pub type Name = CUpti_ActivityName;
/// The record of an external id, which another library attached to calls.
pub type ExternalCorrelation = CUpti_ActivityExternalCorrelation;

/// A place that was sampled, as CUDA 12.0 has it: later versions append the number of the launch. A
/// client says in `size` which fields it has room for, and lays places of that size out in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case, missing_docs)] // NVIDIA's names
pub struct PcData {
    pub size: usize,
    pub cubinCrc: u64,
    pub pcOffset: u64,
    pub functionIndex: u32,
    pub pad: u32,
    pub functionName: *mut c_char,
    pub stallReasonCount: usize,
    pub stallReason: *mut CUpti_PCSamplingStallReason,
}
const _: () = {
    use CUpti_PCSamplingPCData as Newest;
    assert!(size_of::<PcData>() == offset_of!(Newest, correlationId));
    assert!(offset_of!(PcData, cubinCrc) == offset_of!(Newest, cubinCrc));
    assert!(offset_of!(PcData, pcOffset) == offset_of!(Newest, pcOffset));
    assert!(offset_of!(PcData, functionIndex) == offset_of!(Newest, functionIndex));
    assert!(offset_of!(PcData, functionName) == offset_of!(Newest, functionName));
    assert!(offset_of!(PcData, stallReasonCount) == offset_of!(Newest, stallReasonCount));
    assert!(offset_of!(PcData, stallReason) == offset_of!(Newest, stallReason));
};

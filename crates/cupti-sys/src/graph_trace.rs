//! Records of whole graphs, as the headers of CUDA 12 and 13 have them.

use crate::bindings::CUpti_ActivityKind;

/// A graph ran (`CUpti_ActivityGraphTrace`).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_snake_case)] // CUPTI's names
pub struct GraphTrace {
    /// See CUPTI.
    pub kind: CUpti_ActivityKind,
    /// See CUPTI.
    pub correlationId: u32,
    /// See CUPTI.
    pub start: u64,
    /// See CUPTI.
    pub end: u64,
    /// See CUPTI; [`ON_HOST`] only in [`GraphTrace2`].
    pub deviceId: u32,
    /// See CUPTI.
    pub graphId: u32,
    /// See CUPTI.
    pub contextId: u32,
    /// See CUPTI.
    pub streamId: u32,
    /// See CUPTI.
    pub reserved: *mut core::ffi::c_void,
}

/// The same with where it ended (`CUpti_ActivityGraphTrace2`).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_snake_case)] // CUPTI's names
pub struct GraphTrace2 {
    /// What both have.
    pub trace: GraphTrace,
    /// See CUPTI.
    pub endDeviceId: u32,
    /// See CUPTI.
    pub endContextId: u32,
}

/// The device of a graph with a first node on the host.
pub const ON_HOST: u32 = i32::MAX as u32;

const _: () = assert!(size_of::<GraphTrace>() == 48 && size_of::<GraphTrace2>() == 56);

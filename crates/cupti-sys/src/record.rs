//! The struct through which each kind of record is read, of every version from
//! CUDA 12.0 on.

use crate::bindings::*;

/// The record of a kernel.
pub type Kernel = CUpti_ActivityKernel9;
/// The record of a copy.
pub type Memcpy = CUpti_ActivityMemcpy5;
/// A copy between two devices.
pub type MemcpyPeer = CUpti_ActivityMemcpyPtoP4;
/// The record of a fill.
pub type Memset = CUpti_ActivityMemset4;
/// An allocation or a release of device memory.
pub type Memory = CUpti_ActivityMemory3;
/// The record of a wait.
pub type Synchronization = CUpti_ActivitySynchronization;
/// Time that CUPTI or the driver spent on its own affairs.
pub type Overhead = CUpti_ActivityOverhead;
/// A call of the runtime's or the driver's interface.
pub type Api = CUpti_ActivityAPI;
/// The record of a context.
pub type Context = CUpti_ActivityContext;
/// The record of a device.
pub type Device = CUpti_ActivityDevice4;
/// The record of a stream.
pub type Stream = CUpti_ActivityStream;
/// A graph that ran as a whole.
pub type GraphTrace = CUpti_ActivityGraphTrace;
/// The same with where it ended, since CUDA 12.4: [`GraphTrace`] is its beginning.
pub type GraphTrace2 = CUpti_ActivityGraphTrace2;
/// The device of a graph with a first node on the host, only in [`GraphTrace2`].
pub const ON_HOST: u32 = i32::MAX as u32;
/// A name that the program gave to something.
pub type Name = CUpti_ActivityName;
/// An id of another library's, attached to calls.
pub type ExternalCorrelation = CUpti_ActivityExternalCorrelation;

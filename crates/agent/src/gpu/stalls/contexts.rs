//! Finds the contexts in which a process runs kernels, without a callback of CUPTI's: a subscription
//! is what a profiler in the job may want.
//!
//! The CUDA runtime and everything that builds on it (PyTorch, JAX, Triton) use the primary context
//! of a device. The driver tells whether that exists. Contexts that a program makes itself
//! (`cuCtxCreate`) aren't found, and their kernels aren't sampled.

use crate::gpu::loader::function;
use core::ffi::{CStr, c_int, c_uint};
use tprof_cupti_sys::CUcontext;
use tprof_inject::loaded;

type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut CUcontext, c_int) -> c_int;
type Release = unsafe extern "C" fn(c_int) -> c_int;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// The functions of the driver that find a device's primary context.
#[derive(Clone, Copy)]
pub struct DriverContexts {
    count: GetCount,
    get: GetDevice,
    attribute: GetAttribute,
    state: GetState,
    retain: Retain,
    release: Release,
}

impl DriverContexts {
    /// Looks the functions up; `None` if the driver lacks one.
    pub fn find() -> Option<DriverContexts> {
        let driver = loaded::named(b"libcuda.so")?;
        let at = |name: &CStr| driver.function(name);
        Some(DriverContexts {
            count: function!(at(c"cuDeviceGetCount")?, GetCount),
            get: function!(at(c"cuDeviceGet")?, GetDevice),
            attribute: function!(at(c"cuDeviceGetAttribute")?, GetAttribute),
            state: function!(at(c"cuDevicePrimaryCtxGetState")?, GetState),
            retain: function!(at(c"cuDevicePrimaryCtxRetain")?, Retain),
            release: function!(at(c"cuDevicePrimaryCtxRelease_v2")?, Release),
        })
    }

    /// Number of devices; 0 if the driver doesn't tell.
    pub fn devices(&self) -> u32 {
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount` has this type, and writes one number to the local.
        let known = unsafe { (self.count)(&raw mut count) } == 0;
        if known { count.max(0) as u32 } else { 0 }
    }

    /// The compute capability of a device: major and minor number.
    pub fn capability(&self, number: u32) -> Option<(u32, u32)> {
        let device = self.device(number)?;
        let of = |which: c_int| {
            let mut value = 0;
            // SAFETY: `cuDeviceGetAttribute` has this type, and writes one number to the local.
            let known = unsafe { (self.attribute)(&raw mut value, which, device) } == 0;
            known.then_some(value.max(0) as u32)
        };
        Some((of(MAJOR)?, of(MINOR)?))
    }

    /// Whether a device's primary context exists. This makes none.
    pub fn is_active(&self, number: u32) -> bool {
        let Some(device) = self.device(number) else { return false };
        let (mut flags, mut active) = (0, 0);
        // SAFETY: `cuDevicePrimaryCtxGetState` has this type, and writes to two locals.
        unsafe { (self.state)(device, &raw mut flags, &raw mut active) == 0 && active != 0 }
    }

    /// A device's primary context; `None` if it doesn't exist.
    ///
    /// Only retaining a context tells its handle, so this retains and releases it. If the program
    /// ends its last use of the context between the check and that, the context is made once more
    /// and ends at once.
    pub fn primary(&self, number: u32) -> Option<CUcontext> {
        let device = self.device(number).filter(|_| self.is_active(number))?;
        let mut context = core::ptr::null_mut();
        // SAFETY: both functions have these types. The context is released as often as it was
        // retained.
        let known = unsafe {
            let known = (self.retain)(&raw mut context, device) == 0;
            if known {
                (self.release)(device);
            }
            known
        };
        (known && !context.is_null()).then_some(context)
    }

    fn device(&self, number: u32) -> Option<c_int> {
        let mut device = 0;
        // SAFETY: `cuDeviceGet` has this type, and writes one number to the local.
        let known = unsafe { (self.get)(&raw mut device, number as c_int) } == 0;
        known.then_some(device)
    }
}

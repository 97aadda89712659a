//! Finds the driver's number of a device.

#![allow(unsafe_code)] // libraries with a C interface

use libloading::os::unix::Library;
use std::ffi::{CStr, c_int};
use std::path::Path;

type Result32 = u32;

/// Why there is no driver. A build for musl can't load any library at run time.
const NOT_LOADED: &str = match cfg!(target_feature = "crt-static") {
    true => "this tprof is static, for musl: it cannot load libcuda.so.1; the one for glibc can",
    false => "no NVIDIA driver: the loader finds no libcuda.so.1",
};

/// The driver's library, after `cuInit`.
pub struct Driver {
    library: &'static Library,
}

impl Driver {
    /// Loads the driver from a path, or by the loader's search if there is none, and initializes it.
    /// It makes no context.
    pub fn open(path: &Path) -> Result<Driver, String> {
        let library = super::cupti::load(path, &["libcuda.so.1"]).ok_or(NOT_LOADED)?;
        let driver = Driver { library };
        type Init = unsafe extern "C" fn(u32) -> Result32;
        // SAFETY: `CUresult cuInit(unsigned int)` in every version of cuda.h.
        let result = unsafe { driver.function::<Init>(c"cuInit")?(0) };
        match result {
            0 => Ok(driver),
            result => Err(format!("the driver does not start: cuInit returned {result}")),
        }
    }

    fn function<T: Copy>(&self, name: &CStr) -> Result<T, String> {
        // SAFETY: callers ask for a function by its name, with the type of NVIDIA's header.
        let found = unsafe { self.library.get::<T>(name) };
        found
            .map(|found| *found)
            .map_err(|_| format!("this driver has no {}", name.to_string_lossy()))
    }

    fn uuids(&self) -> Result<Vec<String>, String> {
        type Count = unsafe extern "C" fn(*mut c_int) -> Result32;
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> Result32;
        type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> Result32;
        let mut count = 0;
        // SAFETY: `cuDeviceGetCount` writes one int.
        let result = unsafe { self.function::<Count>(c"cuDeviceGetCount")?(&raw mut count) };
        if result != 0 {
            return Err(format!("the driver lists no devices: cuDeviceGetCount returned {result}"));
        }
        let get = self.function::<Get>(c"cuDeviceGet")?;
        let uuid = self
            .function::<Uuid>(c"cuDeviceGetUuid_v2")
            .or_else(|_| self.function::<Uuid>(c"cuDeviceGetUuid"))?;
        let of = |index: c_int| {
            let (mut device, mut bytes) = (0, [0; 16]);
            // SAFETY: `cuDeviceGet` writes one CUdevice, which is an int, and `cuDeviceGetUuid` a
            // CUuuid, which is 16 bytes.
            let known =
                unsafe { get(&raw mut device, index) == 0 && uuid(&raw mut bytes, device) == 0 };
            if known { text(&bytes) } else { String::new() }
        };
        Ok((0..count).map(of).collect())
    }

    /// Returns CUDA's number of the device with this UUID.
    pub fn index_of(&self, device: &str) -> Result<u32, String> {
        let all = self.uuids()?;
        let found = all.iter().position(|uuid| uuid == device);
        found.map(|at| at as u32).ok_or_else(|| {
            "CUDA does not list it outside the job (part of a device, or another container)"
                .to_owned()
        })
    }

    /// Returns the UUID and the number of the first device.
    pub fn first(&self) -> Result<(String, u32), String> {
        let first = self.uuids()?.into_iter().next();
        first.map(|uuid| (uuid, 0)).ok_or_else(|| "the NVIDIA driver has no device".to_owned())
    }
}

fn text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}

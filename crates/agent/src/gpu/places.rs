//! Finds the CUPTI library to use: the one that the job has loaded already, the one that
//! `TPROF_CUPTI` names, or the one that belongs to the job's CUDA. Two CUPTI libraries in one
//! process would conflict, and one of another CUDA version would not match the driver.

use super::loader::{Handle, Loader};
use core::ffi::c_int;
use tprof_inject::loaded::{self, Loaded};
use tprof_inject::path::Path;
use tprof_inject::{environment, sys};
use tprof_wire::env;

/// The CUPTI library that was found.
pub struct CuptiLibrary {
    /// The handle that `dlopen` returned.
    pub handle: Handle,
    /// Path of the library, as it was passed to `dlopen`.
    pub path: Path,
}

/// Why no CUPTI library can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The driver is not loaded, so CUPTI must not be called.
    NoDriver,
    /// The file that `TPROF_CUPTI` names does not exist.
    NoFile,
    /// The file that `TPROF_CUPTI` names does not load.
    Named,
    /// The file that `TPROF_CUPTI` names is not CUPTI.
    NotCupti,
    /// No CUPTI library was found in any of the usual places.
    Nowhere,
}

const LAZY: c_int = 1;
const NOLOAD: c_int = 4;

/// Finds CUPTI, and loads it if necessary.
pub fn find(loader: &Loader) -> Result<CuptiLibrary, Missing> {
    let Some(driver) = loaded::named(b"libcuda.so") else { return Err(Missing::NoDriver) };
    if let Some(there) = loaded::named(b"libcupti.so") {
        let path = Path::of(&[there.path.to_bytes()]).ok_or(Missing::Nowhere)?;
        let handle = loader.open(path.as_c(), LAZY | NOLOAD).ok_or(Missing::Nowhere)?;
        return Ok(CuptiLibrary { handle, path });
    }
    if let Some(named) = environment::variable(env::CUPTI).filter(|text| !text.is_empty()) {
        let path = Path::of(&[named]).ok_or(Missing::Named)?;
        // A name without a slash is looked up by the loader, so it can't be checked here.
        let is_there = !named.contains(&b'/') || sys::is_there(path.as_c().as_ptr().cast());
        let why = if is_there { Missing::Named } else { Missing::NoFile };
        let handle = loader.open(path.as_c(), LAZY).ok_or(why)?;
        return match loader.symbol(handle, c"cuptiActivityRegisterCallbacks") {
            Some(_) => Ok(CuptiLibrary { handle, path }),
            None => Err(Missing::NotCupti),
        };
    }
    let newest = driver_major(&driver).unwrap_or(13);
    let own = runtime_major();
    for major in [own.unwrap_or(0), 13, 12] {
        let Some(name) = file_name(major).filter(|_| major <= newest || own == Some(major)) else {
            continue;
        };
        if let Some(found) = beside(loader, name).or_else(|| elsewhere(loader, name)) {
            return Ok(found);
        }
    }
    Err(Missing::Nowhere)
}

fn file_name(major: u32) -> Option<&'static [u8]> {
    match major {
        12 => Some(b"libcupti.so.12"),
        13 => Some(b"libcupti.so.13"),
        _ => None,
    }
}

/// The newest CUDA version that the driver supports.
fn driver_major(driver: &Loaded) -> Option<u32> {
    let address = driver.function(c"cuDriverGetVersion")?;
    let mut version: c_int = 0;
    // SAFETY: `cuDriverGetVersion` has this type, and only writes one number to the local.
    let result = unsafe {
        let call: unsafe extern "C" fn(*mut c_int) -> c_int = core::mem::transmute(address);
        call(&raw mut version)
    };
    (result == 0).then_some(version as u32 / 1000)
}

/// The CUDA version of the runtime that the job has loaded.
fn runtime_major() -> Option<u32> {
    let runtime = loaded::named(b"libcudart")?;
    major_of(runtime.base())
}

/// The major version in a file name: `libcudart.so.12` and `libcudart-1b98f6.so.12.4.127` are 12.
fn major_of(name: &[u8]) -> Option<u32> {
    let at = name.windows(4).position(|part| part == b".so.")?;
    let digits = name.get(at + 4..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0u32, |sum, byte| sum.wrapping_mul(10) + u32::from(byte - b'0'));
    (number > 0).then_some(number)
}

/// Libraries that a CUDA job has loaded. In wheels, conda and the toolkit, CUPTI is near them, at
/// one of the relative paths in [`BESIDE`].
const ANCHORS: [&[u8]; 4] =
    [b"libcudart", b"libcublas.so", b"libtorch_cuda.so", b"libtorch_cpu.so"];
const BESIDE: [&[u8]; 6] = [
    b"/",
    b"/../../cuda_cupti/lib/",
    b"/../../nvidia/cuda_cupti/lib/",
    b"/../../nvidia/cu13/lib/",
    b"/../extras/CUPTI/lib64/",
    b"/../../../extras/CUPTI/lib64/",
];

fn beside(loader: &Loader, name: &[u8]) -> Option<CuptiLibrary> {
    for anchor in ANCHORS {
        let Some(anchor) = loaded::named(anchor) else { continue };
        let path = anchor.path.to_bytes();
        let folder = path.get(..path.len() - anchor.base().len()).unwrap_or_default();
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        for place in BESIDE {
            if let Some(found) = open_file(loader, &[folder, place, name]) {
                return Some(found);
            }
        }
    }
    None
}

fn elsewhere(loader: &Loader, name: &[u8]) -> Option<CuptiLibrary> {
    let home = |variable| environment::variable(variable).filter(|text| !text.is_empty());
    let homes = [home("CUDA_HOME"), home("CUDA_PATH"), Some(b"/usr/local/cuda".as_slice())];
    // The loader's own search comes first: LD_LIBRARY_PATH, and the cache of ldconfig.
    let path = Path::of(&[name])?;
    if let Some(handle) = loader.open(path.as_c(), LAZY) {
        return Some(CuptiLibrary { handle, path });
    }
    homes
        .into_iter()
        .flatten()
        .find_map(|home| open_file(loader, &[home, b"/extras/CUPTI/lib64/", name]))
}

fn open_file(loader: &Loader, parts: &[&[u8]]) -> Option<CuptiLibrary> {
    let path = Path::of(parts)?;
    if !sys::is_there(path.as_c().as_ptr().cast()) {
        return None;
    }
    let handle = loader.open(path.as_c(), LAZY)?;
    Some(CuptiLibrary { handle, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_of_a_runtime_contains_its_major_version() {
        assert_eq!(major_of(b"libcudart.so.12"), Some(12));
        assert_eq!(major_of(b"libcudart-1b98f6a2.so.13.0.96"), Some(13));
        assert_eq!(major_of(b"libcudart.so"), None);
        assert_eq!(major_of(b"libcudart.so.x"), None);
    }
}

//! CUDA programs, compiled by NVIDIA's own compiler where `scripts/test-cuda.sh` has put it.

use crate::clients::cache;
use crate::programs::target_dir;
use crate::sys;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// NVIDIA's toolkit, or why there is none.
fn toolkit() -> Result<PathBuf, String> {
    Ok(cache("cuda")?.join("cuda/nvidia/cu13"))
}

/// The folder of NVIDIA's own CUDA runtime.
pub fn cuda_libraries() -> Result<PathBuf, String> {
    Ok(toolkit()?.join("lib"))
}

/// Path of NVIDIA's compiler.
pub fn nvcc() -> Result<PathBuf, String> {
    Ok(toolkit()?.join("bin/nvcc"))
}

/// `programs/NAME.cu`, compiled with these options of nvcc: with code for no GPU, only PTX.
pub fn compiled(name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let nvcc = nvcc()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.cu"));
    let home = target_dir().join("victims").join(format!("{name}-{}", options.join("")));
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let lock = File::create(home.join("lock")).map_err(|error| error.to_string())?;
    sys::lock(&lock);
    let (partial, output) = (home.join("partial"), home.join(name));
    let built = Command::new(&nvcc)
        .args(["-arch=compute_90", "-O2"])
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(&partial)
        .current_dir(&home)
        .output()
        .map_err(|error| format!("{}: {error}", nvcc.display()))?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&partial, &output).map_err(|error| error.to_string())?;
    Ok(output)
}

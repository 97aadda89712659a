//! Compiles CUDA programs with NVIDIA's own compiler, if `scripts/test-cuda.sh` has installed it.

use crate::clients::cache;
use crate::programs::target_dir;
use crate::sys;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of NVIDIA's toolkit, or why there is none.
fn toolkit() -> Result<PathBuf, String> {
    Ok(cache("cuda")?.join("cuda/nvidia/cu13"))
}

/// Returns the folder of NVIDIA's own CUDA runtime.
pub fn cuda_libraries() -> Result<PathBuf, String> {
    Ok(toolkit()?.join("lib"))
}

/// Returns the path of NVIDIA's compiler.
pub fn nvcc() -> Result<PathBuf, String> {
    Ok(toolkit()?.join("bin/nvcc"))
}

/// Compiles `programs/NAME.cu` with these options of nvcc, to PTX only, without code for a GPU.
/// Returns the path of the program.
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

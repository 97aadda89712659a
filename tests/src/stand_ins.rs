//! Builds the stand-ins for CUDA's libraries, which simulate a GPU, and the programs that run on
//! them. See `fake-cuda/src/lib.rs`.

use crate::job::Job;
use crate::programs::target_dir;
use crate::scratch::Scratch;
use crate::sys;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the folder of the stand-ins, which is built once: `12/`, `13/`, `train-12`, `train-13`,
/// and so on.
pub fn stand_ins() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(make).as_deref().map_err(Clone::clone)
}

fn make() -> Result<PathBuf, String> {
    let home = target_dir().join("stand-ins");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    let lock = File::create(home.join("lock")).map_err(|error| error.to_string())?;
    sys::lock(&lock);
    let made = Command::new("sh")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/fake-cuda/build.sh"))
        .arg(&home)
        .output()
        .map_err(|error| error.to_string())?;
    match made.status.success() {
        true => Ok(home),
        false => Err(format!(
            "the stand-ins for CUDA do not build: {}",
            String::from_utf8_lossy(&made.stderr)
        )),
    }
}

/// Returns a training program on the stand-ins of one CUDA major version, with these words as
/// arguments, and the folder where the stand-ins log what truly ran.
pub fn train(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("train", major, words, scratch)
}

/// Does the same as [`train`] for a program that multiplies matrices.
pub fn gemms(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("gemms", major, words, scratch)
}

/// Does the same as [`train`] for a program that allocates device memory in these ways.
pub fn memory(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("memory", major, words, scratch)
}

/// Does the same as [`train`] for a program that makes communicators in many ways.
pub fn comms(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("comms", major, words, scratch)
}

/// Does the same as [`train`] for a program with a profiler of its own.
pub fn profiled(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("profiled", major, words, scratch)
}

/// Does the same as [`train`] for a program whose profiler uses CUPTI's interface of several
/// clients.
pub fn subscribed(major: u32, words: &[&str], scratch: &Scratch) -> Result<(Job, PathBuf), String> {
    on_stand_ins("subscribed", major, words, scratch)
}

fn on_stand_ins(
    program: &str,
    major: u32,
    words: &[&str],
    scratch: &Scratch,
) -> Result<(Job, PathBuf), String> {
    let home = stand_ins()?;
    let log = scratch.join("log");
    fs::create_dir_all(&log).map_err(|error| error.to_string())?;
    let job = Job::new(home.join(format!("{program}-{major}")))
        .args(words)
        .env("LD_LIBRARY_PATH", home.join(major.to_string()))
        .env("FAKE_CUDA_LOG", &log);
    Ok((job, log))
}

/// Returns the log lines of all processes that logged into this folder: what truly ran. Lines of
/// one process are in their order.
pub fn what_ran(log: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

//! Who gets a process's NVTX ranges in place of tprof's agent.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use tprof_wire::env;

/// Who gets a process's NVTX ranges in tprof's place, if what `NVTX_INJECTION64_PATH` names is
/// not tprof's agent: in words, or that it is no library.
pub fn nvtx_owner(pid: u32, environ: &[u8]) -> Option<String> {
    let value = environ
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(env::NVTX_INJECTION.as_bytes())?.strip_prefix(b"="))?;
    let name = value.rsplit(|byte| *byte == b'/').next().unwrap_or(value);
    if value.is_empty() || name == env::AGENT_LIBRARY.as_bytes() {
        return None;
    }
    let variable = env::NVTX_INJECTION;
    let (path, name) = (String::from_utf8_lossy(value), String::from_utf8_lossy(name));
    Some(match is_library(pid, value) {
        Some(true) | None => format!("{variable} names another library ({name}), which keeps them"),
        Some(false) => format!("{variable} names {path}, which is no library: the ranges are lost"),
    })
}

/// Whether a process finds a library under a path; `None` where that is unknown.
fn is_library(pid: u32, path: &[u8]) -> Option<bool> {
    // A bare name is searched by the loader.
    let folder = match path.first()? {
        b'/' => "root",
        _ if path.contains(&b'/') => "cwd/",
        _ => return None,
    };
    let whole = [format!("/proc/{pid}/{folder}").as_bytes(), path].concat();
    let path = OsStr::from_bytes(&whole);
    match std::fs::metadata(path) {
        // Else opening it might wait.
        Ok(about) if about.is_file() => {
            let mut magic = [0; 4];
            let read = std::fs::File::open(path).ok()?.read(&mut magic).ok()?;
            Some(read == magic.len() && magic == *b"\x7fELF")
        }
        Ok(_) => Some(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

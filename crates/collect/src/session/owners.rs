//! Finds libraries that the environment of a process names where tprof's agent should be named.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use tprof_os::variables::Variables;
use tprof_wire::env;

/// Describes the library that receives a process's NVTX ranges instead of tprof; `None` if tprof
/// receives them. With `redact` the library's name is left out.
pub fn nvtx_owner(pid: u32, environ: &Variables<'_>, redact: bool) -> Option<String> {
    range_owner(env::NVTX_INJECTION, pid, environ, redact)
}

/// Describes the library that receives a process's ITT tasks instead of tprof; `None` if tprof
/// receives them. With `redact` the library's name is left out.
pub fn itt_owner(pid: u32, environ: &Variables<'_>, redact: bool) -> Option<String> {
    let owner = range_owner(env::ITT_COLLECTOR, pid, environ, redact);
    owner.or_else(|| {
        if environ.value(env::ITT_COLLECTOR).is_some_and(|value| !value.is_empty()) {
            return None;
        }
        let set = env::ITT_GROUPS.into_iter().find(|name| environ.value(name).is_some())?;
        Some(format!("{set} is set: libittnotify.so gets them"))
    })
}

/// Describes the library that a variable names, or says that the file which it names isn't a
/// library. `None` if the variable is unset or names tprof's agent.
fn range_owner(variable: &str, pid: u32, environ: &Variables<'_>, redact: bool) -> Option<String> {
    let value = foreign(environ, variable)?;
    let path = String::from_utf8_lossy(value);
    Some(match is_library(pid, value) {
        Some(true) | None => {
            format!("{variable} names another library{}, which keeps them", shown(value, redact))
        }
        Some(false) if redact => format!("{variable} names no library: the ranges are lost"),
        Some(false) => {
            format!("{variable} names {path}, which is not a library: the ranges are lost")
        }
    })
}

/// Describes the profiler plugin that NCCL loads instead of tprof's; `None` if NCCL loads tprof's.
/// With `redact` the plugin's name is left out.
pub fn nccl_owner(environ: &Variables<'_>, redact: bool) -> Option<String> {
    let variable = env::NCCL_PROFILER;
    let value = foreign(environ, variable)?;
    Some(match value.eq_ignore_ascii_case(b"none") {
        true => format!("{variable} is none"),
        false => {
            format!(
                "{variable} names another plugin{}, which keeps its place",
                shown(value, redact)
            )
        }
    })
}

/// Returns the value of a variable; `None` if it is unset or names tprof's agent.
fn foreign<'e>(environ: &Variables<'e>, variable: &str) -> Option<&'e [u8]> {
    let value = environ.value(variable)?;
    let is_own = last_part(value) == env::AGENT_LIBRARY.as_bytes();
    (!value.is_empty() && !is_own).then_some(value)
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Returns the name of a file in brackets, or an empty text with `redact`.
fn shown(path: &[u8], redact: bool) -> String {
    if redact { String::new() } else { format!(" ({})", String::from_utf8_lossy(last_part(path))) }
}

/// Whether a path names a library, as this process sees the path; `None` if that is unknown.
fn is_library(pid: u32, path: &[u8]) -> Option<bool> {
    // A name without a slash is searched by the loader, so its path is unknown here.
    let folder = match path.first()? {
        b'/' => "root",
        _ if path.contains(&b'/') => "cwd/",
        _ => return None,
    };
    let whole = [format!("/proc/{pid}/{folder}").as_bytes(), path].concat();
    let path = OsStr::from_bytes(&whole);
    match std::fs::metadata(path) {
        // Only regular files are opened, because opening another kind of file could block.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn itt_groups_own_the_tasks_unless_tprofs_agent_is_named() {
        let agent = format!("INTEL_LIBITTNOTIFY64=/x/{}\0", env::AGENT_LIBRARY);
        let groups = "KMP_FOR_TCHECK=1\0";
        let owner = |environ: &str| itt_owner(1, &Variables::of(environ.as_bytes()), true);
        assert_eq!(
            owner(groups),
            Some("KMP_FOR_TCHECK is set: libittnotify.so gets them".to_owned())
        );
        assert_eq!(owner(&(agent.clone() + groups)), None);
        assert_eq!(owner(&agent), None);
        assert_eq!(owner(""), None);
    }

    #[test]
    fn redaction_removes_the_values_of_variables() {
        let environ = b"NVTX_INJECTION64_PATH=/secret/none.so\0NCCL_PROFILER_PLUGIN=secret.so\0\
                        INTEL_LIBITTNOTIFY64=/secret/other.so\0";
        let environ = &Variables::of(environ);
        let pid = std::process::id();
        let words = |redact| {
            let ranges = [nvtx_owner, itt_owner].map(|owner| owner(pid, environ, redact));
            ranges.into_iter().chain([nccl_owner(environ, redact)]).collect::<Vec<_>>()
        };
        assert!(words(false).iter().flatten().all(|text| text.contains("secret")));
        for text in words(true) {
            let text = text.unwrap();
            assert!(text.contains(" names ") && !text.contains("secret"), "{text}");
        }
    }
}

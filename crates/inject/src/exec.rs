//! Predicts whether the loader will load the preloaded library into a file that is about to be
//! executed, and whether it may.
//!
//! If it must not be loaded, the caller removes tprof's entries from the child's environment. That
//! is so for another ELF class, where the loader prints an error, and for a sanitizer, which
//! refuses to start. The child then sees the environment that it would see without tprof.

use crate::sys;
use core::ffi::CStr;
use tprof_wire::record::ExecVerdict;

/// Maximum number of bytes of the dynamic section that are read.
const DYNAMIC_MOST: usize = 64 * 16;

/// Predicts whether the library will be loaded into the executable at `path`.
pub fn judge(path: &CStr) -> ExecVerdict {
    let fd = sys::open_read(path.as_ptr().cast());
    if fd < 0 {
        return ExecVerdict::Followed; // the file can't be read: exec itself will report that
    }
    let fd = fd as i32;
    let verdict = judge_open(fd);
    let privileged = verdict == ExecVerdict::Followed && sys::has_capabilities(fd);
    sys::close(fd);
    if privileged { ExecVerdict::Setuid } else { verdict }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn judge_open(fd: i32) -> ExecVerdict {
    const SET_IDS: u32 = 0o6000;
    const KIND: u32 = 0o170000;
    const REGULAR: u32 = 0o100000;
    if sys::mode_of(fd).is_none_or(|mode| mode & KIND != REGULAR) {
        return ExecVerdict::Followed; // not a regular file: exec itself will refuse it
    }
    let mut head = [0u8; 64];
    if sys::read_at(fd, &mut head, 0) < 20 {
        return ExecVerdict::Followed;
    }
    if head.starts_with(b"#!") {
        return ExecVerdict::Followed; // the script's interpreter is taken for an ordinary program
    }
    if !head.starts_with(b"\x7fELF") {
        return ExecVerdict::Followed;
    }
    const CLASS_64: u8 = 2;
    const X86_64: u16 = 62;
    if head[4] != CLASS_64 || u16_at(&head, 18) != X86_64 {
        return ExecVerdict::OtherClass;
    }
    if sys::mode_of(fd).is_some_and(|mode| mode & SET_IDS != 0) {
        return ExecVerdict::Setuid;
    }
    let mut headers = [0u8; 56 * 24];
    let count = (u16_at(&head, 56) as usize).min(24);
    let wanted = headers.get_mut(..count * 56);
    let Some(headers) = wanted else { return ExecVerdict::Followed };
    if sys::read_at(fd, headers, u64_at(&head, 32)) < (count * 56) as isize {
        return ExecVerdict::Followed;
    }
    let of_kind = |kind: u32| headers.chunks(56).find(move |h| u32_at(h, 0) == kind);
    if of_kind(3).is_none() {
        return ExecVerdict::Static; // no PT_INTERP: no loader reads LD_PRELOAD
    }
    match of_kind(2) {
        Some(dynamic) if needs_sanitizer(fd, headers, dynamic) => ExecVerdict::Sanitizer,
        _ => ExecVerdict::Followed,
    }
}

/// Whether a `DT_NEEDED` entry names a sanitizer's runtime.
fn needs_sanitizer(fd: i32, headers: &[u8], dynamic: &[u8]) -> bool {
    let mut entries = [0u8; DYNAMIC_MOST];
    let bytes = (u64_at(dynamic, 32) as usize).min(DYNAMIC_MOST);
    let Some(entries) = entries.get_mut(..bytes) else { return false };
    if sys::read_at(fd, entries, u64_at(dynamic, 8)) <= 0 {
        return false;
    }
    let value = |tag: u64| entries.chunks(16).find(|e| u64_at(e, 0) == tag).map(|e| u64_at(e, 8));
    let Some(strings) = value(5) else { return false };
    let offset = headers.chunks(56).find_map(|h| {
        let (kind, at, address, size) = (u32_at(h, 0), u64_at(h, 8), u64_at(h, 16), u64_at(h, 32));
        (kind == 1 && strings >= address && strings - address < size)
            .then(|| at + (strings - address))
    });
    let Some(offset) = offset else { return false };
    entries.chunks(16).take_while(|e| u64_at(e, 0) != 0).filter(|e| u64_at(e, 0) == 1).any(|e| {
        let mut name = [0u8; 16];
        sys::read_at(fd, &mut name, offset + u64_at(e, 8)) > 0
            && [&b"libasan."[..], b"libtsan.", b"liblsan.", b"libhwasan.", b"libclang_rt.asan"]
                .iter()
                .any(|sanitizer| name.starts_with(sanitizer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn judged(name: &str, bytes: &[u8], mode: u32) -> ExecVerdict {
        let path = std::env::temp_dir().join(format!("tprof-exec-{name}-{}", sys::pid()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let c_path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let verdict = judge(&c_path);
        std::fs::remove_file(path).unwrap();
        verdict
    }

    /// This program, whose loader loads libraries.
    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn an_ordinary_program_is_followed_and_a_privileged_one_is_not() {
        assert!(judged("plain", &own(), 0o755) == ExecVerdict::Followed);
        assert!(judged("setuid", &own(), 0o4755) == ExecVerdict::Setuid);
        assert!(judged("setgid", &own(), 0o2755) == ExecVerdict::Setuid);
    }

    #[test]
    fn a_program_of_another_class_or_machine_is_told_apart() {
        let (mut narrow, mut other) = (own(), own());
        narrow[4] = 1;
        other[18] = 183;
        assert!(judged("narrow", &narrow, 0o755) == ExecVerdict::OtherClass);
        assert!(judged("other", &other, 0o755) == ExecVerdict::OtherClass);
    }

    #[test]
    fn a_program_without_an_interpreter_is_static() {
        let mut program = own();
        let (first, count) = (u64_at(&program, 32) as usize, u16_at(&program, 56) as usize);
        for at in (0..count).map(|at| first + at * 56) {
            if u32_at(&program, at) == 3 {
                program[at] = 0;
            }
        }
        assert!(judged("static", &program, 0o755) == ExecVerdict::Static);
    }

    #[test]
    fn what_is_no_program_is_left_to_exec() {
        for (name, bytes) in [
            ("script", &b"#!/bin/sh\nexit 0 # and more"[..]),
            ("text", b"some text that is long enough"),
            ("empty", b""),
        ] {
            assert!(judged(name, bytes, 0o755) == ExecVerdict::Followed, "{name}");
        }
        assert!(judge(c"/nonexistent/program") == ExecVerdict::Followed);
        assert!(judge(c"/tmp") == ExecVerdict::Followed);
        // A head that says more than the file has.
        assert!(judged("cut", &own()[..64], 0o755) == ExecVerdict::Followed);
    }
}

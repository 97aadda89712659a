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

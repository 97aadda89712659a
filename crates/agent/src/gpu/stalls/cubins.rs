//! Numbers the code of each module that is loaded, and saves code with line information to a file
//! from which the collector reads it.
//!
//! CUPTI asks for a module's number where the module is loaded, on a thread of the job, and only
//! then the code is certainly in memory. Almost all libraries have no line information; of these
//! only the section headers are read. Code with it is written to a file at once, so the job's memory
//! doesn't grow; the collector, in its own process and time, reads the lines of those places that
//! were sampled. (`cuptiGetSassToSourceCorrelation` would do that on a thread of the job, and needs
//! a copy of the code there.)

use core::ffi::c_void;
use tprof_inject::path::Path;
use tprof_inject::seccomp::{self, CallClass};
use tprof_inject::{environment, gate, ring, state, sys};
use tprof_wire::env;
use tprof_wire::gpu::{CUBIN_NUMBERED, Cubin, MAX_CUBIN_BYTES};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of modules so far.
static MODULES: AtomicU32 = AtomicU32::new(0);
/// Bytes of saved code.
static SAVED: AtomicU64 = AtomicU64::new(0);

/// Called by CUPTI when a module is loaded.
///
/// # Safety
/// `code` has `bytes` bytes, and `number` is valid for a write.
pub unsafe extern "C" fn number(code: *const c_void, bytes: usize, number: *mut u64) {
    let own = CUBIN_NUMBERED | u64::from(MODULES.fetch_add(1, Relaxed).wrapping_add(1));
    if !number.is_null() {
        // SAFETY: the caller guarantees a valid pointer.
        unsafe { *number = own };
    }
    if code.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that the code has this many bytes.
    let code = unsafe { core::slice::from_raw_parts(code.cast::<u8>(), bytes) };
    if !has_lines(code) {
        return;
    }
    let Some(thread) = gate::recording() else { return };
    let is_saved = u32::from(save(code, own));
    let saved = Cubin { number: own, bytes: code.len() as u64, key: key(), is_saved };
    ring::ext(thread, ExtKind::Cubin, 0, thread.clock(), &saved.pack());
}

/// Returns a number that only this process's files have in their names. Its pid would not do, since
/// processes of other namespaces have the same ones.
fn key() -> u64 {
    state::WIPED.generation.load(Relaxed)
}

fn save(code: &[u8], number: u64) -> bool {
    let bytes = code.len() as u64;
    let is_permitted = !seccomp::is_forbidden(CallClass::Files);
    if !is_permitted || SAVED.fetch_add(bytes, Relaxed).saturating_add(bytes) > MAX_CUBIN_BYTES {
        return false;
    }
    let Some(session) = environment::variable(env::SESSION) else { return false };
    let parts: [&[u8]; 5] =
        [session, b"/cubin-", &hexadecimal(key()), b"-", &hexadecimal(number & 0xffff_ffff)];
    Path::of(&parts).is_some_and(|path| sys::append(path.as_c().as_ptr().cast(), &[code]))
}

/// A number's sixteen hexadecimal digits.
fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = [b'0'; 16];
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        let value = (number >> (4 * at) & 0xf) as u8;
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
    }
    digits
}

/// Whether an ELF file of 64 bits has a section of line information.
fn has_lines(code: &[u8]) -> bool {
    const SECTION: &[u8] = b".debug_line\0";
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let word = code.get(at..at.checked_add(bytes)?)?;
        let value = word.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    let find = || -> Option<bool> {
        if !code.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (headers, each) = (number(40, 8)?, number(58, 2)?);
        let (count, names) = (number(60, 2)?, number(62, 2)?);
        let header = |at: usize| headers.checked_add(at.checked_mul(each)?);
        let text = number(header(names)?.checked_add(24)?, 8)?;
        for at in 0..count {
            let section = header(at)?;
            let name = text.checked_add(number(section, 4)?)?;
            let bytes = number(section.checked_add(32)?, 8)?;
            let found = code.get(name..name.checked_add(SECTION.len())?) == Some(SECTION);
            if found && bytes > 0 {
                return Some(true);
            }
        }
        Some(false)
    };
    find().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one section of this name, beside the section of names.
    fn elf(name: &str, bytes: u64) -> Vec<u8> {
        let names = format!("\0.shstrtab\0{name}\0");
        let mut file = vec![0u8; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file.extend(names.as_bytes());
        let headers = file.len() as u64;
        file[40..48].copy_from_slice(&headers.to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        file[60..62].copy_from_slice(&2u16.to_le_bytes());
        for (name, offset, bytes) in [(1u32, 64u64, names.len() as u64), (11, 0, bytes)] {
            let mut header = vec![0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&offset.to_le_bytes());
            header[32..40].copy_from_slice(&bytes.to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn only_code_with_a_section_of_lines_has_lines() {
        assert!(has_lines(&elf(".debug_line", 8)));
        assert!(!has_lines(&elf(".debug_line", 0)), "it is empty");
        assert!(!has_lines(&elf(".debug_lines", 8)) && !has_lines(&elf(".text", 8)));
        assert!(!has_lines(b"\x7fELF") && !has_lines(b""));
        let whole = elf(".debug_line", 8);
        for cut in 0..whole.len() {
            has_lines(&whole[..cut]);
        }
    }

    #[test]
    fn numbers_are_written_with_sixteen_digits() {
        assert_eq!(&hexadecimal(0xdead_beef_0000_001f), b"deadbeef0000001f");
    }
}

//! Saves CUPTI's buffers unchanged to the file that `TPROF_CUPTI_RECORD` names, so that they can be
//! replayed on machines without a GPU. The file consists of blocks in native byte order:
//!
//! ```text
//! 0..8 magic | 8..12 kind | 12..16 pid | 16..20 CUPTI's version | 20..24 length, bytes | bytes
//! kind 1: a buffer, as far as it was valid
//! kind 2: the text at an address that records name: address (8), bytes
//! kind 3: entries of the journal, of 40 bytes (`journal.rs`)
//! ```
//!
//! A text precedes the buffer that first refers to it. Writing costs the flush thread time and
//! opens a descriptor for a moment, so this is not for measurements.

use core::ffi::CStr;
use tprof_cupti_sys::*;
use tprof_inject::path::Path;
use tprof_inject::{environment, sys};
use tprof_wire::env;
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicU64, Ordering::Relaxed};

const MAGIC: &[u8; 8] = b"TPROFRAW";
const BUFFER: u32 = 1;
const TEXT: u32 = 2;
const JOURNAL: u32 = 3;
/// Maximum number of texts that are known to be in the file. Other texts are written again at each
/// use.
const KNOWN: usize = 4096;
static TEXTS: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];

/// The file for buffers, with the version of CUPTI that each block contains.
pub struct Raw {
    path: Path,
    version: u32,
}

impl Raw {
    /// The file that the environment names; `None` if the variable isn't set.
    pub fn wanted(version: u32) -> Option<Raw> {
        let named = environment::variable(env::CUPTI_RECORD).filter(|text| !text.is_empty())?;
        Some(Raw { path: Path::of(&[named])?, version })
    }

    /// Saves the text that a record refers to, if there is one.
    ///
    /// # Safety
    /// CUPTI (12.0 or newer) returned `record`, in a buffer that has not been recycled yet.
    pub unsafe fn text_of(&self, record: *const CUpti_Activity) {
        // SAFETY: the caller guarantees a record of CUPTI's. A record of each kind begins with the
        // fields of the struct through which it is read here.
        let at = unsafe {
            match (*record).kind {
                CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL | CUPTI_ACTIVITY_KIND_KERNEL => {
                    (*record.cast::<record::Kernel>()).name
                }
                CUPTI_ACTIVITY_KIND_DEVICE => (*record.cast::<record::Device>()).name,
                _ => return,
            }
        };
        if at.is_null() {
            return;
        }
        let address = at as u64;
        let place = spread(address >> 3) >> 52;
        let Some(known) = TEXTS.get(place as usize) else { return };
        if known.swap(address, Relaxed) != address {
            // SAFETY: the names in CUPTI's records are NUL-terminated strings.
            let text = unsafe { CStr::from_ptr(at) }.to_bytes();
            self.block(TEXT, &[&address.to_ne_bytes(), text]);
        }
    }

    /// Saves a buffer.
    pub fn buffer(&self, bytes: &[u8]) {
        self.block(BUFFER, &[bytes]);
    }

    /// Writes entries of the journal, if there are any.
    pub fn journal(&self, entries: &[u8]) {
        if !entries.is_empty() {
            self.block(JOURNAL, &[entries]);
        }
    }

    fn block(&self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let mut head = [0u8; 24];
        let fields = [kind, sys::pid(), self.version, len as u32];
        let (magic, rest) = head.split_at_mut(MAGIC.len());
        magic.copy_from_slice(MAGIC);
        for (to, field) in rest.chunks_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        let path = self.path.as_c().as_ptr().cast();
        match parts {
            [one] => sys::append(path, &[&head, one]),
            [one, two] => sys::append(path, &[&head, one, two]),
            _ => false,
        };
    }
}

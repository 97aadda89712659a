//! Names of spans, marks, counters and pools, one per place in the program.

#![allow(unsafe_code)]

use crate::category::Category;
use std::sync::atomic::AtomicU64;

/// A name as tprof's library stores it: `struct tprof_name`. The macros create one static per
/// place, so that its text is sent to the collector only once.
#[repr(C)]
#[derive(Debug)]
pub struct Name {
    text: *const u8,
    bytes: usize,
    own: [AtomicU64; 2],
}

// SAFETY: nobody writes to the text behind the pointer, and all other fields that change are
// atomic, so threads may share a name.
unsafe impl Sync for Name {}
// SAFETY: a name has no tie to the thread that created it: the pointer is only read, and the rest
// is numbers.
unsafe impl Send for Name {}

impl Name {
    /// Creates a name from text.
    pub const fn new(text: &'static str) -> Name {
        Name::of_bytes(text.as_bytes())
    }

    /// Creates a name from bytes as [`joined`] returns them: text, followed by a category.
    pub const fn of_bytes(text: &'static [u8]) -> Name {
        Name { text: text.as_ptr(), bytes: text.len(), own: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Creates a name for one call. It must not be used after the text is gone.
    pub(crate) fn for_a_call(text: &str) -> Name {
        let (text, bytes) = (text.as_ptr(), text.len());
        Name { text, bytes, own: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// Returns the text of the name.
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(feature = "off"), not(miri)))]
    pub(crate) fn text(&self) -> &[u8] {
        // SAFETY: every constructor takes `text` and `bytes` from one slice. The slice is static,
        // or the caller of `for_a_call` keeps it until the name is no longer used.
        unsafe { std::slice::from_raw_parts(self.text, self.bytes) }
    }
}

const BEFORE: &[u8] = b"\x1f{\"category\":\"";
const AFTER: &[u8] = b"\"}";

/// Returns the length of [`joined`] in bytes.
pub const fn joined_bytes(name: &str, category: Category) -> usize {
    let category = category.name().as_bytes();
    let mut bytes = name.len() + BEFORE.len() + AFTER.len();
    let mut at = 0;
    while at < category.len() {
        bytes += escaped(category[at]).1;
        at += 1;
    }
    bytes
}

/// Appends a category to a name as a JSON object, which tprof's library takes for the span's
/// arguments.
pub const fn joined<const BYTES: usize>(name: &str, category: Category) -> [u8; BYTES] {
    let (name, category) = (name.as_bytes(), category.name().as_bytes());
    let mut all = [0; BYTES];
    let mut to = 0;
    let mut at = 0;
    while at < name.len() {
        all[to] = name[at];
        at += 1;
        to += 1;
    }
    at = 0;
    while at < BEFORE.len() {
        all[to] = BEFORE[at];
        at += 1;
        to += 1;
    }
    at = 0;
    while at < category.len() {
        let (bytes, count) = escaped(category[at]);
        let mut of = 0;
        while of < count {
            all[to] = bytes[of];
            of += 1;
            to += 1;
        }
        at += 1;
    }
    at = 0;
    while at < AFTER.len() {
        all[to] = AFTER[at];
        at += 1;
        to += 1;
    }
    all
}

/// Returns a byte escaped for a JSON string, and the length of the escaped form.
const fn escaped(byte: u8) -> ([u8; 6], usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' | b'\\' => ([b'\\', byte, 0, 0, 0, 0], 2),
        0..=31 => {
            let (high, low) = (DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]);
            ([b'\\', b'u', b'0', b'0', high, low], 6)
        }
        _ => ([byte, 0, 0, 0, 0, 0], 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_follows_its_name_as_json() {
        const HOSTILE: Category = Category::Custom("a\"b\\\n");
        const BYTES: usize = joined_bytes("load", HOSTILE);
        let text: [u8; BYTES] = joined("load", HOSTILE);
        let expected: &[u8] = b"load\x1f{\"category\":\"a\\\"b\\\\\\u000a\"}";
        assert_eq!(text, expected);
    }
}

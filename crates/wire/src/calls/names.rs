//! The names of the intercepted functions, stored as offsets into one text, without pointers.

use super::{ALL_NAMES, NAME_STARTS};

// Offsets of names have 16 bits.
const _: () = assert!(ALL_NAMES.len() < u16::MAX as usize);

/// The name of an intercepted function, as an offset into the text of all names. A table of
/// pointers would need relocations, so every process that loads the library would copy its pages.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    at: u16,
    len: u8,
}

impl Name {
    pub(super) const fn of(number: usize) -> Name {
        let (at, next) = (NAME_STARTS[number], NAME_STARTS[number + 1]);
        Name { at, len: (next - at - 1) as u8 }
    }

    /// Returns the name as text.
    pub fn text(self) -> &'static str {
        ALL_NAMES.get(self.at.into()..usize::from(self.at) + usize::from(self.len)).unwrap_or("")
    }

    /// Returns the name followed by a NUL.
    pub fn with_end(self) -> &'static [u8] {
        let end = usize::from(self.at) + usize::from(self.len);
        ALL_NAMES.as_bytes().get(self.at.into()..=end).unwrap_or(b"\0")
    }
}

/// Whether the stream 0 means the calling thread's default stream for a function. Programs that are
/// compiled for per-thread default streams call the functions with these suffixes.
pub(super) const fn is_of_threads(name: &str) -> bool {
    let (name, len) = (name.as_bytes(), name.len());
    len > 5
        && name[len - 5] == b'_'
        && name[len - 4] == b'p'
        && name[len - 3] == b't'
        && (name[len - 2] == b's' && name[len - 1] == b'z'
            || name[len - 2] == b'd' && name[len - 1] == b's')
}

/// Returns the offset of each name, followed by the end of the text.
pub(super) const fn starts<const N: usize>(names: &str) -> [u16; N] {
    let (mut found, mut number, mut at) = ([0; N], 1, 0);
    while at < names.len() {
        if names.as_bytes()[at] == 0 {
            found[number] = at as u16 + 1;
            number += 1;
        }
        at += 1;
    }
    found
}

//! Assembles paths without an allocator.

use core::ffi::CStr;

/// Longest path that is tried, in bytes.
const PATH_MOST: usize = 1024;

/// A path that is assembled from parts.
pub struct Path {
    bytes: [u8; PATH_MOST],
    len: usize,
}

impl Default for Path {
    fn default() -> Path {
        Path { bytes: [0; PATH_MOST], len: 0 }
    }
}

impl Path {
    /// Joins these parts; `None` if the path is too long.
    pub fn of(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path::default();
        for byte in parts.iter().copied().flatten() {
            if path.len + 1 >= PATH_MOST {
                return None;
            }
            *path.bytes.get_mut(path.len)? = *byte;
            path.len += 1;
        }
        Some(path)
    }

    /// The path as a C string.
    pub fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_too_long_are_refused() {
        assert_eq!(Path::of(&[b"/a", b"/b"]).unwrap().as_c(), c"/a/b");
        assert!(Path::of(&[&[b'x'; PATH_MOST]]).is_none());
    }
}

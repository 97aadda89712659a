//! The environment of this process.

use core::ffi::c_char;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// A variable of this process's environment.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: read at attach time; `environ` is NULL or a NULL-terminated array of
    // NUL-terminated strings. A program that changes its environment in another
    // thread at this very moment races with every `getenv` as well.
    unsafe {
        let mut at = environ;
        if at.is_null() {
            return None;
        }
        while !(*at).is_null() {
            let text = core::ffi::CStr::from_ptr(*at).to_bytes();
            if text.len() > name.len()
                && text[name.len()] == b'='
                && text.starts_with(name.as_bytes())
            {
                return text.get(name.len() + 1..);
            }
            at = at.add(1);
        }
    }
    None
}

/// The array itself, for a program that is executed with it.
pub fn array() -> *const *const c_char {
    // SAFETY: reads one pointer.
    unsafe { environ }
}

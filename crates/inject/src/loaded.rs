//! Finds the objects that are loaded into this process, and functions in them. Unlike `dlsym`, it
//! ignores symbol versions and doesn't allocate.

use crate::real::{Object, ObjectInfo, base_name, dl_iterate_phdr};
use core::ffi::{CStr, c_int, c_void};

/// A loaded object. CUDA's libraries stay loaded for the process's life. Addresses in other objects
/// must be used at once, since the objects may be unloaded.
pub struct Loaded {
    /// Path of the object; empty for the executable.
    pub path: &'static CStr,
    symbols: Object,
}

impl Loaded {
    /// Last component of the path.
    pub fn base(&self) -> &'static [u8] {
        base_name(self.path.to_bytes())
    }

    /// Address of a function, or `None` if the object doesn't export it.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        self.symbols.find(name.to_bytes_with_nul())
    }

    /// Address of a variable, or `None` if the object doesn't export it.
    pub fn variable(&self, name: &CStr) -> Option<usize> {
        self.symbols.find_variable(name.to_bytes_with_nul())
    }
}

/// Calls `wanted` with each object in load order. Returns its first result that isn't `None`.
pub fn find<T>(mut wanted: impl FnMut(&Loaded) -> Option<T>) -> Option<T> {
    let mut found = None;
    let mut look = |loaded: &Loaded| {
        found = wanted(loaded);
        found.is_some()
    };
    let mut look: &mut dyn FnMut(&Loaded) -> bool = &mut look;
    // SAFETY: `visit` runs only during this call, and uses the data as `look`, which it is.
    unsafe { dl_iterate_phdr(visit, (&raw mut look).cast()) };
    found
}

unsafe extern "C" fn visit(info: *mut ObjectInfo, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the pointer that `find` passed; the loader's `info` is valid during the
    // callback.
    let (look, info) = unsafe { (&mut *data.cast::<&mut dyn FnMut(&Loaded) -> bool>(), &*info) };
    let Some(symbols) = info.symbols() else { return 0 };
    let path = match info.path() {
        [] => c"",
        // SAFETY: the loader's names are NUL-terminated strings.
        path => unsafe { CStr::from_ptr(path.as_ptr().cast()) },
    };
    c_int::from(look(&Loaded { path, symbols }))
}

/// The first object whose base name begins with this prefix.
pub fn named(prefix: &[u8]) -> Option<Loaded> {
    find(|loaded| {
        let Loaded { path, symbols } = loaded;
        loaded.base().starts_with(prefix).then(|| Loaded { path, symbols: symbols.clone() })
    })
}

/// Whether an address is in a loaded object.
pub fn is_loaded(address: usize) -> bool {
    unsafe extern "C" fn holds(info: *mut ObjectInfo, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` points at the address in question; the loader's `info` is valid during the
        // callback.
        unsafe { c_int::from((*info).holds(*data.cast::<usize>())) }
    }
    let mut address = address;
    // SAFETY: `holds` runs only during this call, and uses the data as `address`, which it is.
    unsafe { dl_iterate_phdr(holds, (&raw mut address).cast()) != 0 }
}

/// Number of objects that the loader has loaded since the process began, unloaded ones included.
pub fn count() -> usize {
    unsafe extern "C" fn read(info: *mut ObjectInfo, size: usize, data: *mut c_void) -> c_int {
        /// `dlpi_adds` of a `dl_phdr_info`.
        const ADDS: usize = 32;
        if size >= ADDS + 8 {
            // SAFETY: `size` says that the loader's structure has this field; `data` points at
            // `count`.
            unsafe { *data.cast::<usize>() = *info.byte_add(ADDS).cast::<u64>() as usize };
        }
        1
    }
    let mut count = 0usize;
    // SAFETY: `read` runs only during this call, and uses the data as `count`, which it is.
    unsafe { dl_iterate_phdr(read, (&raw mut count).cast()) };
    count
}

/// Address of a function of the C library itself, even if a library that was loaded earlier defines
/// the same name.
pub fn libc_function(name: &CStr) -> Option<usize> {
    const HOMES: [&[u8]; 7] =
        [b"libc.so", b"libc-2.", b"libdl.so", b"libdl-2.", b"libpthread", b"ld-musl", b"ld-linux"];
    find(|loaded| {
        let own = HOMES.iter().any(|home| loaded.base().starts_with(home));
        if own { loaded.function(name) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_their_functions_are_found() {
        let libc = named(b"libc.so.6").unwrap();
        assert!(libc.path.to_bytes().ends_with(b"/libc.so.6"));
        unsafe extern "C" {
            fn malloc(bytes: usize) -> *mut c_void;
        }
        assert_eq!(libc.function(c"malloc"), Some(malloc as *const () as usize));
        assert_eq!(libc.function(c"no_such_function"), None);
        assert!(libc_function(c"dlopen").is_some());
        assert!(libc_function(c"pthread_create").is_some());
        assert!(named(b"libnever.so").is_none());
        assert!(is_loaded(malloc as *const () as usize) && !is_loaded(4096));
    }
}

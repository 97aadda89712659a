//! Handles the environment of a program that is about to be executed.
//!
//! The new program gets the environment that the caller passed, with one exception. If the library
//! must not be loaded (another ELF class, a sanitizer build, a seccomp filter), tprof's entry is
//! removed from LD_PRELOAD. So the new program finds what it would find without tprof.

use core::ffi::{CStr, c_char, c_int};
use core::marker::PhantomData;
use tprof_inject::seccomp::{CallClass, is_forbidden};
use tprof_inject::sys;
use tprof_wire::env;

/// A NULL-terminated array of strings.
pub type Strings = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// An environment that a program passed to exec. It is valid for as long as the call of exec lasts.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    at: Strings,
    texts: PhantomData<&'a CStr>,
}

impl<'a> Environment<'a> {
    /// Wraps an environment. Returns `None` if it can't be read, so that the kernel will refuse it.
    /// Under a seccomp filter the kernel may not be asked, and the environment counts as readable.
    ///
    /// # Safety
    /// As exec demands, `at` is null or an array that ends with a null pointer, its strings end
    /// with a zero, and nothing changes them during `'a`. Contrary to what exec demands, addresses
    /// may be invalid.
    pub unsafe fn given(at: Strings) -> Option<Environment<'a>> {
        // SAFETY: the caller guarantees such an array, and `are_texts` allows for invalid
        // addresses.
        let is_readable = unsafe { are_texts(at) };
        is_readable.then_some(Environment { at, texts: PhantomData })
    }

    /// The array that the program passed to exec.
    pub fn array(self) -> Strings {
        self.at
    }

    /// The strings of the array; none if it is null.
    fn strings(self) -> impl Iterator<Item = &'a CStr> {
        let mut at = self.at;
        core::iter::from_fn(move || {
            // SAFETY: `given` has found that the array and its strings are readable, and the loop
            // stops at the null pointer at the end.
            unsafe {
                if at.is_null() || (*at).is_null() {
                    return None;
                }
                let text = CStr::from_ptr(*at);
                at = at.add(1);
                Some(text)
            }
        })
    }

    /// The value of a variable in this environment.
    pub fn lookup(self, name: &str) -> Option<&'a [u8]> {
        self.strings().map(CStr::to_bytes).find_map(|text| {
            let is_it = text.get(name.len()) == Some(&b'=') && text.starts_with(name.as_bytes());
            text.get(name.len() + 1..).filter(|_| is_it)
        })
    }

    /// Whether LD_PRELOAD in this environment names this library. If there are several variables
    /// with that name, the loader uses the last one.
    pub fn preloads_us(self) -> bool {
        let lists = self.strings().filter_map(|text| text.to_bytes().strip_prefix(PRELOAD));
        lists.last().is_some_and(|list| entries(list).any(is_ours))
    }
}

/// Whether one entry of LD_PRELOAD is this library.
fn is_ours(entry: &[u8]) -> bool {
    entry.ends_with(env::PRELOAD_LIBRARY.as_bytes())
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b':' || *b == b' ').filter(|e| !e.is_empty())
}

/// Whether an environment can be read. Asks the kernel once for each page that contains parts of
/// the environment.
///
/// # Safety
/// The same premises as [`Environment::given`].
unsafe fn are_texts(environment: Strings) -> bool {
    if environment.is_null() || is_forbidden(CallClass::Threads) {
        return true;
    }
    let mut at = environment;
    let (mut array_page, mut text_page) = (usize::MAX, usize::MAX);
    loop {
        if at as usize & !4095 != array_page {
            array_page = at as usize & !4095;
            if !sys::is_readable(at as usize & !7) {
                return false;
            }
        }
        // SAFETY: the kernel has just read from this page, and the caller guarantees an aligned
        // array.
        let text = unsafe { *at };
        if text.is_null() {
            return true;
        }
        if text as usize & !4095 != text_page {
            text_page = text as usize & !4095;
            if !sys::is_readable(text as usize & !7) {
                return false;
            }
        }
        at = at.wrapping_add(1);
    }
}

/// Calls `run` with the environment without tprof's entry in LD_PRELOAD. The process may be a vfork
/// child, which shares its parent's memory and must leave nothing behind there. So the new
/// environment is on the stack, unless it is too large. In that case, a vfork child whose exec
/// succeeds leaves a mapping of some pages behind.
pub fn without_us(environment: Environment, run: &mut dyn FnMut(Strings) -> c_int) -> c_int {
    let count = environment.strings().count() + 1;
    let lists = environment.strings().filter(|text| text.to_bytes().starts_with(PRELOAD));
    let bytes = lists.map(|text| text.to_bytes_with_nul().len()).sum::<usize>();
    if count <= MOST && bytes <= MOST_TEXT {
        return on_the_stack(environment, run);
    }
    let array_bytes = count * size_of::<*const c_char>();
    let whole = array_bytes + bytes;
    let room = if is_forbidden(CallClass::Threads) { None } else { sys::map_anonymous(whole) };
    let Some(room) = room else { return run(environment.array()) };
    // SAFETY: the memory was just mapped and is used only here: first for the array, then for the
    // texts. It is zeroed, and null pointers are valid values.
    let (kept, text) = unsafe {
        (
            core::slice::from_raw_parts_mut(room.cast::<*const c_char>(), count),
            core::slice::from_raw_parts_mut(room.add(array_bytes), bytes),
        )
    };
    let result = run(strip(environment, kept, text));
    // SAFETY: either the exec failed, or another process did it, so nothing uses the memory any
    // more.
    unsafe { sys::unmap(room, whole) };
    result
}

const MOST: usize = 768;
const MOST_TEXT: usize = 1024;

#[inline(never)]
fn on_the_stack(environment: Environment, run: &mut dyn FnMut(Strings) -> c_int) -> c_int {
    let mut kept = [core::ptr::null(); MOST];
    let mut text = [0u8; MOST_TEXT];
    run(strip(environment, &mut kept, &mut text))
}

/// Writes the environment's array into `kept`, which is zeroed and long enough. Each list of
/// libraries that contains this library is written without it into `text`, which is zeroed and as
/// long as all lists.
fn strip(environment: Environment, kept: &mut [*const c_char], text: &mut [u8]) -> Strings {
    let mut places = kept.iter_mut();
    let mut used = 0;
    for entry in environment.strings() {
        let list = entry.to_bytes().strip_prefix(PRELOAD).unwrap_or_default();
        let mut given = entry.as_ptr();
        if entries(list).any(is_ours) {
            if entries(list).all(is_ours) {
                continue; // without tprof, this variable would not exist
            }
            let start = used;
            let mut push = |bytes: &[u8]| {
                for byte in bytes {
                    if let Some(place) = text.get_mut(used) {
                        *place = *byte;
                    }
                    used += 1;
                }
            };
            push(PRELOAD);
            for (index, other) in entries(list).filter(|other| !is_ours(other)).enumerate() {
                push(if index > 0 { b":" } else { b"" });
                push(other);
            }
            push(b"\0");
            given = text.get(start..).map_or(given, |text| text.as_ptr().cast());
        }
        if let Some(place) = places.next() {
            *place = given;
        }
    }
    kept.as_ptr()
}

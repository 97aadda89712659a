//! The arguments and the environment of this process.

use core::ffi::{CStr, c_char, c_ulong};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};
use tprof_wire::handshake::ExecArguments;

unsafe extern "C" {
    static environ: *const *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// The value of a variable in this process's environment.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: `environ` is NULL or a NULL-terminated array of NUL-terminated strings. It is read
    // while attaching; a program that changes its environment in another thread at this moment
    // would also race with every `getenv`.
    unsafe {
        let mut at = environ;
        if at.is_null() {
            return None;
        }
        while !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
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

/// The environment's array, for a program that is executed with it.
pub fn array() -> *const *const c_char {
    // SAFETY: `environ` is libc's variable, and only the pointer is read.
    unsafe { environ }
}

static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Called by the library's constructor with the arguments that glibc gives it.
///
/// # Safety
/// If `variables` is the environment and directly follows `arguments`, then `arguments` holds
/// `count` strings and a null pointer, all valid for the process's life.
pub unsafe fn began_with(
    count: i32,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) {
    let Ok(count) = usize::try_from(count) else { return };
    // A loader that passes no arguments to constructors leaves arbitrary values here.
    if count > 0 && variables == array() && arguments.wrapping_add(count + 1) == variables {
        COUNT.store(count, Relaxed);
        ARGUMENTS.store(arguments.cast_mut(), Release);
    }
}

/// The arguments and environment that this image began with, if they still lie as the kernel placed
/// them: one string behind the other, and the name of the executed file last. `None` also if they
/// are longer than the hello message allows.
pub fn beginning() -> Option<ExecArguments<'static>> {
    const AT_EXECFN: c_ulong = 31;
    let arguments = ARGUMENTS.load(Acquire).cast_const();
    if arguments.is_null() || array() != arguments.wrapping_add(COUNT.load(Relaxed) + 1) {
        return None;
    }
    // SAFETY: `began_with` stored an array of valid strings. Each string is read only if it begins
    // where the one before ended, so that all lie in the memory that the kernel filled.
    unsafe {
        let first = *arguments;
        let end_of_arguments = end_of_strings(arguments, first)?;
        let end = end_of_strings(array(), end_of_arguments)?;
        if end as usize != getauxval(AT_EXECFN) as usize {
            return None;
        }
        let (len, whole) = (end_of_arguments.offset_from(first), end.offset_from(first));
        let whole = core::slice::from_raw_parts(first.cast::<u8>(), usize::try_from(whole).ok()?);
        if whole.len() > ExecArguments::MAX_BYTES {
            return None;
        }
        let (arguments, environment) = whole.split_at_checked(usize::try_from(len).ok()?)?;
        Some(ExecArguments { arguments, environment })
    }
}

/// The address behind the strings of an array, if the first begins at `at` and each other directly
/// behind the one before; otherwise `None`.
///
/// # Safety
/// The array ends with a null pointer, and each string with a NUL.
unsafe fn end_of_strings(
    mut array: *const *const c_char,
    mut at: *const c_char,
) -> Option<*const c_char> {
    // SAFETY: the caller guarantees that the array and its strings are terminated.
    unsafe {
        while !(*array).is_null() {
            if *array != at {
                return None;
            }
            at = at.add(CStr::from_ptr(at).to_bytes_with_nul().len());
            array = array.add(1);
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments that the test harness got, as glibc passes them to constructors.
    fn given() -> (i32, *const *const c_char) {
        let count = std::env::args_os().len();
        // SAFETY: nothing changed the environment, so its array is the kernel's, which lies behind
        // the arguments and their null pointer.
        (count as i32, unsafe { array().sub(count + 1) })
    }

    #[test]
    fn the_beginning_is_what_the_kernel_has() {
        let (count, arguments) = given();
        // SAFETY: `given` returned the kernel's arrays, which last as long as the process.
        unsafe { began_with(count, arguments, array()) };
        let began = beginning().unwrap();
        assert_eq!(began.arguments, std::fs::read("/proc/self/cmdline").unwrap());
        assert_eq!(began.environment, std::fs::read("/proc/self/environ").unwrap());
    }

    #[test]
    fn strings_that_do_not_follow_each_other_are_not_walked() {
        let memory = b"a\0bc\0\0";
        let at = |place: usize| memory[place..].as_ptr().cast::<c_char>();
        let end = |array: &[*const c_char]| {
            // SAFETY: every array here ends with a null pointer, and every string with a NUL.
            unsafe { end_of_strings(array.as_ptr(), at(0)) }
        };
        assert_eq!(end(&[at(0), at(2), core::ptr::null()]), Some(at(5)));
        assert_eq!(end(&[core::ptr::null()]), Some(at(0)));
        assert_eq!(end(&[at(2), at(0), core::ptr::null()]), None);
        assert_eq!(end(&[at(0), at(3), core::ptr::null()]), None);
    }
}

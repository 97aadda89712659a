//! Reads the arguments and the environment of this process, without libc's `getenv`.

use core::ffi::{CStr, c_char, c_ulong};
use tprof_wire::handshake::ExecArguments;
use tprof_wire::sync::{AtomicPtr, AtomicUsize, Ordering::*};

unsafe extern "C" {
    static environ: *const *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// The value of a variable in this process's environment.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: `environ` is NULL or a NULL-terminated array of NUL-terminated strings. A program
    // that changes its environment in another thread during this read would also race with every
    // `getenv`.
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

/// The array of the environment, to pass to a program that is executed with it.
pub fn array() -> *const *const c_char {
    // SAFETY: `environ` is libc's variable, and only the pointer is read.
    unsafe { environ }
}

static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Stores the arguments that glibc passes to the library's constructor.
///
/// # Safety
/// If `variables` is the environment and directly follows `arguments`, then `arguments` contains
/// `count` strings and a null pointer, all valid for the process's life.
pub unsafe fn began_with(
    count: i32,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) {
    let Ok(count) = usize::try_from(count) else { return };
    // Other loaders pass no arguments to constructors, so these values may be arbitrary.
    if count > 0 && variables == array() && arguments.wrapping_add(count + 1) == variables {
        COUNT.store(count, Relaxed);
        ARGUMENTS.store(arguments.cast_mut(), Release);
    }
}

/// The arguments and environment that this image began with, if they are still in memory as the
/// kernel placed them: one string after the other, and the name of the executed file last. Returns
/// `None` if they are not, or if they are longer than the hello message allows.
pub fn beginning() -> Option<ExecArguments<'static>> {
    const AT_EXECFN: c_ulong = 31;
    let arguments = ARGUMENTS.load(Acquire).cast_const();
    if arguments.is_null() || array() != arguments.wrapping_add(COUNT.load(Relaxed) + 1) {
        return None;
    }
    // SAFETY: `began_with` stored an array of valid strings. Each string is read only if it begins
    // where the one before ended, so all of them are in the memory that the kernel filled.
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

/// The address after the last string of an array, if the first string begins at `at` and each other
/// one directly after the one before; otherwise `None`.
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

    /// Where glibc's constructor call told this program that its arguments and environment are.
    static GIVEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    #[cfg_attr(miri, expect(dead_code))]
    extern "C" fn constructed(count: i32, arguments: usize, variables: usize) {
        let given = [count as usize, arguments, variables];
        GIVEN.iter().zip(given).for_each(|(to, value)| to.store(value, SeqCst));
    }

    // Miri would call it without arguments.
    #[cfg(not(miri))]
    #[used]
    #[unsafe(link_section = ".init_array")]
    static CONSTRUCTOR: extern "C" fn(i32, usize, usize) = constructed;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no constructors with arguments, and no kernel's strings")]
    fn the_beginning_equals_what_the_kernel_reports_in_proc() {
        let _alone = crate::testing::alone();
        let [count, arguments, variables] = GIVEN.each_ref().map(|word| word.load(SeqCst));
        let (arguments, variables) = (arguments as *const _, variables as *const _);
        // SAFETY: glibc passed the kernel's arrays, which last as long as the process.
        unsafe { began_with(count as i32, arguments, variables) };
        let began = beginning().unwrap();
        assert_eq!(began.arguments, std::fs::read("/proc/self/cmdline").unwrap());
        assert_eq!(began.environment, std::fs::read("/proc/self/environ").unwrap());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no constructors with arguments")]
    fn arguments_that_the_environment_does_not_follow_are_not_the_kernels() {
        let _alone = crate::testing::alone();
        let before = (COUNT.load(SeqCst), ARGUMENTS.load(SeqCst));
        let [count, arguments, variables] = GIVEN.each_ref().map(|word| word.load(SeqCst));
        let (count, arguments) = (count as i32, arguments as *const *const c_char);
        // SAFETY: what doesn't match the environment is not stored.
        unsafe {
            began_with(count + 1, arguments, variables as *const _);
            began_with(0, arguments, variables as *const _);
            began_with(-1, arguments, variables as *const _);
            began_with(count, arguments, core::ptr::null());
        }
        assert_eq!((COUNT.load(SeqCst), ARGUMENTS.load(SeqCst)), before);
    }

    #[test]
    fn strings_that_are_not_contiguous_have_no_end() {
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

//! Offers the functions of the table `tprof_abi` as builtins of Python. With these, Python's module
//! `tprof` marks a step in tens of nanoseconds without a compiled file of its own.
//!
//! The module passes the addresses of Python's functions once, so nothing here looks up symbols.
//! The builtins raise exceptions only for arguments that the module also refuses without tprof: a
//! name that isn't a text, and wrong arguments of `step`. Other values that Python can't convert
//! are left out of the record.

use super::cupti;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_inject::spans::{self, NO_NUMBER, SpanName};

/// `PyObject`, whose fields this code doesn't read.
#[repr(C)]
pub struct Object {
    opaque: [u8; 0],
}

type Args = *const *mut Object;
type Refs = unsafe extern "C" fn(*mut Object);

/// The functions and objects of Python that the builtins use: `struct tprof_python`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Python {
    /// Bytes of the structure.
    bytes: usize,
    none: *mut Object,
    type_error: *mut Object,
    inc_ref: Refs,
    dec_ref: Refs,
    /// Python's own `PyUnicode_AsUTF8AndSize`.
    utf8: unsafe extern "C" fn(*mut Object, *mut isize) -> *const c_char,
    /// Python's own `PyUnicode_AsEncodedString`.
    encoded: unsafe extern "C" fn(*mut Object, *const c_char, *const c_char) -> *mut Object,
    /// Python's own `PyBytes_AsString`.
    text: unsafe extern "C" fn(*mut Object) -> *const c_char,
    /// Python's own `PyBytes_Size`.
    size: unsafe extern "C" fn(*mut Object) -> isize,
    /// Python's own `PyLong_AsUnsignedLongLong`.
    number: unsafe extern "C" fn(*mut Object) -> u64,
    /// Python's own `PyLong_FromUnsignedLongLong`.
    of_number: unsafe extern "C" fn(u64) -> *mut Object,
    /// Python's own `PyBool_FromLong`.
    of_bool: unsafe extern "C" fn(isize) -> *mut Object,
    /// Python's own `PyFloat_AsDouble`.
    real: unsafe extern "C" fn(*mut Object) -> f64,
    /// Python's own `PyErr_Occurred`.
    raised: unsafe extern "C" fn() -> *mut Object,
    /// Python's own `PyErr_ExceptionMatches`.
    matches: unsafe extern "C" fn(*mut Object) -> c_int,
    /// Python's own `PyErr_Clear`.
    clear: unsafe extern "C" fn(),
    /// Python's own `PyErr_SetString`.
    raise: unsafe extern "C" fn(*mut Object, *const c_char),
    /// Python's own `PyTuple_Size`.
    tuple_size: unsafe extern "C" fn(*mut Object) -> isize,
    /// Python's own `PyTuple_GetItem`.
    tuple_item: unsafe extern "C" fn(*mut Object, isize) -> *mut Object,
}

/// Python's `PyMethodDef`, the definition of a builtin.
#[repr(C)]
pub struct Method {
    name: *const c_char,
    function: Function,
    flags: c_int,
    doc: *const c_char,
}

// SAFETY: a method consists of constants.
unsafe impl Sync for Method {}

/// The function of a method. The method's flags say which field is valid: `one` for `METH_NOARGS`
/// and `METH_O`, `fast` for `METH_FASTCALL`, `keywords` for that with `METH_KEYWORDS`. `none` is 0,
/// for the end of the list.
#[repr(C)]
union Function {
    one: unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object,
    fast: unsafe extern "C" fn(*mut Object, Args, isize) -> *mut Object,
    keywords: unsafe extern "C" fn(*mut Object, Args, isize, *mut Object) -> *mut Object,
    none: usize,
}

const NO_ARGS: c_int = 0x4;
const ONE: c_int = 0x8;
const FAST: c_int = 0x80;
const KEYWORDS: c_int = 0x82;

const fn method(
    name: &'static CStr,
    function: Function,
    flags: c_int,
    doc: &'static CStr,
) -> Method {
    Method { name: name.as_ptr(), function, flags, doc: doc.as_ptr() }
}

/// The methods are never freed, as Python requires of the definitions of builtins.
static METHODS: [Method; 11] = [
    method(
        c"step",
        Function { keywords: step },
        KEYWORDS,
        c"step(n=None)\n--\n\nBegins a training step, which lasts until the next one begins. n is its number, from 0 to\n2**64 - 2. Without n, or if n isn't such an int, tprof counts the steps from 0.",
    ),
    method(c"mark", Function { one: mark }, ONE, c"mark(name, /)\n--\n\nNames this instant. The first 3,800 bytes of the name in UTF-8 are kept. Raises TypeError if\nthe name isn't a str."),
    method(
        c"counter",
        Function { fast: counter },
        FAST,
        c"counter(name, value, /)\n--\n\nRecords a value at this instant, for curves over time. A value that float() refuses is\nrecorded as NaN. Raises TypeError if the name isn't a str.",
    ),
    method(
        c"push",
        Function { one: push },
        ONE,
        c"push(name, /)\n--\n\nBegins a span of this thread.",
    ),
    method(
        c"pop",
        Function { one: pop },
        NO_ARGS,
        c"pop()\n--\n\nEnds this thread's innermost span.",
    ),
    method(
        c"start",
        Function { one: start },
        ONE,
        c"start(name, /)\n--\n\nBegins a span that any thread may end, and returns its number.",
    ),
    method(
        c"end",
        Function { one: end },
        ONE,
        c"end(number, /)\n--\n\nEnds the span with this number.",
    ),
    method(
        c"is_recording",
        Function { one: is_recording },
        NO_ARGS,
        c"is_recording()\n--\n\nReturns whether this process is recorded now.",
    ),
    method(
        c"record",
        Function { one: record },
        ONE,
        c"record(on, /)\n--\n\nSwitches recording of this process.",
    ),
    method(
        c"flush",
        Function { one: flush },
        NO_ARGS,
        c"flush()\n--\n\nMakes CUPTI hand over its records of finished device work.",
    ),
    Method {
        name: core::ptr::null(),
        function: Function { none: 0 },
        flags: 0,
        doc: core::ptr::null(),
    },
];

/// A copy of the functions of the first Python that called [`python`], with the state of the copy.
struct Copied {
    python: UnsafeCell<MaybeUninit<Python>>,
    state: AtomicU32,
}

// SAFETY: only the thread that changed the state from ABSENT to WRITING writes `python`, once, and
// threads read it only when the state is READY.
unsafe impl Sync for Copied {}

const ABSENT: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;
/// Maximum number of times that a thread checks whether the copy is READY. This takes far longer
/// than the copy.
const PATIENCE: u32 = 1 << 20;

static PYTHON: Copied =
    Copied { python: UnsafeCell::new(MaybeUninit::uninit()), state: AtomicU32::new(ABSENT) };

/// Returns the list of methods for the Python that has these functions. The last method has no
/// name. Returns null if the methods already belong to another Python, or if the structure is too
/// short.
///
/// # Safety
/// `python` is null, or points at a structure that has the number of bytes in its own size field,
/// with functions that do what Python documents.
pub unsafe extern "C" fn python(python: *const Python) -> *const Method {
    // SAFETY: the caller guarantees null or a structure, and the size field is checked before the
    // other fields are read.
    let given = unsafe {
        if python.is_null() || (&raw const (*python).bytes).read() < size_of::<Python>() {
            return core::ptr::null();
        }
        python.read()
    };
    if PYTHON.state.compare_exchange(ABSENT, WRITING, AcqRel, Acquire).is_ok() {
        // SAFETY: this thread has changed the state to WRITING, which happens only once.
        unsafe { (*PYTHON.python.get()).write(given) };
        PYTHON.state.store(READY, Release);
    }
    for _ in 0..PATIENCE {
        if PYTHON.state.load(Acquire) == READY {
            break;
        }
        core::hint::spin_loop();
    }
    if PYTHON.state.load(Acquire) != READY {
        return core::ptr::null();
    }
    // SAFETY: the state is READY. (All interpreters of one Python share their `None`.)
    match unsafe { api() }.none == given.none {
        true => METHODS.as_ptr(),
        false => core::ptr::null(),
    }
}

/// # Safety
/// The copy is READY. In a builtin it always is, since [`python`] has returned the methods.
#[inline(always)]
unsafe fn api() -> &'static Python {
    // SAFETY: the caller guarantees that the copy was written, and it is never written again.
    unsafe { (*PYTHON.python.get()).assume_init_ref() }
}

#[inline(always)]
fn none(api: &Python) -> *mut Object {
    // SAFETY: every builtin runs with the GIL held, and `none` is Python's `None`.
    unsafe { (api.inc_ref)(api.none) };
    api.none
}

/// Raises Python's `TypeError` with this text.
#[cold]
fn refuse(api: &Python, why: &'static CStr) -> *mut Object {
    // SAFETY: every builtin runs with the GIL held, and the text is static.
    unsafe {
        (api.clear)();
        (api.raise)(api.type_error, why.as_ptr());
    }
    null_mut()
}

/// Calls `run` with the text of a Python string. Raises a `TypeError` if the object isn't a string.
#[inline(always)]
fn with_name(
    name: *mut Object,
    run: impl FnOnce(&'static Python, &SpanName) -> *mut Object,
) -> *mut Object {
    // SAFETY: this is called only by builtins, so the copy is READY.
    let api = unsafe { api() };
    let mut bytes = 0isize;
    // SAFETY: the argument outlives the call, and the string owns its text.
    let text = unsafe { (api.utf8)(name, &raw mut bytes) };
    if text.is_null() {
        return with_escaped(api, name, run);
    }
    run(api, &SpanName::of(text.cast(), bytes as usize))
}

/// Like [`with_name`], for an object that isn't a string, or a string that has surrogates.
#[cold]
#[inline(never)]
fn with_escaped(
    api: &'static Python,
    name: *mut Object,
    run: impl FnOnce(&'static Python, &SpanName) -> *mut Object,
) -> *mut Object {
    // SAFETY: every builtin runs with the GIL held, and the argument outlives the call. This
    // function owns the encoded object until it releases it.
    unsafe {
        (api.clear)();
        let encoded = (api.encoded)(name, c"utf-8".as_ptr(), c"backslashreplace".as_ptr());
        if encoded.is_null() {
            if (api.matches)(api.type_error) != 0 {
                return refuse(api, c"a name must be str");
            }
            (api.clear)();
            return run(api, &SpanName::of(core::ptr::null(), 0));
        }
        let bytes = (api.size)(encoded).max(0) as usize;
        let made = run(api, &SpanName::of((api.text)(encoded).cast(), bytes));
        (api.dec_ref)(encoded);
        made
    }
}

/// # Safety
/// Python calls this as `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C" fn step(
    _: *mut Object,
    args: Args,
    count: isize,
    names: *mut Object,
) -> *mut Object {
    // SAFETY: this is a builtin, so the copy is READY.
    let api = unsafe { api() };
    let mut number = NO_NUMBER;
    if count != 0 || !names.is_null() {
        // SAFETY: Python passes valid arguments of these types to a function with these flags.
        match unsafe { value(api, args, count, names) } {
            Ok(given) => number = given,
            Err(why) => return refuse(api, why),
        }
    }
    spans::step(number);
    none(api)
}

/// The number that is the only argument of `step`, by position or as `n`; [`NO_NUMBER`] if it is
/// missing. An error is the reason why the arguments are refused.
///
/// # Safety
/// The arguments are those that Python passes to a function with these flags.
unsafe fn value(
    api: &Python,
    args: Args,
    count: isize,
    names: *mut Object,
) -> Result<u64, &'static CStr> {
    // SAFETY: Python passes null or a tuple of strings.
    let named = if names.is_null() { 0 } else { unsafe { (api.tuple_size)(names) } };
    if count + named > 1 {
        return Err(c"step() takes at most 1 argument");
    }
    // SAFETY: the tuple has one string, as counted above.
    if named == 1 && !unsafe { is_n(api, (api.tuple_item)(names, 0)) } {
        return Err(c"step() got an unexpected keyword argument, it takes n only");
    }
    if count + named == 0 {
        return Ok(NO_NUMBER);
    }
    // SAFETY: there is one argument, as counted above.
    let given = unsafe { *args };
    if given == api.none {
        return Ok(NO_NUMBER);
    }
    // SAFETY: Python's function accepts any object. (If the object isn't a valid number, the step
    // has no number.)
    unsafe {
        let number = (api.number)(given);
        if number == NO_NUMBER && !(api.raised)().is_null() {
            (api.clear)();
        }
        Ok(number)
    }
}

/// Whether a string is `"n"`.
///
/// # Safety
/// `name` is a string, and the GIL is held.
unsafe fn is_n(api: &Python, name: *mut Object) -> bool {
    let mut bytes = 0isize;
    // SAFETY: the caller guarantees a string, whose text ends with a zero.
    unsafe {
        let text = (api.utf8)(name, &raw mut bytes);
        !text.is_null() && bytes == 1 && *text == b'n' as c_char
    }
}

/// # Safety
/// Python calls this as `METH_O`, like the others with one argument.
unsafe extern "C" fn mark(_: *mut Object, name: *mut Object) -> *mut Object {
    with_name(name, |api, name| {
        // SAFETY: `with_name` passes a name that outlives the call, as does its text.
        unsafe { spans::mark(name) };
        none(api)
    })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn push(_: *mut Object, name: *mut Object) -> *mut Object {
    with_name(name, |api, name| {
        // SAFETY: `with_name` passes a name that outlives the call, as does its text.
        unsafe { spans::push(name) };
        none(api)
    })
}

/// # Safety
/// Python calls this as `METH_NOARGS`.
unsafe extern "C" fn pop(_: *mut Object, _: *mut Object) -> *mut Object {
    spans::pop();
    // SAFETY: this is a builtin, so the copy is READY.
    none(unsafe { api() })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn start(_: *mut Object, name: *mut Object) -> *mut Object {
    // SAFETY: `with_name` passes a name that outlives the call together with its text. Python's
    // function accepts any number.
    with_name(name, |api, name| unsafe { (api.of_number)(spans::start(name)) })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn end(_: *mut Object, number: *mut Object) -> *mut Object {
    // SAFETY: this is a builtin, so the copy is READY, and Python's function accepts any object.
    // (An object that isn't the number of a span ends no span.)
    unsafe {
        let api = api();
        let number = (api.number)(number);
        match number == NO_NUMBER && !(api.raised)().is_null() {
            true => (api.clear)(),
            false => spans::end(number),
        }
        none(api)
    }
}

/// # Safety
/// Python calls this as `METH_FASTCALL`.
unsafe extern "C" fn counter(_: *mut Object, args: Args, count: isize) -> *mut Object {
    // SAFETY: this is a builtin, so the copy is READY.
    let api = unsafe { api() };
    if count != 2 {
        return refuse(api, c"counter() takes a name and a value");
    }
    // SAFETY: there are two arguments, as counted above. (A value that can't be converted becomes
    // NaN.)
    let value = unsafe {
        let value = (api.real)(*args.add(1));
        match value == -1.0 && !(api.raised)().is_null() {
            true => {
                (api.clear)();
                f64::NAN
            }
            false => value,
        }
    };
    // SAFETY: there are two arguments, as counted above.
    with_name(unsafe { *args }, |api, name| {
        // SAFETY: `with_name` passes a name that outlives the call, as does its text.
        unsafe { spans::counter(name, value) };
        none(api)
    })
}

/// # Safety
/// The same premises as [`pop`].
unsafe extern "C" fn is_recording(_: *mut Object, _: *mut Object) -> *mut Object {
    // SAFETY: this is a builtin, so the copy is READY.
    unsafe { (api().of_bool)(spans::is_recording().into()) }
}

/// # Safety
/// The same premises as [`pop`].
unsafe extern "C" fn flush(_: *mut Object, _: *mut Object) -> *mut Object {
    cupti::flush();
    // SAFETY: this is a builtin, so the copy is READY.
    none(unsafe { api() })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn record(_: *mut Object, on: *mut Object) -> *mut Object {
    // SAFETY: this is a builtin, so the copy is READY, and Python's function accepts any object.
    // (Only 0 and False switch recording off.)
    unsafe {
        let api = api();
        let number = (api.number)(on);
        if number == NO_NUMBER && !(api.raised)().is_null() {
            (api.clear)();
        }
        (api.of_bool)(spans::record(number != 0).into())
    }
}

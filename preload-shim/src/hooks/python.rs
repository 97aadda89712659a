//! The functions of the table `tprof_abi` as builtins of Python's, so that its module `tprof` marks a
//! step in tens of nanoseconds without a compiled file of its own.
//!
//! Python passes the functions of its interface once, by address; nothing here searches for symbols.
//! An exception is only raised for what the module refuses without tprof too: a name that is no text,
//! wrong arguments of `step`. What else Python cannot convert is recorded without it.

use super::cupti;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_inject::spans::{self, NO_NUMBER, SpanName};

/// `PyObject`, of which nothing is read here.
#[repr(C)]
pub struct Object {
    opaque: [u8; 0],
}

type Args = *const *mut Object;
type Refs = unsafe extern "C" fn(*mut Object);

/// The functions and objects of Python's that these builtins use: `struct tprof_python`.
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

// SAFETY: constants.
unsafe impl Sync for Method {}

/// By the flags of its method: `METH_NOARGS` and `METH_O`, `METH_FASTCALL`, with `METH_KEYWORDS`; none
/// at the end of the list.
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

/// The methods stay for the life of the process, as Python requires of what it makes builtins from.
static METHODS: [Method; 11] = [
    method(
        c"step",
        Function { keywords: step },
        KEYWORDS,
        c"step(n=None)\n--\n\nBegins a training step, which lasts until the next one does. n is its number, 0 to\n2**64 - 2; without one (and for anything else than such an int) steps are counted from 0.",
    ),
    method(c"mark", Function { one: mark }, ONE, c"mark(name, /)\n--\n\nNames this instant. Of the name 3,800 bytes of UTF-8 are kept. Raises TypeError if it is\nnot str."),
    method(
        c"counter",
        Function { fast: counter },
        FAST,
        c"counter(name, value, /)\n--\n\nRecords a value of this instant, for curves over time. A value that float() refuses is\nrecorded as no number (NaN). Raises TypeError if the name is not str.",
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
        c"start(name, /)\n--\n\nBegins a span that any thread may end: its number.",
    ),
    method(
        c"end",
        Function { one: end },
        ONE,
        c"end(number, /)\n--\n\nEnds the span of this number.",
    ),
    method(
        c"is_recording",
        Function { one: is_recording },
        NO_ARGS,
        c"is_recording()\n--\n\nWhether this process records now.",
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
        c"flush()\n--\n\nHas CUPTI hand over what it has recorded of finished device work.",
    ),
    Method {
        name: core::ptr::null(),
        function: Function { none: 0 },
        flags: 0,
        doc: core::ptr::null(),
    },
];

/// A copy of the first Python's functions, and whether it is made.
struct Copied {
    python: UnsafeCell<MaybeUninit<Python>>,
    state: AtomicU32,
}

// SAFETY: written once, between ABSENT and READY, by the thread that set WRITING; read from READY on.
unsafe impl Sync for Copied {}

const ABSENT: u32 = 0;
const WRITING: u32 = 1;
const READY: u32 = 2;
/// Far more than the copy takes: it is not waited for without end.
const PATIENCE: u32 = 1 << 20;

static PYTHON: Copied =
    Copied { python: UnsafeCell::new(MaybeUninit::uninit()), state: AtomicU32::new(ABSENT) };

/// The methods, up to one without a name, for the Python with these functions. Null where they are
/// another Python's already, or the structure is too short.
///
/// # Safety
/// Null, or a structure of that many bytes, of functions that do as Python documents.
pub unsafe extern "C" fn python(python: *const Python) -> *const Method {
    // SAFETY: the caller's premise.
    let given = unsafe {
        if python.is_null() || (&raw const (*python).bytes).read() < size_of::<Python>() {
            return core::ptr::null();
        }
        python.read()
    };
    if PYTHON.state.compare_exchange(ABSENT, WRITING, AcqRel, Acquire).is_ok() {
        // SAFETY: this thread set WRITING, which happens once.
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
    // SAFETY: READY. Interpreters of one Python share their `None`.
    match unsafe { api() }.none == given.none {
        true => METHODS.as_ptr(),
        false => core::ptr::null(),
    }
}

/// # Safety
/// The copy is READY, as in builtins: [`python`] returned the methods.
#[inline(always)]
unsafe fn api() -> &'static Python {
    // SAFETY: the caller's premise: written, and never again.
    unsafe { (*PYTHON.python.get()).assume_init_ref() }
}

#[inline(always)]
fn none(api: &Python) -> *mut Object {
    // SAFETY: a reference to `None`, with the interpreter's lock held, as in every builtin.
    unsafe { (api.inc_ref)(api.none) };
    api.none
}

/// Raises a `TypeError`.
#[cold]
fn refuse(api: &Python, why: &'static CStr) -> *mut Object {
    // SAFETY: as in `none`; the text is static.
    unsafe {
        (api.clear)();
        (api.raise)(api.type_error, why.as_ptr());
    }
    null_mut()
}

/// Runs with the text of a Python string; raises a `TypeError` if it is none.
#[inline(always)]
fn with_name(
    name: *mut Object,
    run: impl FnOnce(&'static Python, &SpanName) -> *mut Object,
) -> *mut Object {
    // SAFETY: in a builtin.
    let api = unsafe { api() };
    let mut bytes = 0isize;
    // SAFETY: an argument lives as long as the call; the string keeps its text.
    let text = unsafe { (api.utf8)(name, &raw mut bytes) };
    if text.is_null() {
        return with_escaped(api, name, run);
    }
    run(api, &SpanName::of(text.cast(), bytes as usize))
}

/// As [`with_name`], for an object that is no text, or a text with surrogates.
#[cold]
#[inline(never)]
fn with_escaped(
    api: &'static Python,
    name: *mut Object,
    run: impl FnOnce(&'static Python, &SpanName) -> *mut Object,
) -> *mut Object {
    // SAFETY: as in `with_name`; the encoded object is this function's own until it is released.
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
/// `METH_FASTCALL | METH_KEYWORDS` of Python's.
unsafe extern "C" fn step(
    _: *mut Object,
    args: Args,
    count: isize,
    names: *mut Object,
) -> *mut Object {
    // SAFETY: in a builtin.
    let api = unsafe { api() };
    let mut number = NO_NUMBER;
    if count != 0 || !names.is_null() {
        // SAFETY: as in `value`.
        match unsafe { value(api, args, count, names) } {
            Ok(given) => number = given,
            Err(why) => return refuse(api, why),
        }
    }
    spans::step(number);
    none(api)
}

/// The number that is `step`'s only argument, by position or as `n`; else why it is refused.
///
/// # Safety
/// Arguments as Python passes them.
unsafe fn value(
    api: &Python,
    args: Args,
    count: isize,
    names: *mut Object,
) -> Result<u64, &'static CStr> {
    // SAFETY: null or a tuple of strings.
    let named = if names.is_null() { 0 } else { unsafe { (api.tuple_size)(names) } };
    if count + named > 1 {
        return Err(c"step() takes at most 1 argument");
    }
    // SAFETY: a tuple of one string, as just counted.
    if named == 1 && !unsafe { is_n(api, (api.tuple_item)(names, 0)) } {
        return Err(c"step() got an unexpected keyword argument, it takes n only");
    }
    if count + named == 0 {
        return Ok(NO_NUMBER);
    }
    // SAFETY: there is one argument.
    let given = unsafe { *args };
    if given == api.none {
        return Ok(NO_NUMBER);
    }
    // SAFETY: any object; what is no number of a step counts as one without.
    unsafe {
        let number = (api.number)(given);
        if number == NO_NUMBER && !(api.raised)().is_null() {
            (api.clear)();
        }
        Ok(number)
    }
}

/// Whether a string is `n`.
///
/// # Safety
/// A string, with the interpreter's lock held.
unsafe fn is_n(api: &Python, name: *mut Object) -> bool {
    let mut bytes = 0isize;
    // SAFETY: the caller's premise; the text ends with a zero.
    unsafe {
        let text = (api.utf8)(name, &raw mut bytes);
        !text.is_null() && bytes == 1 && *text == b'n' as c_char
    }
}

/// # Safety
/// `METH_O` of Python's, as are the others with one argument.
unsafe extern "C" fn mark(_: *mut Object, name: *mut Object) -> *mut Object {
    with_name(name, |api, name| {
        // SAFETY: the name outlives the call, with its text.
        unsafe { spans::mark(name) };
        none(api)
    })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn push(_: *mut Object, name: *mut Object) -> *mut Object {
    with_name(name, |api, name| {
        // SAFETY: the name outlives the call, with its text.
        unsafe { spans::push(name) };
        none(api)
    })
}

/// # Safety
/// `METH_NOARGS` of Python's.
unsafe extern "C" fn pop(_: *mut Object, _: *mut Object) -> *mut Object {
    spans::pop();
    // SAFETY: in a builtin.
    none(unsafe { api() })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn start(_: *mut Object, name: *mut Object) -> *mut Object {
    // SAFETY: the name outlives the call, with its text; any number can be an object.
    with_name(name, |api, name| unsafe { (api.of_number)(spans::start(name)) })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn end(_: *mut Object, number: *mut Object) -> *mut Object {
    // SAFETY: in a builtin; any object; what is no number of a span ends none.
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
/// `METH_FASTCALL` of Python's.
unsafe extern "C" fn counter(_: *mut Object, args: Args, count: isize) -> *mut Object {
    // SAFETY: in a builtin.
    let api = unsafe { api() };
    if count != 2 {
        return refuse(api, c"counter() takes a name and a value");
    }
    // SAFETY: there are two arguments. A value that does not convert is NaN: it has no number.
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
    // SAFETY: the first of two arguments.
    with_name(unsafe { *args }, |api, name| {
        // SAFETY: the name outlives the call, with its text.
        unsafe { spans::counter(name, value) };
        none(api)
    })
}

/// # Safety
/// The same premises as [`pop`].
unsafe extern "C" fn is_recording(_: *mut Object, _: *mut Object) -> *mut Object {
    // SAFETY: in a builtin.
    unsafe { (api().of_bool)(spans::is_recording().into()) }
}

/// # Safety
/// The same premises as [`pop`].
unsafe extern "C" fn flush(_: *mut Object, _: *mut Object) -> *mut Object {
    cupti::flush();
    // SAFETY: in a builtin.
    none(unsafe { api() })
}

/// # Safety
/// The same premises as [`mark`].
unsafe extern "C" fn record(_: *mut Object, on: *mut Object) -> *mut Object {
    // SAFETY: in a builtin; any object; only 0 and False switch off.
    unsafe {
        let api = api();
        let number = (api.number)(on);
        if number == NO_NUMBER && !(api.raised)().is_null() {
            (api.clear)();
        }
        (api.of_bool)(spans::record(number != 0).into())
    }
}

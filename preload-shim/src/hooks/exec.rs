//! Every form of exec and spawn.
//!
//! The environment is passed on as the program gave it, with one exception:
//! where the library must not be loaded (another ELF class, a sanitizer
//! build), tprof's entry is taken out of LD_PRELOAD, so that the new program
//! finds what it would find alone.

use crate::real;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_long};
use tprof_inject::calls_made::{Class, closed};
use tprof_inject::{attach, exec, life, sys, thread};
use tprof_wire::env;
use tprof_wire::record::ExecVerdict;

type Strings = *const *const c_char;
const PATH_MAX: usize = 4096;

/// A variable in an environment that is about to be given on.
fn lookup(environment: Strings, name: &str) -> Option<&'static [u8]> {
    if environment.is_null() {
        return None;
    }
    let mut at = environment;
    // SAFETY: a NULL-terminated array of strings, by exec's own contract.
    unsafe {
        while !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if text.get(name.len()) == Some(&b'=') && text.starts_with(name.as_bytes()) {
                return text.get(name.len() + 1..);
            }
            at = at.add(1);
        }
    }
    None
}

/// Whether one entry of LD_PRELOAD is this library.
fn is_ours(entry: &[u8]) -> bool {
    entry.ends_with(env::PRELOAD_LIBRARY.as_bytes())
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b':' || *b == b' ').filter(|e| !e.is_empty())
}

fn preloads_us(environment: Strings) -> bool {
    lookup(environment, "LD_PRELOAD").is_some_and(|list| entries(list).any(is_ours))
}

/// What will become of `path` under `environment`.
fn verdict(path: *const c_char, environment: Strings) -> ExecVerdict {
    if !preloads_us(environment) || lookup(environment, env::SESSION).is_none() {
        return ExecVerdict::NoEnvironment;
    }
    exec::judge(path.cast())
}

/// Whether a string begins where it can be read. (Under a filter the kernel may
/// not be asked; NULL is told all the same.)
fn is_text(at: *const c_char) -> bool {
    !at.is_null() && (closed(Class::Threads) || sys::is_readable(at as usize & !7))
}

/// Whether an environment can be read: asks once for each page it touches.
fn are_texts(environment: Strings) -> bool {
    if environment.is_null() || closed(Class::Threads) {
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
        // SAFETY: its page was looked at above.
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

/// Announces an exec and performs it through `run`, with the environment that
/// the new program may have; returns only if it failed.
fn announced(
    path: *const c_char,
    environment: Strings,
    spawn: bool,
    run: &mut dyn FnMut(Strings) -> c_int,
) -> c_int {
    if !is_text(path) || !are_texts(environment) {
        return run(environment); // the kernel says EFAULT
    }
    if closed(Class::Threads) || closed(Class::Processes) {
        // The filter lives on in the new program, where attaching could be fatal.
        // SAFETY: looked at above.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes();
        thread::say_lost_if_not_own();
        life::executing(name, ExecVerdict::Filtered, spawn);
        let result = without_us(environment, run);
        if !spawn {
            life::exec_failed(result);
        }
        return result;
    }
    // A forked child on its way to a program that will attach itself need not.
    let fresh = !thread::process_is_attached();
    if fresh && verdict(path, environment) == ExecVerdict::Followed {
        if !attach::is_reachable() {
            thread::say_lost(sys::pid());
        }
        return run(environment);
    }
    let verdict = verdict(path, environment);
    if verdict != ExecVerdict::Followed {
        thread::say_lost_if_not_own();
    }
    // SAFETY: a path given to exec is a string.
    life::executing(unsafe { CStr::from_ptr(path) }.to_bytes(), verdict, spawn);
    let result = if matches!(verdict, ExecVerdict::OtherClass | ExecVerdict::Sanitizer) {
        without_us(environment, run)
    } else {
        run(environment)
    };
    if !spawn {
        life::exec_failed(result);
    }
    result
}

/// Runs with tprof's entry taken out of LD_PRELOAD. On the stack: this may be a
/// vfork child, in whose shared memory nothing may be left behind.
#[inline(never)]
fn without_us(environment: Strings, run: &mut dyn FnMut(Strings) -> c_int) -> c_int {
    const MOST: usize = 768;
    let mut kept: [*const c_char; MOST] = [core::ptr::null(); MOST];
    const MOST_TEXT: usize = 1024;
    let mut text = [0u8; MOST_TEXT];
    let mut len = 0;
    let mut push = |len: &mut usize, bytes: &[u8]| {
        for byte in bytes {
            if let Some(place) = text.get_mut(*len) {
                *place = *byte;
            }
            *len += 1;
        }
        *len < MOST_TEXT // room for the NUL
    };
    push(&mut len, b"LD_PRELOAD=");
    let start = len;
    for entry in
        entries(lookup(environment, "LD_PRELOAD").unwrap_or_default()).filter(|e| !is_ours(e))
    {
        if len > start {
            push(&mut len, b":");
        }
        if !push(&mut len, entry) {
            return run(environment); // longer than this: leave it as it is
        }
    }
    let mut count = 0;
    let mut at = environment;
    // SAFETY: as `lookup`; `kept` keeps room for its NULL.
    unsafe {
        while !(*at).is_null() {
            let is_list = CStr::from_ptr(*at).to_bytes().starts_with(b"LD_PRELOAD=");
            if !is_list || len > start {
                let Some(place) = kept.get_mut(count).filter(|_| count + 1 < MOST) else {
                    return run(environment);
                };
                *place = if is_list { text.as_ptr().cast() } else { *at };
                count += 1;
            }
            at = at.add(1);
        }
    }
    run(kept.as_ptr())
}

/// Finds what `execvp` would run, into `out`; the name itself if nothing is found.
fn search(file: *const c_char, out: &mut [u8; PATH_MAX]) -> &CStr {
    // SAFETY: a file name given to exec is a string.
    let name = unsafe { CStr::from_ptr(file) };
    let name_bytes = name.to_bytes_with_nul();
    let fallback = b"/bin:/usr/bin";
    if !name_bytes.contains(&b'/') {
        let path = attach::variable("PATH").unwrap_or(fallback);
        for directory in path.split(|b| *b == b':') {
            let slash = usize::from(!directory.is_empty());
            let whole = directory.len() + slash + name_bytes.len();
            if whole > out.len() {
                continue;
            }
            let parts = directory.iter().chain(b"/".iter().take(slash)).chain(name_bytes);
            for (to, from) in out.iter_mut().zip(parts) {
                *to = *from;
            }
            if sys::may_execute(out.as_ptr()) {
                return CStr::from_bytes_until_nul(out).unwrap_or(c"");
            }
        }
    }
    for (to, from) in out.iter_mut().zip(name_bytes) {
        *to = *from;
    }
    out[PATH_MAX - 1] = 0;
    CStr::from_bytes_until_nul(out).unwrap_or(c"")
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    announced(
        path,
        environment,
        false,
        &mut |environment| real!(EXECVE(path, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1),
    )
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as `execve`, which this is with the process's own environment.
    unsafe { execve(path, arguments, attach::environment()) }
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    if !is_text(file) {
        return real!(EXECVPE(file, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1);
    }
    let mut buffer = [0u8; PATH_MAX];
    let found = search(file, &mut buffer).as_ptr();
    announced(
        found,
        environment,
        false,
        &mut |environment| real!(EXECVPE(file, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1),
    )
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as `execvpe`, which this is with the process's own environment.
    unsafe { execvpe(file, arguments, attach::environment()) }
}

/// Writes `/proc/self/fd/N`.
fn descriptor_path(fd: c_int, out: &mut [u8; 32]) -> *const c_char {
    let prefix = b"/proc/self/fd/";
    out[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0u8; 10];
    let mut value = fd.unsigned_abs();
    let mut count = 0;
    loop {
        digits[count] = b'0' + (value % 10) as u8;
        value /= 10;
        count += 1;
        if value == 0 || count == digits.len() {
            break;
        }
    }
    for i in 0..count {
        out[prefix.len() + i] = digits[count - 1 - i];
    }
    out.as_ptr().cast()
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    let mut buffer = [0u8; 32];
    announced(
        descriptor_path(fd, &mut buffer),
        environment,
        false,
        &mut |environment| real!(FEXECVE(fd, arguments, environment) as fn(c_int, Strings, Strings) -> c_int, else -1),
    )
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    fd: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let mut buffer = [0u8; 32];
    // SAFETY: a path given to exec is a string.
    let empty = !path.is_null() && unsafe { *path } == 0;
    let judged = if empty { descriptor_path(fd, &mut buffer) } else { path };
    announced(
        judged,
        environment,
        false,
        &mut |environment| real!(EXECVEAT(fd, path, arguments, environment, flags) as fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int, else -1),
    )
}

/// `syscall(SYS_execve)`.
pub fn by_number(
    path: *const c_char,
    environment: Strings,
    run: &mut dyn FnMut(usize) -> c_long,
) -> c_long {
    let mut run = |environment: Strings| run(environment as usize) as c_int;
    c_long::from(announced(path, environment, false, &mut run))
}

/// `syscall(SYS_execveat)`.
pub fn by_number_at(
    fd: c_int,
    path: *const c_char,
    environment: Strings,
    run: &mut dyn FnMut(usize) -> c_long,
) -> c_long {
    if !is_text(path) {
        return run(environment as usize);
    }
    let mut buffer = [0u8; 32];
    // SAFETY: its first byte was found readable.
    let judged = if unsafe { *path } == 0 { descriptor_path(fd, &mut buffer) } else { path };
    by_number(judged, environment, run)
}

/// The variadic forms: their arguments, in registers and then on the stack, are
/// made one array by pushing the registers below the caller's part. The return
/// address, which lies between the two, is kept aside and put back.
macro_rules! list_form {
    ($name:ident, $target:path) => {
        /// Hook. Variadic in C.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_: *const c_char, _: *const c_char) -> c_int {
            naked_asm!(
                "endbr64",
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {target}",
                "pop rdx",
                "add rsp, 40",
                "push rdx",
                "ret",
                target = sym $target,
            )
        }
    };
}

list_form!(execl, execl_impl);
list_form!(execlp, execlp_impl);
list_form!(execle, execle_impl);

extern "C" fn execl_impl(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the array ends with the caller's NULL.
    unsafe { execve(path, arguments, attach::environment()) }
}

extern "C" fn execlp_impl(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the array ends with the caller's NULL.
    unsafe { execvpe(file, arguments, attach::environment()) }
}

extern "C" fn execle_impl(path: *const c_char, arguments: Strings) -> c_int {
    let mut at = arguments;
    // SAFETY: the caller's list ends with NULL, and the environment follows it.
    unsafe {
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, arguments, (*at.add(1)).cast())
    }
}

type Spawn = (*mut c_int, *const c_char, *const u8, *const u8, Strings, Strings);

fn spawned(
    call: Spawn,
    judged: *const c_char,
    run: &mut dyn FnMut(*mut c_int, Strings) -> c_int,
) -> c_int {
    let (out, _, _, _, _, environment) = call;
    let mut own = 0;
    let out = if out.is_null() { &raw mut own } else { out };
    let error = announced(judged, environment, true, &mut |environment| run(out, environment));
    // SAFETY: on success libc stored the pid there.
    let child = if error == 0 { (unsafe { *out }) as u32 } else { 0 };
    life::spawned(child, error);
    error
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    out: *mut c_int,
    path: *const c_char,
    actions: *const u8,
    attributes: *const u8,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    spawned(
        (out, path, actions, attributes, arguments, environment),
        path,
        &mut |out, environment| real!(POSIX_SPAWN(out, path, actions, attributes, arguments, environment) as fn(*mut c_int, *const c_char, *const u8, *const u8, Strings, Strings) -> c_int, else 38),
    )
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    out: *mut c_int,
    file: *const c_char,
    actions: *const u8,
    attributes: *const u8,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let mut buffer = [0u8; PATH_MAX];
    let judged = if !is_text(file) { file } else { search(file, &mut buffer).as_ptr() };
    spawned(
        (out, file, actions, attributes, arguments, environment),
        judged,
        &mut |out, environment| real!(POSIX_SPAWNP(out, file, actions, attributes, arguments, environment) as fn(*mut c_int, *const c_char, *const u8, *const u8, Strings, Strings) -> c_int, else 38),
    )
}

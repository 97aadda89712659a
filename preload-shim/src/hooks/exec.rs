//! Hooks of all forms of exec and spawn. They record the call, and change the environment if this
//! library must not be loaded.

use super::environment::{Environment, Strings, without_us};
use crate::real;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_long};
use tprof_inject::seccomp::{CallClass, is_forbidden};
use tprof_inject::{attach, environment, exec, lifecycle, loss, state, sys};
use tprof_wire::env;
use tprof_wire::record::ExecVerdict;

const PATH_MAX: usize = 4096;

/// Predicts whether the library will be loaded if `path` is executed with `environment`.
fn verdict(path: &CStr, environment: Environment) -> ExecVerdict {
    if !environment.preloads_us() || environment.lookup(env::SESSION).is_none() {
        return ExecVerdict::NoEnvironment;
    }
    exec::judge(path)
}

/// A string that a program passed to exec; `None` if its first byte can't be read. Under a seccomp
/// filter the kernel may not be asked, so only NULL is refused then.
///
/// # Safety
/// As exec demands, the string ends with a zero, and nothing changes it during `'a`. Contrary to
/// what exec demands, the address may be invalid.
unsafe fn text<'a>(at: *const c_char) -> Option<&'a CStr> {
    let is_there =
        !at.is_null() && (is_forbidden(CallClass::Threads) || sys::is_readable(at as usize & !7));
    // SAFETY: the caller guarantees a string if the address is valid. Its first byte can be read
    // (under a filter, exec demands that).
    is_there.then(|| unsafe { CStr::from_ptr(at) })
}

/// Records an exec of `path` (`None` if the path can't be read) and does it by calling `run` with
/// the environment that the new program may have. Returns only if the exec failed, or after a
/// spawn.
///
/// # Safety
/// `environment` meets the premises of [`Environment::given`].
unsafe fn announced(
    path: Option<&CStr>,
    environment: Strings,
    spawn: bool,
    run: &mut dyn FnMut(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller guarantees the premises of `Environment::given`.
    let (Some(path), Some(given)) = (path, unsafe { Environment::given(environment) }) else {
        return run(environment); // the kernel refuses: EFAULT
    };
    if is_forbidden(CallClass::Threads) || is_forbidden(CallClass::Processes) {
        // The filter stays in force in the new program, which the filter might kill if it attached.
        loss::lose_child_if_not_own();
        lifecycle::executing(path.to_bytes(), ExecVerdict::Filtered, spawn);
        let result = without_us(given, run);
        if !spawn {
            lifecycle::exec_failed(result);
        }
        return result;
    }
    // This is a forked child that has not attached. If the new program will attach itself, the
    // child need not.
    let fresh = !state::is_attached();
    if fresh && verdict(path, given) == ExecVerdict::Followed {
        if !attach::is_reachable() {
            loss::lose_child(sys::pid());
        }
        return run(environment);
    }
    let verdict = verdict(path, given);
    if verdict != ExecVerdict::Followed {
        loss::lose_child_if_not_own();
    }
    if path.to_bytes().starts_with(b"/proc/self/") {
        execute_link(path, verdict, spawn);
    } else {
        lifecycle::executing(path.to_bytes(), verdict, spawn);
    }
    let result = if matches!(verdict, ExecVerdict::OtherClass | ExecVerdict::Sanitizer) {
        without_us(given, run)
    } else {
        run(environment)
    };
    if !spawn {
        lifecycle::exec_failed(result);
    }
    result
}

/// Records an exec of a link in `/proc/self`. Only this process can resolve such a link, so the
/// record has the link's target.
#[inline(never)]
fn execute_link(link: &CStr, verdict: ExecVerdict, spawn: bool) {
    let mut target = [0u8; PATH_MAX];
    let name = sys::link_target(link, &mut target).unwrap_or(link.to_bytes());
    lifecycle::executing(name, verdict, spawn);
}

/// Finds the file that `execvp` would run, and writes its path into `out`. If there is none, writes
/// the name itself.
fn search<'a>(name: &CStr, out: &'a mut [u8; PATH_MAX]) -> &'a CStr {
    let name_bytes = name.to_bytes_with_nul();
    let fallback = b"/bin:/usr/bin";
    if !name_bytes.contains(&b'/') {
        let path = environment::variable("PATH").unwrap_or(fallback);
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

/// Interposes libc's `execve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let run = &mut |environment: Strings| real!(EXECVE(path, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1);
    // SAFETY: callers of `execve` pass a path and an environment as exec demands. `text` and
    // `announced` allow for invalid addresses.
    unsafe { announced(text(path), environment, false, run) }
}

/// Interposes libc's `execv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: this is `execve` with the process's own environment, and the caller's other
    // arguments.
    unsafe { execve(path, arguments, environment::array()) }
}

/// Interposes libc's `execvpe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: callers of `execvpe` pass a name as exec demands. `text` allows for an invalid
    // address.
    let Some(name) = (unsafe { text(file) }) else {
        return real!(EXECVPE(file, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1);
    };
    let mut buffer = [0u8; PATH_MAX];
    let found = search(name, &mut buffer);
    let run = &mut |environment: Strings| real!(EXECVPE(file, arguments, environment) as fn(*const c_char, Strings, Strings) -> c_int, else -1);
    // SAFETY: callers of `execvpe` pass an environment as exec demands. `announced` allows for
    // invalid addresses.
    unsafe { announced(Some(found), environment, false, run) }
}

/// Interposes libc's `execvp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: this is `execvpe` with the process's own environment, and the caller's other
    // arguments.
    unsafe { execvpe(file, arguments, environment::array()) }
}

/// Writes `/proc/self/fd/N`, followed by `/` and `below` if that isn't empty.
fn descriptor_path<'a>(fd: c_int, below: &[u8], out: &'a mut [u8; PATH_MAX]) -> &'a CStr {
    let mut digits = [b'0'; 10];
    let mut value = fd.unsigned_abs();
    let mut first = digits.len();
    while first > 0 && (value > 0 || first == digits.len()) {
        first -= 1;
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0' + (value % 10) as u8;
        }
        value /= 10;
    }
    let number = digits.get(first..).unwrap_or_default();
    let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
    let whole = b"/proc/self/fd/".iter().chain(number).chain(slash).chain(below);
    for (to, from) in out.iter_mut().zip(whole.chain(b"\0")) {
        *to = *from;
    }
    out[PATH_MAX - 1] = 0;
    CStr::from_bytes_until_nul(out).unwrap_or(c"")
}

/// The path of the program that `execveat` would run.
fn path_at<'a>(fd: c_int, path: &'a CStr, out: &'a mut [u8; PATH_MAX]) -> &'a CStr {
    const AT_FDCWD: c_int = -100;
    let bytes = path.to_bytes();
    if bytes.starts_with(b"/") || fd == AT_FDCWD && !bytes.is_empty() {
        return path;
    }
    descriptor_path(fd, bytes, out)
}

/// Interposes libc's `fexecve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    let mut buffer = [0u8; PATH_MAX];
    let run = &mut |environment: Strings| real!(FEXECVE(fd, arguments, environment) as fn(c_int, Strings, Strings) -> c_int, else -1);
    // SAFETY: callers of `fexecve` pass an environment as exec demands. `announced` allows for
    // invalid addresses.
    unsafe { announced(Some(descriptor_path(fd, b"", &mut buffer)), environment, false, run) }
}

/// Interposes libc's `execveat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    fd: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let mut buffer = [0u8; PATH_MAX];
    let run = &mut |environment: Strings| real!(EXECVEAT(fd, path, arguments, environment, flags) as fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int, else -1);
    // SAFETY: callers of `execveat` pass a path and an environment as exec demands. `text` and
    // `announced` allow for invalid addresses.
    unsafe {
        announced(text(path).map(|path| path_at(fd, path, &mut buffer)), environment, false, run)
    }
}

/// Records a program's `syscall(SYS_execve, …)`, and makes the call.
///
/// # Safety
/// The strings and arrays are as exec demands, except that addresses may be invalid.
pub unsafe fn by_number(
    path: *const c_char,
    environment: Strings,
    run: &mut dyn FnMut(usize) -> c_long,
) -> c_long {
    let mut run = |environment: Strings| run(environment as usize) as c_int;
    // SAFETY: the caller guarantees strings and arrays as exec demands, or invalid addresses, for
    // which `text` and `announced` allow.
    c_long::from(unsafe { announced(text(path), environment, false, &mut run) })
}

/// Records a program's `syscall(SYS_execveat, …)`, and makes the call.
///
/// # Safety
/// The same premises as [`by_number`].
pub unsafe fn by_number_at(
    fd: c_int,
    path: *const c_char,
    environment: Strings,
    run: &mut dyn FnMut(usize) -> c_long,
) -> c_long {
    let mut buffer = [0u8; PATH_MAX];
    let mut run = |environment: Strings| run(environment as usize) as c_int;
    // SAFETY: the caller guarantees strings and arrays as exec demands, or invalid addresses, for
    // which `text` and `announced` allow.
    c_long::from(unsafe {
        let path = text(path).map(|path| path_at(fd, path, &mut buffer));
        announced(path, environment, false, &mut run)
    })
}

/// Defines hooks of the variadic forms of exec. Their first arguments are in registers, and the
/// others on the stack. The hook pushes the registers below the arguments on the stack, so that
/// both together become one array. The return address, which was between the two, is removed before
/// and put back afterwards.
macro_rules! list_form {
    ($name:ident, $target:path) => {
        /// Interposes the function of this name, which is variadic in C.
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
    // SAFETY: the array ends with the NULL that `execl` demands from its caller.
    unsafe { execve(path, arguments, environment::array()) }
}

extern "C" fn execlp_impl(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the array ends with the NULL that `execlp` demands from its caller.
    unsafe { execvpe(file, arguments, environment::array()) }
}

extern "C" fn execle_impl(path: *const c_char, arguments: Strings) -> c_int {
    let mut at = arguments;
    // SAFETY: `execle` demands from its caller a NULL at the end of the list, and then the
    // environment.
    unsafe {
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, arguments, (*at.add(1)).cast())
    }
}

/// Records a spawn of `path`, and does it by calling `run`.
///
/// # Safety
/// `out` is null or valid for writing a pid. `environment` meets the premises of
/// [`Environment::given`].
unsafe fn spawned(
    out: *mut c_int,
    path: Option<&CStr>,
    environment: Strings,
    run: &mut dyn FnMut(*mut c_int, Strings) -> c_int,
) -> c_int {
    let mut own = 0;
    let out = if out.is_null() { &raw mut own } else { out };
    // SAFETY: the caller guarantees the premises of `Environment::given`.
    let error =
        unsafe { announced(path, environment, true, &mut |environment| run(out, environment)) };
    // SAFETY: libc has succeeded, so it has stored the pid there.
    let child = if error == 0 { (unsafe { *out }) as u32 } else { 0 };
    lifecycle::spawned(child, error);
    error
}

/// Interposes libc's `posix_spawn`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    out: *mut c_int,
    path: *const c_char,
    actions: *const u8,
    attributes: *const u8,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let run = &mut |out: *mut c_int, environment: Strings| real!(POSIX_SPAWN(out, path, actions, attributes, arguments, environment) as fn(*mut c_int, *const c_char, *const u8, *const u8, Strings, Strings) -> c_int, else 38);
    // SAFETY: callers of `posix_spawn` pass an address for the pid or null, a path, and an
    // environment as exec demands. `text` and `announced` allow for invalid addresses.
    unsafe { spawned(out, text(path), environment, run) }
}

/// Interposes libc's `posix_spawnp`.
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
    let run = &mut |out: *mut c_int, environment: Strings| real!(POSIX_SPAWNP(out, file, actions, attributes, arguments, environment) as fn(*mut c_int, *const c_char, *const u8, *const u8, Strings, Strings) -> c_int, else 38);
    // SAFETY: callers of `posix_spawnp` pass an address for the pid or null, a name, and an
    // environment as exec demands. `text` and `announced` allow for invalid addresses.
    unsafe { spawned(out, text(file).map(|name| search(name, &mut buffer)), environment, run) }
}

//! Starts the job with the state that it would have without tprof.
//!
//! This module has its own fork and exec, because `std::process::Command` leaves SIGPIPE as Rust's
//! runtime set it, and cannot make the child wait before its exec. The child inherits the process
//! group (so that the terminal treats it as the shell's job), and the signal mask, dispositions,
//! limits and descriptors that tprof inherited. Its `argv[0]` is the command as it was typed. It
//! executes the command only when the collector knows its pid.
//!
//! The collector's threads run during the fork. So between fork and exec, the child makes only
//! system calls, on memory that was allocated before. It uses libc for them: nix's `execve`
//! allocates arrays of pointers, and nix doesn't promise that its other calls are
//! async-signal-safe.
#![allow(unsafe_code)]

use crate::launch::inherited;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::{self, ForkResult, Pid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tprof_symbols::elf;

/// Directories that `execvp` searches if PATH is not set (glibc's `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a command cannot be run.
#[derive(Debug)]
pub enum Unusable {
    /// The command does not exist.
    NotFound,
    /// The command exists, but the kernel would refuse it.
    NotExecutable(io::Error),
}

/// Why the command does not run.
#[derive(Debug)]
pub enum NotStarted {
    /// tprof could not create a process, or communicate with it.
    Process(io::Error),
    /// The kernel did not execute the command in the process.
    Exec(io::Error),
}

/// Returns the paths that `execvp` would try for a command, in its order.
pub fn candidates(command: &OsStr) -> Vec<PathBuf> {
    if command.is_empty() {
        return Vec::new();
    }
    if command.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(command)];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    // An empty entry means the current directory. Joined to it, the name stays unchanged.
    let directories = path.as_bytes().split(|byte| *byte == b':');
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(command)).collect()
}

/// Finds the file that would be executed. The caller does this before it creates anything, so that
/// a mistyped command leaves no run behind.
pub fn find(command: &OsStr) -> Result<PathBuf, Unusable> {
    let mut refused = None;
    for path in candidates(command) {
        match path.metadata() {
            Ok(meta) if meta.is_file() && crate::launch::system::may_execute(&path) => {
                return Ok(path);
            }
            Ok(meta) if meta.is_dir() => refused = Some(io::Error::from_raw_os_error(libc::EISDIR)),
            Ok(_) => refused = Some(io::Error::from_raw_os_error(libc::EACCES)),
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => refused = Some(e),
            Err(_) => {}
        }
    }
    Err(refused.map_or(Unusable::NotFound, Unusable::NotExecutable))
}

/// Whether tprof's library must not be preloaded into a program: the loader would print that it
/// cannot load the library (32-bit, another processor), or a sanitizer would print that its own
/// library is not the first. The library itself checks programs that such a program starts.
pub fn refuses_libraries(program: &Path) -> bool {
    const SANITIZERS: [&str; 6] =
        ["libasan.", "libtsan.", "liblsan.", "libhwasan.", "libmsan.", "libclang_rt."];
    match elf::inspect(program) {
        Err(elf::ElfError::OtherClass) => true,
        Err(_) => false,
        Ok(facts) => {
            let sanitizer = |name: &String| SANITIZERS.iter().any(|s| name.starts_with(s));
            facts.machine != elf::EM_NATIVE || facts.needed.iter().any(sanitizer)
        }
    }
}

/// Whether a file is binary, and not a script that a shell should try. Like shells, this looks for
/// a zero byte in the first line, or the magic number of a program.
fn is_binary(path: &Path) -> bool {
    let mut head = [0; 80];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = &head[..read];
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    head.starts_with(b"\x7fELF") || line.contains(&0)
}

/// The state that tprof inherited, and that the child must find.
#[derive(Clone, Copy)]
pub struct InheritedState {
    /// Mask of blocked signals.
    pub mask: SigSet,
    /// Limits of open files, which the collector may raise for itself.
    pub open_files: Option<libc::rlimit>,
}

/// Pipes between tprof and the child, used until the child executes the command. They are created
/// before the recording begins, because the collector may use up all descriptors that the limit
/// allows.
pub struct ChildPipes {
    gate: (File, File),
    status: (File, File),
}

impl ChildPipes {
    /// Creates the pipes.
    pub fn new() -> io::Result<ChildPipes> {
        Ok(ChildPipes { gate: pipe()?, status: pipe()? })
    }
}

/// A forked child that waits until [`HeldChild::go`] is called.
pub struct HeldChild {
    pid: i32,
    gate: File,
    status: File,
}

/// Forks a child that will execute `command`, with `changes` to the environment.
pub fn fork(
    command: &[OsString],
    changes: &[(OsString, OsString)],
    original: &InheritedState,
    pipes: ChildPipes,
) -> Result<HeldChild, NotStarted> {
    let plan = Plan::new(command, changes).map_err(NotStarted::Process)?;
    let pointers_to_environment = pointers(&plan.environment, 0);
    let ChildPipes { gate: (gate_end, gate), status: (status, status_end) } = pipes;
    // SAFETY: the child calls only `become_job`, which makes only async-signal-safe calls and never
    // returns.
    let forked = unsafe { unistd::fork() };
    match forked.map_err(|errno| NotStarted::Process(errno.into()))? {
        ForkResult::Child => {
            // The child closes its copies of tprof's ends of the pipes. With an open copy, it would
            // not see an end of file when tprof dies.
            drop((gate, status));
            plan.become_job(&pointers_to_environment, original, &gate_end, &status_end)
        }
        ForkResult::Parent { child } => Ok(HeldChild { pid: child.as_raw(), gate, status }),
    }
}

/// A command that can replace this process, with its environment.
pub struct Replacement {
    plan: Plan,
    environment: Vec<*const libc::c_char>,
}

impl Replacement {
    /// Allocates everything that [`Replacement::run`] needs, so that `run` allocates nothing.
    pub fn new(command: &[OsString]) -> io::Result<Replacement> {
        let plan = Plan::new(command, &[])?;
        Ok(Replacement { environment: pointers(&plan.environment, 0), plan })
    }

    /// Executes the command. Returns the error number if that fails. `original` is the inherited
    /// state, if tprof has changed it. Async-signal-safe.
    pub fn run(&mut self, original: Option<&InheritedState>) -> i32 {
        inherited::forget_file_size_signal();
        inherited::restore_dispositions();
        inherited::reclose_inherited();
        original.inspect(|original| original.restore());
        self.plan.execute(&self.environment)
    }
}

impl InheritedState {
    /// Restores the limits and the mask. Signals that came meanwhile then have the effect that they
    /// would have had on the job. Async-signal-safe.
    fn restore(&self) {
        if let Some(limit) = &self.open_files {
            // SAFETY: `limit` is live, and `setrlimit` only reads it.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
        }
        // SAFETY: the mask is live, and the pointer to the old mask may be null.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, self.mask.as_ref(), std::ptr::null_mut()) };
    }
}

impl HeldChild {
    /// Returns the child's pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute the command. If `execve` fails, returns its error; the child has then
    /// ended.
    pub fn go(mut self) -> Result<(), NotStarted> {
        // If the child was killed meanwhile, the write fails. The child's wait status shows that
        // later.
        let _ = self.gate.write_all(&[1]);
        let mut errno = [0; 4];
        match self.status.read_exact(&mut errno) {
            // The exec closed the pipe, so it succeeded.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(NotStarted::Process(e)),
            Ok(()) => {
                let _ = waitpid(Pid::from_raw(self.pid), None);
                Err(NotStarted::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
            }
        }
    }
}

/// All data that the child needs. It is allocated before the fork.
struct Plan {
    /// The strings to which `arguments` and `script` point.
    _words: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    script: Vec<*const libc::c_char>,
    tried: Vec<CString>,
    environment: Vec<CString>,
    /// Whether the file is binary. If so, no shell should try to run it as a script.
    binary: bool,
}

impl Plan {
    fn new(command: &[OsString], changes: &[(OsString, OsString)]) -> io::Result<Plan> {
        let words = command.iter().map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let tried = candidates(&command[0]).into_iter();
        let tried = tried.map(|path| CString::new(path.into_os_string().into_vec()));
        Ok(Plan {
            arguments: pointers(&words, 0),
            // If the kernel doesn't know the format of a file, `execvp` runs `/bin/sh FILE ARGS…`.
            script: pointers(&words, 1),
            tried: tried.collect::<Result<Vec<_>, _>>()?,
            environment: environment(changes)?,
            binary: find(&command[0]).is_ok_and(|path| is_binary(&path)),
            _words: words,
        })
    }

    fn become_job(
        mut self,
        environment: &[*const libc::c_char],
        original: &InheritedState,
        gate: &File,
        status: &File,
    ) -> ! {
        let mut byte = 0_u8;
        // SAFETY: `byte` is one live byte. If the read returns an end of file, tprof has died, and
        // there is no collector.
        if unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) } != 1 {
            // SAFETY: `_exit` ends the child without running tprof's exit handlers.
            unsafe { libc::_exit(125) }
        }
        inherited::restore_dispositions();
        inherited::reclose_inherited();
        original.restore();
        let errno = self.execute(environment).to_ne_bytes();
        // SAFETY: `errno` is four live bytes; tprof reads them from the pipe.
        unsafe { libc::write(status.as_raw_fd(), errno.as_ptr().cast(), errno.len()) };
        // SAFETY: `_exit` ends the child without running tprof's exit handlers.
        unsafe { libc::_exit(127) }
    }

    /// Does what `execvp` does. Returns the error number if no file could be executed.
    fn execute(&mut self, environment: &[*const libc::c_char]) -> i32 {
        let mut refused = None;
        let mut last = libc::ENOENT;
        for path in &self.tried {
            // SAFETY: `path` is a `CString`. `arguments` and `environment` are null-terminated
            // arrays of pointers to `CString`s, and `self.environment` and `self._words` outlive
            // the call.
            unsafe { libc::execve(path.as_ptr(), self.arguments.as_ptr(), environment.as_ptr()) };
            last = Errno::last_raw();
            if last == libc::ENOEXEC && self.binary {
                return last;
            }
            if last == libc::ENOEXEC {
                const SHELL: &CStr = c"/bin/sh";
                self.script[0] = SHELL.as_ptr();
                self.script[1] = path.as_ptr();
                // SAFETY: `script` and `environment` are null-terminated arrays of pointers to
                // strings that outlive the call; `script` has room for the two pointers set above.
                unsafe { libc::execve(SHELL.as_ptr(), self.script.as_ptr(), environment.as_ptr()) };
                return Errno::last_raw();
            }
            match last {
                libc::EACCES => refused = Some(last),
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return last,
            }
        }
        refused.unwrap_or(last)
    }
}

/// Returns a null-terminated array of pointers to `strings`, with `room` more places at the
/// beginning.
fn pointers(strings: &[CString], room: usize) -> Vec<*const libc::c_char> {
    let mut list = vec![std::ptr::null(); room];
    list.extend(strings.iter().map(|string| string.as_ptr()));
    list.push(std::ptr::null());
    list
}

/// Creates a pipe whose ends are closed at exec. Returns the read end and the write end.
fn pipe() -> io::Result<(File, File)> {
    let (read, write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// Returns tprof's environment with `changes` applied. Other variables keep their bytes and their
/// order.
fn environment(changes: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut list = Vec::new();
    // SAFETY: `environ` is the C library's environment. tprof never changes it, so no other thread
    // writes to it.
    let mut entry = unsafe { environ };
    // SAFETY: `entry` points into a null-terminated array, at an element that is not behind the
    // null.
    while let Some(text) = unsafe { entry.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: each element before the null points to a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(*text) };
        let name = text.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        if !changes.iter().any(|(changed, _)| changed.as_bytes() == name) {
            list.push(text.to_owned());
        }
        // SAFETY: `entry` is not at the null yet, so the next element is in the array.
        entry = unsafe { entry.add(1) };
    }
    for (name, value) in changes {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        list.push(CString::new(text)?);
    }
    Ok(list)
}

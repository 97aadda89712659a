//! Starts the job as if tprof were not there.
//!
//! It uses its own fork and exec, because `std::process::Command` keeps Rust's SIGPIPE and cannot
//! hold the child back. The child inherits the process group (so that the terminal treats it as the
//! shell's own job), the signal mask, dispositions, limits and descriptors that tprof was given,
//! and the name it was typed with. It waits until the collector has its pid.
//!
//! Collector threads run during the fork, so between fork and exec the child makes only system
//! calls, on memory prepared before. It uses libc there: nix's `execve` allocates the arrays of
//! pointers, and its other calls promise nothing.
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
use tprof_collect::elf;

/// Where `execvp` searches when PATH is not set (glibc's `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a command cannot be run.
#[derive(Debug)]
pub enum Unusable {
    /// The command does not exist.
    NotFound,
    /// The command exists, but the kernel would refuse it.
    NotExecutable(io::Error),
}

/// Why a command was not started.
#[derive(Debug)]
pub enum NotStarted {
    /// tprof could not create a process, or communicate with it.
    Process(io::Error),
    /// The kernel did not execute the command in the process.
    Exec(io::Error),
}

/// Returns the files that `execvp` would try for a command, in its order.
pub fn candidates(command: &OsStr) -> Vec<PathBuf> {
    if command.is_empty() {
        return Vec::new();
    }
    if command.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(command)];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    // An empty entry means the current directory, and joins to the bare name.
    let directories = path.as_bytes().split(|byte| *byte == b':');
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(command)).collect()
}

/// Finds the file that would be executed. This comes before anything is created, so that a mistyped
/// command leaves no run behind.
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

/// Whether tprof's library must stay out of a program: because the loader would print that it
/// cannot be loaded (32-bit, another processor), or a sanitizer that it is not first. Child
/// processes check programs that they start themselves.
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

/// Whether a file is binary, and not a script for a shell to try. Shells go by a zero byte, or a
/// program's magic number, in its first line.
fn is_binary(path: &Path) -> bool {
    let mut head = [0; 80];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = &head[..read];
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    head.starts_with(b"\x7fELF") || line.contains(&0)
}

/// State that the child must find as tprof found it.
#[derive(Clone, Copy)]
pub struct InheritedState {
    /// Mask of blocked signals.
    pub mask: SigSet,
    /// Limit of open files, which a collector may raise for itself.
    pub open_files: Option<libc::rlimit>,
}

/// Pipes between a child and tprof, used until the command runs. They are created before a
/// recording begins, because the collector's descriptors may be the last that the limit allows.
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

/// A forked child that waits for [`HeldChild::go`].
pub struct HeldChild {
    pid: i32,
    gate: File,
    status: File,
}

/// Forks a child that will run `command` with `changes` to the environment.
pub fn fork(
    command: &[OsString],
    changes: &[(OsString, OsString)],
    original: &InheritedState,
    pipes: ChildPipes,
) -> Result<HeldChild, NotStarted> {
    let plan = Plan::new(command, changes).map_err(NotStarted::Process)?;
    let pointers_to_environment = pointers(&plan.environment, 0);
    let ChildPipes { gate: (gate_end, gate), status: (status, status_end) } = pipes;
    // SAFETY: the child goes straight to `become_job`, which keeps to
    // async-signal-safe calls and never returns.
    let forked = unsafe { unistd::fork() };
    match forked.map_err(|errno| NotStarted::Process(errno.into()))? {
        ForkResult::Child => {
            // Closes the child's copies of tprof's ends: while they are open, it would not notice
            // that tprof died.
            drop((gate, status));
            plan.become_job(&pointers_to_environment, original, &gate_end, &status_end)
        }
        ForkResult::Parent { child } => Ok(HeldChild { pid: child.as_raw(), gate, status }),
    }
}

/// A command that can take this process's place, in its environment.
pub struct Replacement {
    plan: Plan,
    environment: Vec<*const libc::c_char>,
}

impl Replacement {
    /// Prepares everything that needs memory, so that [`Replacement::run`] needs none.
    pub fn new(command: &[OsString]) -> io::Result<Replacement> {
        let plan = Plan::new(command, &[])?;
        Ok(Replacement { environment: pointers(&plan.environment, 0), plan })
    }

    /// Executes the command, and returns the error of `execve`. `original` is what tprof has
    /// changed. Async-signal-safe.
    pub fn run(&mut self, original: Option<&InheritedState>) -> i32 {
        inherited::forget_file_size_signal();
        inherited::restore_dispositions();
        inherited::reclose_inherited();
        original.inspect(|original| original.restore());
        self.plan.execute(&self.environment)
    }
}

impl InheritedState {
    /// Restores everything. Signals that came meanwhile now take their original effect, as they
    /// would have on the job. Async-signal-safe.
    fn restore(&self) {
        if let Some(limit) = &self.open_files {
            // SAFETY: points at a live value; a plain system call on Linux.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
        }
        // SAFETY: points at a live set.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, self.mask.as_ref(), std::ptr::null_mut()) };
    }
}

impl HeldChild {
    /// Returns the child's pid.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child run. An error comes from `execve`; the child has ended then.
    pub fn go(mut self) -> Result<(), NotStarted> {
        // A child that was killed meanwhile reads nothing; its status shows that.
        let _ = self.gate.write_all(&[1]);
        let mut errno = [0; 4];
        match self.status.read_exact(&mut errno) {
            // The exec closed the pipe.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(NotStarted::Process(e)),
            Ok(()) => {
                let _ = waitpid(Pid::from_raw(self.pid), None);
                Err(NotStarted::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
            }
        }
    }
}

/// Everything the child needs, allocated before the fork.
struct Plan {
    /// Strings that `arguments` and `script` point to.
    _words: Vec<CString>,
    arguments: Vec<*const libc::c_char>,
    script: Vec<*const libc::c_char>,
    tried: Vec<CString>,
    environment: Vec<CString>,
    /// Whether the file is binary, so that no shell should try it.
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
            // `execvp` runs a file without a known format as `/bin/sh FILE ARGS…`.
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
        // SAFETY: reads one byte into a live local; end of file means that
        // tprof died, and no collector is left.
        if unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) } != 1 {
            // SAFETY: ends this child without running tprof's exit handlers.
            unsafe { libc::_exit(125) }
        }
        inherited::restore_dispositions();
        inherited::reclose_inherited();
        original.restore();
        let errno = self.execute(environment).to_ne_bytes();
        // SAFETY: writes four live bytes to a pipe that tprof reads.
        unsafe { libc::write(status.as_raw_fd(), errno.as_ptr().cast(), errno.len()) };
        // SAFETY: as above.
        unsafe { libc::_exit(127) }
    }

    /// Behaves like `execvp`, and returns the error that it would give.
    fn execute(&mut self, environment: &[*const libc::c_char]) -> i32 {
        let mut refused = None;
        let mut last = libc::ENOENT;
        for path in &self.tried {
            // SAFETY: path, arguments and environment are NUL-terminated
            // strings in null-terminated arrays that outlive the call.
            unsafe { libc::execve(path.as_ptr(), self.arguments.as_ptr(), environment.as_ptr()) };
            last = Errno::last_raw();
            if last == libc::ENOEXEC && self.binary {
                return last;
            }
            if last == libc::ENOEXEC {
                const SHELL: &CStr = c"/bin/sh";
                self.script[0] = SHELL.as_ptr();
                self.script[1] = path.as_ptr();
                // SAFETY: as above.
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

/// Returns a null-terminated array of pointers to `strings`, after `room` free places.
fn pointers(strings: &[CString], room: usize) -> Vec<*const libc::c_char> {
    let mut list = vec![std::ptr::null(); room];
    list.extend(strings.iter().map(|string| string.as_ptr()));
    list.push(std::ptr::null());
    list
}

/// Creates a pipe whose ends close at exec: read end, write end.
fn pipe() -> io::Result<(File, File)> {
    let (read, write) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    Ok((read.into(), write.into()))
}

/// Returns tprof's environment, byte for byte and in its order, with `changes` applied.
fn environment(changes: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut list = Vec::new();
    // SAFETY: tprof never changes its environment, so the array stays as the
    // kernel laid it out.
    let mut entry = unsafe { environ };
    // SAFETY: `entry` walks a null-terminated array of NUL-terminated strings;
    // both are read before the pointer moves on, and it stops at the null.
    while let Some(text) = unsafe { entry.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(*text) };
        let name = text.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        if !changes.iter().any(|(changed, _)| changed.as_bytes() == name) {
            list.push(text.to_owned());
        }
        // SAFETY: not yet at the terminating null.
        entry = unsafe { entry.add(1) };
    }
    for (name, value) in changes {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        list.push(CString::new(text)?);
    }
    Ok(list)
}

//! Finds the Python interpreter of a process: its file, its version, the address of its runtime,
//! and the code of its loop.
//!
//! What is supported:
//!
//! - Tested versions are CPython 3.8.18, 3.9.18, 3.10.13, 3.11.2, 3.11.7, 3.12.1 and 3.13.0; 3.14
//!   was not available.
//! - Debug builds before 3.13, versions above 3.14, and stripped interpreters without exports are
//!   reported as unsupported.
//! - PyPy, 32-bit interpreters, and interpreters that are linked into a program of another name are
//!   not recognized.
//! - In the tail-calling build of 3.14, Python frames come after the native frames instead of
//!   between them.
//! - Reading needs a debugger's permission: Yama's `ptrace_scope` must be 0, or 1 for processes
//!   that tprof launched.

use super::layout::{KnownLayout, LockLocation};
use super::memory::ProcessMemory;
use rustc_hash::FxHashMap;
use std::path::Path;
use tprof_os::proc;
use tprof_os::sys;
use tprof_symbols::elf::Elf;
use tprof_symbols::{SymbolTable, routine, variable};
use tprof_unwind::modules::LoadedModule;
use tprof_wire::python::{Interpreter, Memory as _};

/// The function that runs Python code: the interpreter's loop. Its cold part has the same name with
/// a suffix.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// A Python interpreter whose frames can be read.
pub struct FoundPython {
    /// Offsets of fields in its objects, and where its GIL is.
    pub known: KnownLayout,
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// Pid and file of its process, as messages of the run show them.
    pub process: String,
    elf: Elf,
    symbols: Option<SymbolTable>,
    bias: u64,
    /// First address of the interpreter's code.
    pub start: u64,
    end: u64,
    /// Return addresses that were looked up, with whether they are in the loop.
    loops: FxHashMap<u64, bool>,
}

impl FoundPython {
    /// Whether a return address is in the interpreter's loop.
    pub fn is_loop(&mut self, address: u64) -> bool {
        let pc = address.wrapping_sub(1);
        if !(self.start..self.end).contains(&pc) {
            return false;
        }
        let Some(symbols) = &self.symbols else { return false };
        let (elf, bias) = (&self.elf, self.bias);
        *self.loops.entry(address).or_insert_with(|| {
            let name = symbols.name_at(elf, pc.wrapping_sub(bias));
            name.is_some_and(|name| name.starts_with(LOOP))
        })
    }

    /// Returns what a process must know to read its own frames. The error says why it can't.
    pub fn interpreter(&self) -> Result<Interpreter, String> {
        let missing =
            |name: &str| format!("it is stripped and does not export the thread state (`{name}`)");
        let code = |names: &[&str]| {
            let found = names.iter().find_map(|name| {
                let export = self.elf.export(name).map(|(address, _)| address);
                export.or_else(|| routine(&self.elf, name))
            });
            let address = found.ok_or_else(|| missing(names.first().unwrap_or(&"")))?;
            Ok::<u64, String>(address.wrapping_add(self.bias))
        };
        let code_type = place_of(&self.elf, "PyCode_Type").ok_or_else(|| missing("PyCode_Type"))?;
        Ok(Interpreter {
            runtime: self.runtime,
            thread_of: code(&["PyGILState_GetThisThreadState"])?,
            current: code(&["_PyThreadState_UncheckedGet", "PyThreadState_GetUnchecked"])?,
            code_type: code_type.wrapping_add(self.bias),
            text: (self.start, self.end),
            one_lock: matches!(self.known.lock, LockLocation::Runtime(..)),
            layout: self.known.layout.clone(),
        })
    }
}

/// Whether a file has the name of an interpreter or its library.
pub fn may_be(path: &Path) -> bool {
    minor_of(path).is_some()
}

/// Finds the interpreter of a process among its modules; `None` if there is none. An error names an
/// interpreter that can't be read, and says why.
pub fn find(
    pid: u32,
    modules: impl IntoIterator<Item = LoadedModule>,
) -> Option<Result<FoundPython, (String, String)>> {
    let mut last = None;
    for module in modules {
        let Some(minor) = minor_of(&module.path) else { continue };
        let Ok(elf) = Elf::open(&module.reached) else { continue };
        let Some(runtime) = place_of(&elf, "_PyRuntime") else {
            if is_whole(&module.path, &elf) {
                let why = "it is stripped and does not export its state (`_PyRuntime`)";
                last = Some(Err((describe_process(pid, &module.path), why.to_owned())));
            }
            continue;
        };
        let runtime = runtime.wrapping_add(module.bias);
        let memory = ProcessMemory::new(pid);
        if let Err(e) = sys::can_read(pid, runtime) {
            if e.raw_os_error() == Some(libc::EPERM) {
                last = Some(Err((describe_process(pid, &module.path), unreadable())));
            }
            continue;
        }
        let minor = version(&elf, &memory, module.bias).or(minor);
        let known = match layout(&memory, runtime, minor, &module.path) {
            Ok(known) => known,
            Err(why) => {
                last = Some(Err((describe_process(pid, &module.path), why)));
                continue;
            }
        };
        let symbols = SymbolTable::full(&elf, None).or_else(|| SymbolTable::dynamic(&elf, None));
        return Some(Ok(FoundPython {
            known,
            runtime,
            process: describe_process(pid, &module.path),
            elf,
            symbols,
            bias: module.bias,
            start: module.start,
            end: module.end,
            loops: FxHashMap::default(),
        }));
    }
    last
}

/// Returns the ELF address of a variable. A statically linked interpreter exports no variables, but
/// its symbol table has them unless it was stripped.
fn place_of(elf: &Elf, name: &str) -> Option<u64> {
    elf.export(name).map(|(address, _)| address).or_else(|| variable(elf, name))
}

/// Whether a file with the name of an interpreter contains the interpreter itself. If not, the
/// interpreter is in a library that the file needs.
fn is_whole(path: &Path, elf: &Elf) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name.strip_prefix("python");
    version.is_some_and(|v| v.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        && !elf.facts().needed.iter().any(|library| library.starts_with("libpython"))
}

fn describe_process(pid: u32, path: &Path) -> String {
    format!("{pid} {}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns why the memory of a process can't be read.
fn unreadable() -> String {
    match proc::setting("kernel/yama/ptrace_scope").as_deref() {
        None | Some("0") => {
            "its memory may not be read: it is another user's, or protects itself".to_owned()
        }
        Some(scope) => format!(
            "its memory may not be read (kernel.yama.ptrace_scope is {scope}); `sysctl \
             kernel.yama.ptrace_scope=0` or CAP_SYS_PTRACE permits it"
        ),
    }
}

/// Returns the minor version in the name of an interpreter or its library, as far as the name tells
/// it; `None` for other names.
fn minor_of(path: &Path) -> Option<Option<u8>> {
    let name = path.file_name()?.to_str()?;
    let rest = name.strip_prefix("libpython").or_else(|| name.strip_prefix("python"))?;
    let Some(rest) = rest.strip_prefix("3.") else {
        return (rest.is_empty() || rest.starts_with('3')).then_some(None);
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(rest[..digits].parse().ok())
}

/// Returns the minor version from the interpreter's own data, which exists from 3.11 on.
fn version(elf: &Elf, mut memory: &ProcessMemory, bias: u64) -> Option<u8> {
    let address = place_of(elf, "Py_Version")?;
    let version = memory.u64(address.wrapping_add(bias))?;
    (version >> 24 == 3).then_some((version >> 16) as u8)
}

fn layout(
    memory: &ProcessMemory,
    runtime: u64,
    minor: Option<u8>,
    path: &Path,
) -> Result<KnownLayout, String> {
    match minor {
        Some(minor @ 13..) => KnownLayout::published(memory, runtime)
            .map_err(|why| if minor > 14 { format!("Python 3.{minor}: {why}") } else { why }),
        Some(minor) => {
            let name = path.to_string_lossy();
            if name.ends_with('d') || name.contains(&format!("3.{minor}d")) {
                return Err("a debug build of Python before 3.13 lays its objects out differently"
                    .to_owned());
            }
            KnownLayout::of(minor).ok_or(format!("Python 3.{minor} is older than 3.8"))
        }
        None => {
            KnownLayout::published(memory, runtime).map_err(|_| "its version is unknown".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_recognized_by_their_names() {
        let minor = |name: &str| minor_of(Path::new(name));
        assert_eq!(minor("/usr/bin/python3.11"), Some(Some(11)));
        assert_eq!(minor("/usr/lib/libpython3.8.so.1.0"), Some(Some(8)));
        assert_eq!(minor("/opt/bin/python3"), Some(None));
        assert_eq!(minor("/usr/lib/python3.11/lib-dynload/_json.so"), None);
        assert_eq!(minor("/usr/bin/python2.7"), None);
    }
}

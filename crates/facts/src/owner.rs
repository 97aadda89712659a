//! Decides who owns the code on a stack: the user, a library or the system.

use crate::frames::Layer;
use crate::pass_through::is_of_tprof;

/// Modules of the C library and of Python's interpreter, by the beginnings of their names.
const SYSTEM: [&str; 6] = ["libc.so", "libpthread", "ld-linux", "libpython", "python3", "[vdso]"];
/// Modules of Python's interpreter itself, by the beginnings of their names.
const INTERPRETER: [&str; 2] = ["libpython", "python"];

/// Python files of the import system and of `python -m`, by the beginnings of their names.
const IMPORT_FROZEN: [&str; 3] = ["<frozen importlib", "<frozen zipimport", "<frozen runpy"];
/// The files of the import system in the standard library, by the ends of their paths.
const IMPORT_FILES: [&str; 4] = [
    "/importlib/_bootstrap.py",
    "/importlib/_bootstrap_external.py",
    "/importlib/__init__.py",
    "/runpy.py",
];

/// Beginnings of the paths of source files that were installed or belong to a compiler, so the user
/// did not write them.
const INSTALLED: [&str; 6] =
    ["/usr/include/", "/usr/lib", "/usr/src/", "/rustc/", "/build/", "/opt/conda/"];
/// Parts of the paths of installed packages.
const PACKAGES: [&str; 5] = [
    "/site-packages/",
    "/dist-packages/",
    "/.cargo/registry/",
    "/.rustup/toolchains/",
    "/library/std/src/",
];
/// A part of the paths of CPython's own sources, for example of
/// `Python-3.11.7/Modules/selectmodule.c`.
const CPYTHON: &str = "/Python-3.";
/// File names that Python gives to the job's code that is not in a file.
const TYPED_IN: [&str; 3] = ["<string>", "<stdin>", "<ipython-input"];

/// The properties of code that decide who owns it.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The layer that the code belongs to.
    pub layer: Layer,
    /// Source file; empty if unknown.
    pub file: &'a str,
    /// Base name of the code's module.
    pub module: &'a str,
}

impl Code<'_> {
    /// Whether the code belongs to the kernel, the C library, the interpreter or tprof.
    pub fn is_system(self) -> bool {
        let is_of = |start: &&str| self.module.starts_with(*start);
        self.layer == Layer::Kernel
            || self.layer == Layer::Native && (SYSTEM.iter().any(is_of) || is_of_tprof(self.module))
    }

    /// Whether the code is native and belongs to Python's interpreter. Below a Python function, it
    /// executes that function.
    pub fn is_interpreter(self) -> bool {
        self.layer == Layer::Native
            && INTERPRETER.iter().any(|start| self.module.starts_with(start))
    }

    /// Whether the code belongs to Python's import system. Its time counts for the line that
    /// imports.
    pub fn is_import(self) -> bool {
        self.layer == Layer::Python
            && (IMPORT_FROZEN.iter().any(|start| self.file.starts_with(start))
                || IMPORT_FILES
                    .iter()
                    .any(|end| self.file.ends_with(end) && standard_library(self.file).is_some()))
    }

    /// Whether the code is most likely the user's: its file is outside of site-packages, Python's
    /// standard library, system directories and the sources of compilers.
    pub fn is_own(self) -> bool {
        let file = self.file;
        if file.is_empty() || self.is_system() {
            return false;
        }
        if file.starts_with('<') {
            return TYPED_IN.iter().any(|start| file.starts_with(start));
        }
        // Debug information of system libraries has paths relative to the directory in which the
        // library was built. So native code with a relative path is not the user's.
        let relative = self.layer == Layer::Native && !file.starts_with('/');
        let of_cpython = self.layer == Layer::Native && file.contains(CPYTHON);
        !relative
            && !of_cpython
            && !INSTALLED.iter().any(|start| file.starts_with(start))
            && !PACKAGES.iter().any(|part| file.contains(part))
            && !is_of_inductor(file)
            && standard_library(file).is_none()
    }
}

/// Returns the position of the frame that names a stack's line of the program, in a list of code
/// with its line, innermost first: the user's Python, then any Python, then the user's native code.
/// `None` if no frame can.
pub fn line_of_program(frames: &[(Code<'_>, u32)]) -> Option<usize> {
    let find = |passes: &dyn Fn(Code<'_>, u32) -> bool| {
        frames.iter().position(|(code, line)| passes(*code, *line))
    };
    let is_python = |code: Code<'_>| code.layer == Layer::Python;
    find(&|code, _| is_python(code) && code.is_own() && !code.is_import())
        .or_else(|| find(&|code, _| is_python(code) && !code.is_import()))
        .or_else(|| find(&|code, _| is_python(code)))
        .or_else(|| find(&|code, line| line > 0 && code.is_own()))
}

/// Whether PyTorch's Inductor wrote a file. The name of such a file is the hash of its content in
/// base 32, and its directory is named after two letters of the name.
fn is_of_inductor(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let (Some(name), Some(directory)) = (parts.next(), parts.next()) else { return false };
    let Some(hash) = name.strip_suffix(".py") else { return false };
    let is_digit = |byte: u8| matches!(byte, b'a'..=b'z' | b'2'..=b'7');
    hash.len() == 52 && hash.bytes().all(is_digit) && hash.get(1..3) == Some(directory)
}

/// Returns the rest of a path after `lib/python3.N/`.
fn standard_library(file: &str) -> Option<&str> {
    let (_, rest) = file.split_once("/python3")?;
    let before = &file[..file.len() - rest.len() - "/python3".len()];
    let rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit() || c == 't');
    (before.ends_with("/lib") || before.ends_with("/lib64")).then(|| rest.strip_prefix('/'))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<'a>(file: &'a str, module: &'a str, layer: Layer) -> Code<'a> {
        Code { layer, file, module }
    }

    #[test]
    fn files_outside_of_packages_and_the_standard_library_are_own() {
        let python = |file: &str| code(file, "[python]", Layer::Python).is_own();
        for own in ["/home/u/train.py", "train.py", "<string>", "/srv/python3/tools/a.py"] {
            assert!(python(own), "{own}");
        }
        for library in [
            "/usr/lib/python3.11/json/encoder.py",
            "/root/.pyenv/versions/3.11.7/lib/python3.11/json/encoder.py",
            "/venv/lib/python3.13t/threading.py",
            "/venv/lib/python3.11/site-packages/torch/nn/module.py",
            "/tmp/x/ng/cngm2dafjwp6koa3v7g4z7dw4dzt7mon45g7tm2uvgx6335ppwmb.py",
            "<frozen importlib._bootstrap>",
            "<__array_function__ internals>",
            "",
        ] {
            assert!(!python(library), "{library}");
        }
        let native = |file: &str, module: &str| code(file, module, Layer::Native).is_own();
        assert!(native("/home/u/main.c", "main"));
        for (file, module) in [
            ("/usr/include/c++/12/bits/stl_vector.h", "main"),
            ("/rustc/abc/library/core/src/iter.rs", "main"),
            ("/root/.cargo/registry/src/x/serde/src/de.rs", "main"),
            ("./nptl/pthread_mutex_lock.c", "libfoo.so"),
            ("/home/u/cpython/Python/ceval.c", "libpython3.11.so.1.0"),
            ("/tmp/python-build.1/Python-3.11.7/Modules/selectmodule.c", "select.cpython-311.so"),
            ("", "main"),
        ] {
            assert!(!native(file, module), "{file}");
        }
    }

    #[test]
    fn the_interpreter_is_recognised_by_its_module() {
        let is = |module: &str| code("", module, Layer::Native).is_interpreter();
        assert!(is("python3.11") && is("libpython3.13t.so.1.0"));
        assert!(!is("libtorch_python.so") && !is("_json.cpython-311-x86_64-linux-gnu.so"));
        assert!(!code("a.py", "python3.11", Layer::Python).is_interpreter());
    }

    #[test]
    fn the_import_system_is_recognised_by_its_files() {
        let is = |file: &str| code(file, "[python]", Layer::Python).is_import();
        assert!(is("<frozen importlib._bootstrap_external>"));
        assert!(is("/usr/lib/python3.8/importlib/__init__.py"));
        assert!(!is("/home/u/importlib/__init__.py"));
        assert!(!is("/home/u/train.py"));
    }
}

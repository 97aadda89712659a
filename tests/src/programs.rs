//! Builds victims on first use.
//!
//! A program is compiled into a folder named after a hash of all inputs of the build, so that no
//! stale program runs and no program is built twice. A program's first comment may list more
//! compiler arguments after `build:`.

use crate::sys;
use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a victim is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `-O2`, without frame pointers, as distributions build.
    Plain,
    /// With frame pointers, otherwise like `Plain`.
    FramePointers,
    /// Linked statically, with glibc.
    Static,
    /// libstdc++ linked in.
    StaticCxx,
    /// Built for 32-bit x86.
    M32,
    /// Against musl, dynamically linked.
    Musl,
    /// Against musl, statically linked.
    MuslStatic,
    /// Built with AddressSanitizer.
    Asan,
    /// With Debian's jemalloc linked in.
    Jemalloc,
    /// With Debian's tcmalloc linked in.
    Tcmalloc,
    /// With Debian's jemalloc linked in under names of its own, as tikv-jemallocator does.
    OwnJemalloc,
    /// The same as `OwnJemalloc`, but stripped.
    OwnJemallocStripped,
}

/// Debian's jemalloc with renamed functions, in the folder of the program that needs it.
const OWN_JEMALLOC: &str = "own-jemalloc.a";
/// Libc's names of all functions that jemalloc exports.
const LIBC_NAMES: [&str; 13] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "malloc_usable_size",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
];

impl Kind {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Kind::Plain => &["-fomit-frame-pointer"],
            Kind::FramePointers => &["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"],
            Kind::Static => &["-static"],
            Kind::MuslStatic => &["-static"],
            Kind::StaticCxx => &["-static-libstdc++", "-static-libgcc"],
            Kind::M32 => &["-m32"],
            // The compiler's wrapper for musl leaves the build ID out.
            Kind::Musl => &["-Wl,--build-id"],
            Kind::Asan => &["-fsanitize=address"],
            Kind::Jemalloc => &["-l:libjemalloc.a", "-lm", "-ldl", "-lstdc++"],
            Kind::Tcmalloc => &["-l:libtcmalloc_minimal.a", "-lstdc++", "-lm"],
            Kind::OwnJemalloc => &[OWN_JEMALLOC, "-lstdc++", "-lm", "-pthread"],
            Kind::OwnJemallocStripped => &[OWN_JEMALLOC, "-lstdc++", "-lm", "-pthread", "-s"],
        }
    }

    fn compiler(self, source: &Path) -> &'static str {
        match (self, source.extension().and_then(|e| e.to_str())) {
            (_, Some("rs")) => "rustc",
            (Kind::Musl | Kind::MuslStatic, _) => "musl-gcc",
            (_, Some("cpp")) => "g++",
            _ => "gcc",
        }
    }
}

/// Returns the victim of this name, built as `Kind::Plain`.
pub fn program(name: &str) -> PathBuf {
    build(name, Kind::Plain).unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the victim of this name, or why it can't be built here: a compiler or library may be
/// missing. For kinds other than the plain one, any build error counts as such a reason. For the
/// plain kind, a build error fails the test.
pub fn build(name: &str, kind: Kind) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let source = ["c", "cpp", "rs"]
        .iter()
        .map(|ending| folder.join(format!("{name}.{ending}")))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no program {name} in {}", folder.display()));
    let text = fs::read_to_string(&source).unwrap();
    let arguments = arguments(&text, &folder, kind, &source);

    let mut hasher = DefaultHasher::new();
    (text, &arguments, fs::read_to_string(folder.join("victim.h")).unwrap()).hash(&mut hasher);
    for extra in arguments.iter().filter(|a| a.ends_with(".S")) {
        fs::read_to_string(extra).unwrap().hash(&mut hasher);
    }
    let home =
        target_dir().join("victims").join(format!("{name}-{kind:?}-{:016x}", hasher.finish()));
    let shared = arguments.iter().any(|a| a == "-shared");
    let output = home.join(if shared { format!("{name}.so") } else { name.to_owned() });
    if output.exists() {
        return Ok(output);
    }
    fs::create_dir_all(&home).unwrap();
    let lock = File::create(home.join("lock")).unwrap();
    sys::lock(&lock);
    if output.exists() {
        return Ok(output);
    }
    if matches!(kind, Kind::OwnJemalloc | Kind::OwnJemallocStripped) {
        make_own_jemalloc(&home)?;
    }
    compile(kind.compiler(&source), &arguments, &source, &home, &output)?;
    Ok(output)
}

fn arguments(text: &str, folder: &Path, kind: Kind, source: &Path) -> Vec<String> {
    if source.extension().is_some_and(|e| e == "rs") {
        return ["-O", "-g", "--edition=2024"].map(str::to_owned).to_vec();
    }
    let own = text.lines().find_map(|line| line.split_once("build: ")).map_or("", |(_, rest)| rest);
    let mut all: Vec<String> =
        ["-g", "-O2", "-Wall", "-Wextra", "-Wno-unused-result", "-fno-builtin", "-fno-ipa-icf"]
            .iter()
            .map(|flag| (*flag).to_owned())
            .collect();
    all.push(source.display().to_string());
    for word in own.trim_end_matches("*/").split_whitespace() {
        let file = folder.join(word);
        all.push(match word.strip_suffix(".so") {
            Some(library) => program(library).display().to_string(),
            None if file.is_file() => file.display().to_string(),
            None => word.to_owned(),
        });
    }
    all.extend(kind.flags().iter().map(|flag| (*flag).to_owned()));
    all
}

fn make_own_jemalloc(home: &Path) -> Result<(), String> {
    let found = Command::new("gcc").arg("-print-file-name=libjemalloc_pic.a").output();
    let found = found.map_err(|error| format!("gcc: {error}"))?.stdout;
    let library = String::from_utf8_lossy(&found).trim().to_owned();
    let renamed = LIBC_NAMES.iter().map(|name| format!("--redefine-sym={name}=_rjem_{name}"));
    let done =
        Command::new("objcopy").args(renamed).arg(&library).arg(home.join(OWN_JEMALLOC)).output();
    let done = done.map_err(|error| format!("objcopy: {error}"))?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    done.status.success().then_some(()).ok_or_else(|| format!("objcopy {library}: {stderr}"))
}

/// Compiles into a temporary file and renames it, so that an interrupted build leaves no program.
fn compile(
    compiler: &str,
    arguments: &[String],
    source: &Path,
    home: &Path,
    output: &Path,
) -> Result<(), String> {
    let partial = home.join("partial");
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(&partial).current_dir(home);
    if compiler == "rustc" {
        command.arg(source);
    }
    let done = command.output().map_err(|error| format!("{compiler}: {error}"))?;
    if !done.status.success() {
        let stderr = String::from_utf8_lossy(&done.stderr);
        return Err(format!(
            "{compiler} {} does not build {}: {stderr}",
            arguments.join(" "),
            source.display()
        ));
    }
    fs::rename(&partial, output).unwrap();
    Ok(())
}

/// Returns the target directory that this test was built into.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").exists())
        .or_else(|| exe.ancestors().nth(3))
        .unwrap()
        .to_owned()
}

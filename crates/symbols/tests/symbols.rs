//! Tests the symbolizer with programs that are built here, and with the system's libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol};
use tprof_os::maps::read_code_maps;
use tprof_symbols::elf::{Elf, FileId};
use tprof_symbols::{ModuleFile, ResolvedFrame, Symbolizer};

const PROGRAM: &str = "\
#include <stdlib.h>
static inline __attribute__((always_inline)) void *inner(int n) {
    return malloc(n + 7);
}
__attribute__((noinline)) void *outer(int n) {
    return inner(n * 3);
}
static __attribute__((noinline)) int hidden(int n) { volatile int k = n; return k * 2; }
int main(int argc, char **argv) { free(outer(argc)); return hidden(argc); }
";

/// Builds `PROGRAM` with these flags. Returns the directory, which is removed when it is dropped,
/// and the path of the program.
fn build(flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).status();
    assert!(status.unwrap().success());
    (dir, program)
}

fn run(tool: &str, arguments: &[&str], directory: &Path) {
    let status = Command::new(tool).args(arguments).current_dir(directory).status().unwrap();
    assert!(status.success(), "{tool} {arguments:?}");
}

fn module(path: &Path) -> ModuleFile {
    ModuleFile { path: path.to_path_buf(), ..ModuleFile::default() }
}

/// Returns the file that an address of this process belongs to, and the ELF address that it has
/// there.
fn place_of(address: u64) -> (PathBuf, u64) {
    let code = read_code_maps(std::process::id()).unwrap();
    let map = code.into_iter().find(|map| (map.start..map.end).contains(&address)).unwrap();
    let offset = address - map.start + map.offset;
    let elf = Elf::open(&map.path).unwrap();
    let mut segments = elf.segments().iter().filter(|segment| segment.is_code());
    let segment = segments.find(|s| (s.offset..s.offset + s.file_bytes).contains(&offset)).unwrap();
    (map.path, offset - segment.offset + segment.address)
}

/// Returns the ELF addresses of a function. The file must still have its symbols.
fn extent(path: &Path, function: &str) -> std::ops::Range<u64> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&data[..]).unwrap();
    let symbol = file.symbols().find(|s| s.name() == Ok(function)).unwrap();
    symbol.address()..symbol.address() + symbol.size()
}

/// Of the results for all addresses of a function, returns the one with most frames.
fn deepest(module: &ModuleFile, extent: std::ops::Range<u64>) -> Vec<ResolvedFrame> {
    let mut symbolizer = Symbolizer::new();
    extent.map(|pc| symbolizer.resolve(module, pc).to_vec()).max_by_key(Vec::len).unwrap()
}

fn shown(frames: &[ResolvedFrame]) -> Vec<(&str, &str, u32)> {
    let base = |path: &'_ str| path.rfind('/').map_or(0, |i| i + 1);
    frames.iter().map(|f| (f.function.as_str(), &f.file[base(&f.file)..], f.line)).collect()
}

const INLINED: [(&str, &str, u32); 2] = [("inner", "program.c", 3), ("outer", "program.c", 6)];

#[test]
fn inlined_functions_have_names_and_lines() {
    let (_dir, program) = build(&["-O2", "-g"]);
    let frames = deepest(&module(&program), extent(&program, "outer"));
    assert_eq!(shown(&frames), INLINED);
}

#[test]
fn compressed_debug_information_is_read() {
    let (_dir, program) = build(&["-O2", "-g", "-gz=zlib"]);
    let frames = deepest(&module(&program), extent(&program, "outer"));
    assert_eq!(shown(&frames), INLINED);
}

#[test]
fn a_debug_link_is_followed_only_to_the_file_of_the_same_build() {
    let (dir, program) = build(&["-O2", "-g"]);
    let outer = extent(&program, "outer");
    let at = dir.path();
    run("objcopy", &["--only-keep-debug", "program", "program.debug"], at);
    run("strip", &["program"], at);
    run("objcopy", &["--add-gnu-debuglink=program.debug", "program"], at);
    assert_eq!(shown(&deepest(&module(&program), outer.clone())), INLINED);
    // A file from another build with the same name must not be used.
    let (other, _) = build(&["-O1", "-g", "-DOTHER", "-Wl,--build-id=0x1234"]);
    std::fs::copy(other.path().join("program"), at.join("program.debug")).unwrap();
    assert_eq!(shown(&deepest(&module(&program), outer)), []);
}

#[test]
fn a_sparing_symbolizer_reads_no_lines_from_compressed_files() {
    let (dir, program) = build(&["-O2", "-g", "-gz=zlib"]);
    let hidden = extent(&program, "hidden");
    let at = dir.path();
    run("objcopy", &["--only-keep-debug", "program", "program.debug"], at);
    run("strip", &["program"], at);
    run("objcopy", &["--add-gnu-debuglink=program.debug", "program"], at);
    let frames = Symbolizer::sparing(None, true).resolve(&module(&program), hidden.start);
    assert_eq!(shown(&frames), [("hidden", "", 0)]);
    let frames = Symbolizer::new().resolve(&module(&program), hidden.start);
    assert_eq!(shown(&frames), [("hidden", "program.c", 8)]);
}

/// Returns a program as a module of a process whose root directory is `root`. The program can be
/// reached only through `root`, because its own path doesn't exist.
fn through(root: &Path, program: &Path) -> ModuleFile {
    let reached = root.join(program.strip_prefix("/").unwrap());
    let identity = FileId::of(&std::fs::metadata(program).unwrap());
    ModuleFile {
        path: PathBuf::from("/gone/from/here"),
        reached: Some(reached),
        identity: Some(identity),
        ..ModuleFile::default()
    }
}

#[test]
fn a_file_that_many_processes_run_is_read_once() {
    let (_dir, program) = build(&["-O2"]);
    let hidden = extent(&program, "hidden");
    let mut symbolizer = Symbolizer::new();
    let lives = through(Path::new("/proc/self/root"), &program);
    let gone = through(Path::new("/proc/0/root"), &program);
    assert_eq!(shown(&symbolizer.resolve(&lives, hidden.start)), [("hidden", "", 0)]);
    // The file is known by its identity, so it need not be reachable through the second process.
    for pc in [hidden.start, hidden.start + 1] {
        assert_eq!(shown(&symbolizer.resolve(&gone, pc)), [("hidden", "", 0)]);
    }
}

#[test]
fn a_file_is_found_through_another_process_if_the_first_has_ended() {
    let (_dir, program) = build(&["-O2"]);
    let hidden = extent(&program, "hidden");
    let mut symbolizer = Symbolizer::new();
    let gone = through(Path::new("/proc/0/root"), &program);
    let lives = through(Path::new("/proc/self/root"), &program);
    assert_eq!(shown(&symbolizer.resolve(&gone, hidden.start)), []);
    assert_eq!(shown(&symbolizer.resolve(&lives, hidden.start)), [("hidden", "", 0)]);
    assert_eq!(shown(&symbolizer.resolve(&gone, hidden.start)), [("hidden", "", 0)]);
}

#[test]
fn a_file_with_another_build_id_is_not_used() {
    let (_dir, program) = build(&["-O2", "-g"]);
    let outer = extent(&program, "outer");
    let wrong = ModuleFile { build_id: "00".into(), ..module(&program) };
    assert_eq!(deepest(&wrong, outer), []);
}

#[test]
fn static_functions_come_from_the_symbol_table_without_debug_information() {
    let (_dir, program) = build(&["-O2"]);
    let hidden = extent(&program, "hidden");
    let mut symbolizer = Symbolizer::new();
    let frames = symbolizer.resolve(&module(&program), hidden.start + 1);
    assert_eq!(shown(&frames), [("hidden", "", 0)]);
    assert_eq!(symbolizer.resolve(&module(&program), 1)[..], []);
    assert_eq!(symbolizer.resolve(&module(&program), u64::MAX)[..], []);
}

#[test]
fn a_stripped_library_has_the_names_that_it_exports() {
    let (libc, malloc) = place_of(libc::malloc as *const () as u64);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("libc.so.6");
    std::fs::copy(&libc, &copy).unwrap();
    // The copy has no build id, so that no debug file on this machine belongs to it.
    run(
        "objcopy",
        &["--remove-section=.note.gnu.build-id", "--strip-all", "libc.so.6"],
        dir.path(),
    );
    let frames = Symbolizer::new().resolve(&module(&copy), malloc + 1);
    assert_eq!(shown(&frames), [("malloc", "", 0)]);
}

#[inline(never)]
fn a_function_of_this_program(n: u64) -> u64 {
    std::hint::black_box(n + 1)
}

#[test]
fn rust_names_have_no_hash() {
    let address = a_function_of_this_program as *const () as u64;
    assert_eq!(a_function_of_this_program(1), 2);
    let (own, pc) = place_of(address);
    let frames = Symbolizer::new().resolve(&module(&own), pc + 1);
    let last = frames.last().unwrap();
    assert_eq!(last.function, "symbols::a_function_of_this_program");
    assert!(last.file.ends_with("symbols.rs"), "{last:?}");
}

#[test]
fn the_vdso_has_names() {
    let path = Path::new("[vdso]");
    let code = read_code_maps(std::process::id()).unwrap();
    let Some(vdso) = code.iter().find(|map| map.path == path) else {
        return;
    };
    let mut symbolizer = Symbolizer::new();
    let file = module(path);
    let named = (0..vdso.end - vdso.start).any(|pc| {
        symbolizer.resolve(&file, pc).iter().any(|f| f.function.contains("clock_gettime"))
    });
    assert!(named);
}

#[test]
fn a_file_that_is_truncated_while_it_is_open_causes_no_crash() {
    let (_dir, program) = build(&["-O2", "-g"]);
    let outer = extent(&program, "outer");
    let mut symbolizer = Symbolizer::new();
    assert!(!symbolizer.resolve(&module(&program), outer.start).is_empty());
    std::fs::File::options().write(true).open(&program).unwrap().set_len(100).unwrap();
    for pc in outer {
        symbolizer.resolve(&module(&program), pc);
    }
}

#[test]
fn damaged_files_cause_no_panic() {
    let (dir, program) = build(&["-O2", "-g"]);
    let whole = std::fs::read(&program).unwrap();
    let pcs: Vec<u64> = extent(&program, "outer").chain(extent(&program, "main")).collect();
    let mut state = 7u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let damaged = dir.path().join("damaged");
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random() % 30 {
            // Most of the file is debug information, so that is what is damaged most.
            let at = random() % bytes.len();
            bytes[at] = random() as u8;
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let mut symbolizer = Symbolizer::new();
        for pc in &pcs {
            symbolizer.resolve(&module(&damaged), *pc);
        }
    }
}

#[test]
fn a_stub_is_named_after_the_function_that_it_calls() {
    for flags in [["-O1", "-Wl,-z,lazy"], ["-O1", "-fcf-protection=full"], ["-O1", "-Wl,-z,now"]] {
        let (_dir, program) = build(&flags);
        let data = std::fs::read(&program).unwrap();
        let file = object::File::parse(&data[..]).unwrap();
        let mut names = Vec::new();
        let mut symbolizer = Symbolizer::new();
        for section in file.sections() {
            if !section.name().is_ok_and(|name| name.starts_with(".plt")) {
                continue;
            }
            for pc in section.address()..section.address() + section.size() {
                let frames = symbolizer.resolve(&module(&program), pc);
                names.extend(frames.iter().map(|frame| frame.function.clone()));
            }
        }
        assert!(names.iter().any(|name| name == "malloc@plt"), "{flags:?}: {names:?}");
        assert!(names.iter().all(|name| name.ends_with("@plt")), "{flags:?}: {names:?}");
    }
}

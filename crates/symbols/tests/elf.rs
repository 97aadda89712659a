//! Tests that programs which can't be recorded are recognized, and that damaged files cause no
//! panic.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tprof_symbols::elf::{Elf, ElfError, blind_reason, inspect};

fn build(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&file, source).unwrap();
    let status = Command::new("cc").arg("-o").arg(&program).arg(&file).args(flags).status();
    assert!(status.unwrap().success(), "{name}");
    program
}

const MAIN: &str = "int main(void) { return 0; }";

#[test]
fn an_ordinary_program_can_be_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "plain", MAIN, &["-Wl,--build-id=0xabcdef"]);
    let facts = inspect(&program).unwrap();
    assert!(facts.is_64 && facts.loadable && facts.interpreter.is_some());
    assert!(facts.needed.iter().any(|n| n.starts_with("libc.so")));
    assert_eq!(facts.build_id, "abcdef");
    assert!(!facts.exports("malloc") && !facts.setuid);
    assert_eq!(facts.segments.iter().filter(|s| s.executable).count(), 1);
    assert_eq!(blind_reason(&program), None);
}

#[test]
fn programs_that_cannot_be_recorded_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let fixed = build(at, "fixed", MAIN, &["-static"]);
    assert!(blind_reason(&fixed).unwrap().1.ends_with("is statically linked"));
    let pie = build(at, "pie", MAIN, &["-static-pie"]);
    assert!(blind_reason(&pie).unwrap().1.ends_with("is statically linked"));
    let asan = "void __asan_init(void) {} int main(void) { return 0; }";
    let asan = build(at, "asan", asan, &["-rdynamic"]);
    assert!(blind_reason(&asan).unwrap().1.contains("sanitizer build (__asan_init)"));
    let (what, why) = blind_reason(&build(
        at,
        "own",
        "#include <stddef.h>\nvoid *malloc(size_t n) { return NULL; } int main(void) { return 0; }",
        &["-rdynamic"],
    ))
    .unwrap();
    assert_eq!(what, "allocations");
    assert!(why.ends_with("has its own malloc"), "{why}");
}

#[test]
fn symbols_are_found_in_both_kinds_of_hash_tables() {
    let dir = tempfile::tempdir().unwrap();
    for style in ["gnu", "sysv"] {
        let source = "int first(void) { return 1; } int second(void) { return 2; } extern int other; \
                      int *third(void) { return &other; }";
        let style = format!("-Wl,--hash-style={style}");
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libx.so.1", &style];
        let library = Elf::open(&build(dir.path(), "libx.so", source, &flags)).unwrap();
        for name in ["first", "second", "third"] {
            assert!(library.exports(name), "{name} {style}");
        }
        for name in ["other", "fourth", ""] {
            assert!(!library.exports(name), "{name} {style}");
        }
        assert_eq!(library.facts().soname.as_deref(), Some("libx.so.1"));
    }
}

#[test]
fn a_32_bit_program_is_not_read_further() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("old");
    let mut header = vec![0u8; 52];
    header[..8].copy_from_slice(b"\x7fELF\x01\x01\x01\0");
    (header[16], header[18]) = (2, 3);
    std::fs::write(&program, header).unwrap();
    assert!(blind_reason(&program).unwrap().1.ends_with("is a 32-bit program"));
}

#[test]
fn a_setuid_program_of_this_user_can_be_recorded() {
    // Only the bits of a program of another user matter, and no test can create one.
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "own", MAIN, &[]);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    assert!(!inspect(&program).unwrap().setuid, "a setuid program of this user changes no user");
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = build(dir.path(), "fixed", MAIN, &["-static"]);
    let script = dir.path().join("script");
    std::fs::write(&script, format!("#! {} -x\n", fixed.display())).unwrap();
    let outer = dir.path().join("outer");
    std::fs::write(&outer, format!("#!{}", script.display())).unwrap();
    assert!(blind_reason(&outer).unwrap().1.contains("fixed is statically linked"));
    let endless = dir.path().join("endless");
    std::fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
    assert_eq!(blind_reason(&endless), None);
}

#[test]
fn the_loader_itself_can_be_recorded() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if loader.exists() {
        assert_eq!(blind_reason(loader), None);
    }
}

#[test]
fn a_file_that_is_not_elf_is_reported() {
    assert!(matches!(inspect(Path::new("/etc/passwd")), Err(ElfError::NotElf)));
    assert!(matches!(inspect(Path::new("/dev/null")), Err(ElfError::NotElf)));
    assert!(matches!(inspect(Path::new("/nowhere")), Err(ElfError::Io(_))));
    assert_eq!(blind_reason(Path::new("/nowhere")), None);
}

#[test]
fn damaged_files_cause_no_panic() {
    let whole = std::fs::read("/bin/true").unwrap();
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..5_000 {
        let mut bytes = whole.clone();
        for _ in 0..random() % 20 {
            let span = [64, 4096, bytes.len()][random() % 3];
            bytes[random() % span] = [random() as u8, 0xff, 0][random() % 3];
        }
        if random().is_multiple_of(4) {
            bytes.truncate(random() % bytes.len());
        }
        if let Ok(elf) = Elf::from_bytes(bytes.into()) {
            elf.facts();
        }
    }
}

//! Tests the module cache with the mappings of real processes, which share tables.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tprof_unwind::modules::{LoadedModule, ModuleCache, TableId, TableState, TableStore};
use tprof_unwind::unwind_table::compile;

/// A store that counts offsets and has space for `left` more tables.
struct Tables {
    next: u64,
    left: usize,
}

impl TableStore for Tables {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.next;
        self.next += bytes.len() as u64;
        Some(offset)
    }
}

fn tables() -> Tables {
    Tables { next: 64, left: 100 }
}

fn of<'a>(modules: &'a [LoadedModule], name: &str) -> &'a LoadedModule {
    modules.iter().find(|m| m.path.to_string_lossy().contains(name)).unwrap()
}

/// A running `cat` that waits for input. It is killed when this is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(program: &Path) -> Waiting {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // `cat` echoes its input as soon as it runs, so it has loaded its libraries then.
        let mut echo = [0; 1];
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut echo).unwrap();
        Waiting(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_address_minus_the_bias_is_an_elf_address() {
    let modules = ModuleCache::new().loaded(std::process::id()).unwrap();
    let address = libc::getpid as *const () as u64;
    let libc = modules.iter().find(|m| (m.start..m.end).contains(&address)).unwrap();
    let table = compile(&libc.path).unwrap();
    let row = table.row_at(address - libc.bias);
    // At the first instruction of a function, the return address is the only thing on the stack.
    assert_eq!((row.kind(), row.cfa_offset(), row.saves_fp()), (1, 8, false));
    assert!(!libc.build_id.is_empty());
}

#[test]
fn processes_that_map_the_same_file_share_its_table() {
    let (one, two) = (Waiting::start(Path::new("/bin/cat")), Waiting::start(Path::new("/bin/cat")));
    let (mut cache, mut store) = (ModuleCache::new(), tables());
    let first = cache.loaded(one.0.id()).unwrap();
    let libc = of(&first, "libc.so").file.unwrap();
    assert_eq!(*cache.state(libc), TableState::Wanted);
    assert!(cache.module_cost(libc) > 10_000);
    let job = cache.job(libc).unwrap();
    assert!(cache.job(libc).is_none(), "a job is returned only once");
    let compiled = std::thread::spawn(move || job.run()).join().unwrap();
    assert_eq!(*cache.publish(compiled, &mut store), TableState::At(TableId(64)));
    let second = cache.loaded(two.0.id()).unwrap();
    assert_eq!(of(&second, "libc.so").table, Some(TableId(64)));
    assert_eq!(of(&second, "libc.so").file, Some(libc));
}

#[test]
fn a_rebuilt_file_is_new_and_a_removed_one_is_still_found() {
    let dir = tempfile::tempdir().unwrap();
    let program: PathBuf = dir.path().join("my cat");
    std::fs::copy("/bin/cat", &program).unwrap();
    let mut cache = ModuleCache::new();
    let old = Waiting::start(&program);
    let before = of(&cache.loaded(old.0.id()).unwrap(), "my cat").file.unwrap();
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/cat", &program).unwrap();
    let new = Waiting::start(&program);
    let after = of(&cache.loaded(new.0.id()).unwrap(), "my cat").file.unwrap();
    assert_ne!(before, after);
    // The old process still runs the removed file, whose table is found by its inode.
    let module = of(&cache.loaded(old.0.id()).unwrap(), "my cat").clone();
    assert_eq!(module.path, program);
    assert_eq!(module.file, Some(before));
}

#[test]
fn if_the_store_is_full_the_table_is_absent_with_a_reason() {
    let mut cache = ModuleCache::new();
    let file = of(&cache.loaded(std::process::id()).unwrap(), "libc.so").file.unwrap();
    let job = cache.job(file).unwrap();
    cache.publish(job.run(), &mut Tables { next: 64, left: 0 });
    let TableState::Absent(why) = cache.state(file) else {
        panic!("{:?}", cache.state(file));
    };
    assert!(why.contains("no room"));
}

#[test]
fn an_ended_process_is_an_error() {
    assert!(ModuleCache::new().loaded(u32::MAX - 1).is_err());
}

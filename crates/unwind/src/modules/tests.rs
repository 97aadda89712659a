//! Tests that cached tables are equal to compiled ones, and that content which can't be trusted is
//! compiled again.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{FileKey, LoadedModule, ModuleCache, TableId, TableState, TableStore};
use crate::unwind_table::CachedRows;
use tprof_os::maps::parse_maps;
use tprof_symbols::disk_cache::{DiskCache, LibraryKey};
use tprof_symbols::elf::Elf;
use tprof_wire::unwind::table_bytes;

/// Number of parts of each file that the tests compile.
const PARTS: usize = 5;

/// A store in memory, in which tests look tables up by offset.
struct Store(Vec<u8>);

impl TableStore for Store {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.0.len();
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        Some(at as u64)
    }
}

impl Store {
    fn new() -> Store {
        Store(vec![0; 64])
    }

    fn table(&self, TableId(at): TableId) -> &[u8] {
        let table = &self.0[at as usize..];
        let rows = u32::from_ne_bytes(table[..4].try_into().unwrap());
        &table[..table_bytes(rows as usize)]
    }
}

/// The result of using a cache directory: the table of each file or part, and the number of tables
/// that came from the cache.
#[derive(PartialEq, Debug)]
struct Tables {
    all: Vec<Option<Vec<u8>>>,
    taken: usize,
}

/// Makes a library with so much frame information that it is compiled in parts.
fn large_library(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("large.s"), directory.join("large.so"));
    let function = "push %rbx\n.cfi_adjust_cfa_offset 8\npop %rbx\n.cfi_adjust_cfa_offset -8\nret";
    let text = format!(".rept 60000\n.cfi_startproc\n{function}\n.cfi_endproc\n.endr\n");
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-Wl,--build-id", "-o"]).args([&library, &source]);
    assert!(cc.status().unwrap().success());
    library
}

/// Returns a library as a module of this process. The process doesn't run the library, so the
/// mapping is made up.
fn module_of(cache: &mut ModuleCache, library: &Path) -> LoadedModule {
    let elf = Elf::open(library).unwrap();
    let code = elf.segments().iter().find(|segment| segment.is_code()).unwrap();
    let inode = library.metadata().unwrap().ino();
    let offset = code.offset / 4096 * 4096;
    let line = format!("400000-500000 r-xp {offset:08x} 00:01 {inode} {}\n", library.display());
    let mapping = parse_maps(line.as_bytes(), |_| true).into_iter().next().unwrap();
    let module = cache.identify(std::process::id(), mapping);
    assert!(module.file.is_some(), "{module:?}");
    module
}

/// Reads or compiles the tables of a library and of the files that this process runs code from, and
/// caches them.
fn tables_by(directory: &Path, library: &Path) -> Tables {
    let mut cache = ModuleCache::with_kept(Some(Arc::new(DiskCache::new(directory.to_owned()))));
    let mut modules = cache.loaded(std::process::id()).unwrap();
    modules.push(module_of(&mut cache, library));
    tables_of(&mut cache, &modules)
}

fn tables_of(cache: &mut ModuleCache, modules: &[LoadedModule]) -> Tables {
    let mut store = Store::new();
    cache.load_cached(&mut store);
    let mut files: Vec<FileKey> = Vec::new();
    for file in modules.iter().filter_map(|module| module.file) {
        match cache.parts(file) {
            [] => files.push(file),
            parts => files.extend(parts.iter().take(PARTS).map(|(_, part)| *part)),
        }
    }
    let taken = files.iter().filter(|file| matches!(cache.state(**file), TableState::At(_)));
    let taken = taken.count();
    for file in &files {
        if let Some(job) = cache.job(*file) {
            cache.publish(job.run(), &mut store);
        }
    }
    cache.take_fresh().write();
    let table = |file: &FileKey| match cache.state(*file) {
        TableState::At(table) => Some(store.table(*table).to_vec()),
        _ => None,
    };
    Tables { all: files.iter().map(table).collect(), taken }
}

fn kept_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_later_run_reads_the_same_tables_from_the_cache() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("cache/tables");
    let library = large_library(scratch.path());
    let first = tables_by(&directory, &library);
    assert_eq!(first.taken, 0);
    let second = tables_by(&directory, &library);
    assert!(second.taken > PARTS, "the library has parts: {}", second.taken);
    assert!(first.all == second.all, "tables differ");
    for file in kept_files(&directory) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn parts_from_several_runs_are_cached_in_one_file() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("tables");
    let library = large_library(scratch.path());
    let key = LibraryKey::of(&Elf::open(&library).unwrap()).unwrap();
    for part in 0..3 {
        let kept = Some(Arc::new(DiskCache::new(directory.clone())));
        let mut cache = ModuleCache::with_kept(kept);
        let module = module_of(&mut cache, &library);
        let mut store = Store::new();
        cache.load_cached(&mut store);
        let part = cache.parts(module.file.unwrap())[part].1;
        let compiled = cache.job(part).unwrap().run();
        cache.publish(compiled, &mut store);
        cache.take_fresh().write();
    }
    let kept = DiskCache::new(directory);
    assert_eq!(CachedRows::read(&kept, &key).tables().count(), 3);
}

#[test]
fn tables_are_compiled_again_if_their_cached_file_is_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("tables");
    let library = large_library(scratch.path());
    let first = tables_by(&directory, &library);
    for damage in 0..4 {
        for path in kept_files(&directory) {
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            match damage {
                0 => bytes.truncate(middle),
                1 => bytes[middle] ^= 1,
                2 => bytes[9] ^= 1,
                _ => bytes.clear(),
            }
            fs::write(&path, bytes).unwrap();
        }
        let again = tables_by(&directory, &library);
        assert_eq!(again.taken, 0, "damage {damage}");
        assert!(again.all == first.all, "damage {damage}: tables differ");
    }
    assert!(tables_by(&directory, &library).taken > PARTS);
}

/// Returns the tables of a copied library.
fn tables_of_copy(copy: &Path, kept: &Arc<DiskCache>) -> Tables {
    let mut cache = ModuleCache::with_kept(Some(Arc::clone(kept)));
    let module = module_of(&mut cache, copy);
    tables_of(&mut cache, &[module])
}

#[test]
fn a_changed_or_writable_library_is_compiled_again() {
    let scratch = tempfile::tempdir().unwrap();
    let kept = Arc::new(DiskCache::new(scratch.path().join("tables")));
    let copy = scratch.path().join("library.so");
    fs::copy("/proc/self/exe", &copy).unwrap();
    assert_eq!(tables_of_copy(&copy, &kept).taken, 0);
    assert!(tables_of_copy(&copy, &kept).taken > 0);

    let later = SystemTime::now() + Duration::from_secs(5);
    File::options().append(true).open(&copy).unwrap().set_modified(later).unwrap();
    assert_eq!(tables_of_copy(&copy, &kept).taken, 0);
    assert!(tables_of_copy(&copy, &kept).taken > 0);

    fs::set_permissions(&copy, Permissions::from_mode(0o757)).unwrap();
    assert_eq!(tables_of_copy(&copy, &kept).taken, 0);
    assert_eq!(tables_of_copy(&copy, &kept).taken, 0);
}

#[test]
fn a_directory_that_is_not_the_users_own_is_not_used() {
    let scratch = tempfile::tempdir().unwrap();
    let library = large_library(scratch.path());
    let usual = scratch.path().join("usual");
    let first = tables_by(&usual, &library);

    let link = scratch.path().join("link");
    symlink(&usual, &link).unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "text").unwrap();
    let open = scratch.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let dangling = scratch.path().join("dangling");
    symlink(scratch.path().join("absent"), &dangling).unwrap();
    for refused in [link, file.join("below"), file, open.clone(), dangling, "/proc/tables".into()] {
        let found = tables_by(&refused, &library);
        assert_eq!(found.taken, 0, "{}", refused.display());
        assert!(found.all == first.all, "{}: tables differ", refused.display());
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    assert!(!scratch.path().join("absent").exists());
}

#[test]
fn a_cached_file_that_is_a_link_or_open_to_others_is_not_read() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("tables");
    let library = large_library(scratch.path());
    tables_by(&directory, &library);
    for path in kept_files(&directory) {
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    }
    assert_eq!(tables_by(&directory, &library).taken, 0);
    for (number, path) in kept_files(&directory).iter().enumerate() {
        let moved = scratch.path().join(number.to_string());
        fs::rename(path, &moved).unwrap();
        symlink(&moved, path).unwrap();
    }
    assert_eq!(tables_by(&directory, &library).taken, 0);
    assert!(tables_by(&directory, &library).taken > PARTS, "links were replaced by files");
}

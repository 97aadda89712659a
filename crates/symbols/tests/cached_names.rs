//! Tests that names from cached symbols are equal to those from the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tprof_os::maps::read_maps;
use tprof_symbols::disk_cache::DiskCache;
use tprof_symbols::elf::Elf;
use tprof_symbols::{ModuleFile, ResolvedFrame, Symbolizer};

fn kept_files(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn names_from_cached_symbols_agree_with_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let kept = Arc::new(DiskCache::new(scratch.path().join("tables")));
    let maps = read_maps(std::process::id()).unwrap();
    let own = maps.iter().find(|map| map.path == std::env::current_exe().unwrap()).unwrap();
    let elf = Elf::open(&own.path).unwrap();
    let code = elf.segments().iter().find(|segment| segment.is_code()).unwrap();
    let module =
        ModuleFile { path: own.path.clone(), build_id: elf.build_id(), ..ModuleFile::default() };
    let names_of = |symbolizer: &mut Symbolizer| -> Vec<Arc<[ResolvedFrame]>> {
        let step = (code.memory_bytes / 500).max(1) as usize;
        let places = (code.address..code.address + code.memory_bytes).step_by(step);
        places.map(|pc| symbolizer.resolve(&module, pc)).collect()
    };
    let names =
        |kept: Option<&Arc<DiskCache>>| names_of(&mut Symbolizer::sparing(kept.cloned(), true));
    let without = names(None);
    assert!(without.iter().filter(|frames| !frames.is_empty()).count() > 100);
    assert!(names(Some(&kept)) == without, "the first run's names differ");
    assert!(kept_files(&scratch.path().join("tables")).len() == 1);
    assert!(names(Some(&kept)) == without, "names from kept symbols differ");
    let mut symbolizer = Symbolizer::sparing(Some(Arc::clone(&kept)), true);
    names_of(&mut symbolizer);
    symbolizer.write_cache();
    assert!(names(Some(&kept)) == without, "names of kept places differ");
    // Looks up another address, which isn't cached yet.
    let of_one = |pc| Symbolizer::sparing(Some(Arc::clone(&kept)), true).resolve(&module, pc);
    let other = of_one(code.address + 1);
    let mut symbolizer = Symbolizer::sparing(Some(Arc::clone(&kept)), true);
    symbolizer.resolve(&module, code.address + 1);
    symbolizer.write_cache();
    // All names are cached now, so the symbols aren't needed and must not be sorted again.
    let symbols = kept_files(&scratch.path().join("tables"));
    let symbols = symbols.iter().find(|path| path.extension().unwrap() == "symtab").unwrap();
    std::fs::remove_file(symbols).unwrap();
    assert!(names(Some(&kept)) == without && of_one(code.address + 1) == other);
    assert!(!symbols.exists(), "the symbols were sorted again");
}

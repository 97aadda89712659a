//! Keeps unwind tables that are ready before a process begins. If one process of a program asked
//! for its tables, the next process of that program gets them when it attaches.
//!
//! A process that takes its first stack asks for the tables of its code and waits for the answer.
//! For that, three threads wake one after the other, which takes milliseconds on a busy machine.
//! That is too long in a build, whose compilers last about ten milliseconds each. When a process
//! attaches whose program asked before, its mappings are read in any case; if all tables are ready,
//! they are published with its region. A program that never asked is not examined, because finding
//! the file behind each mapping costs a system call.

use crate::shared::{Region, publish};
use std::collections::HashMap;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tprof_os::maps::Mapping;
use tprof_symbols::disk_cache::DiskCache;
use tprof_unwind::modules::{LoadedModule, ModuleCache, TableState};

/// Largest number of programs that are remembered.
const MAX_PROGRAMS: usize = 4096;

/// The tables of programs that asked for them.
#[derive(Default)]
pub struct PrebuiltTables {
    /// Paths of programs that asked. The value tells whether the program computes unwind rows
    /// itself, without a table.
    asked: Mutex<HashMap<String, bool>>,
    cache: Mutex<ModuleCache>,
}

impl PrebuiltTables {
    /// Returns the tables that earlier runs have cached in `kept`.
    pub fn new(kept: Option<Arc<DiskCache>>) -> PrebuiltTables {
        PrebuiltTables {
            cache: Mutex::new(ModuleCache::with_kept(kept)),
            ..PrebuiltTables::default()
        }
    }

    /// Locks and returns the cache of files and tables, for the thread that answers processes.
    pub fn cache(&self) -> MutexGuard<'_, ModuleCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a program asked for its tables. `finds_rows` says that it computes unwind rows
    /// itself, without a table.
    pub fn request_tables(&self, program: &str, finds_rows: bool) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asked.get_mut(program) {
            *known = finds_rows;
        } else if asked.len() < MAX_PROGRAMS {
            asked.insert(program.to_owned(), finds_rows);
        }
    }

    /// Returns whether a program that has asked computes unwind rows itself; `None` if it has not
    /// asked.
    pub fn awaited(&self, program: &str) -> Option<bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(program).copied()
    }

    /// Publishes the tables of a process's mappings in its region, before the process receives the
    /// region, and returns the modules. Returns `None` if a table is missing or if another thread
    /// has locked the cache to compile one; then the process asks as usual. A process that computes
    /// unwind rows itself needs no table.
    pub fn publish(
        &self,
        pid: u32,
        maps: &[Mapping],
        region: &Region,
        finds_rows: bool,
    ) -> Option<Vec<LoadedModule>> {
        let mut cache = match self.cache.try_lock() {
            Ok(cache) => cache,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut modules = cache.identified(pid, maps.to_vec());
        let is_ready = |module: &LoadedModule| match module.file {
            Some(file) => {
                matches!(cache.state(file), TableState::At(_) | TableState::Absent(_))
                    || cache.is_deferred(file, finds_rows)
            }
            None => true,
        };
        if modules.is_empty() || !modules.iter().all(is_ready) {
            return None;
        }
        region.header().finds_rows.store(u32::from(finds_rows), Relaxed);
        publish(region, &mut modules, &mut cache);
        Some(modules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_os::maps::read_code_maps;
    use tprof_unwind::modules::{TableId, TableStore};
    use tprof_wire::region::module_table;

    /// A place for tables that stores nothing and only hands out addresses.
    struct Nowhere(u64);

    impl TableStore for Nowhere {
        fn append(&mut self, bytes: &[u8]) -> Option<u64> {
            self.0 += bytes.len() as u64;
            Some(self.0)
        }
    }

    fn compile_all(prebuilt: &PrebuiltTables, maps: &[Mapping]) {
        let mut cache = prebuilt.cache();
        let mut nowhere = Nowhere(8);
        for file in
            cache.identified(std::process::id(), maps.to_vec()).iter().filter_map(|m| m.file)
        {
            let parts: Vec<_> = cache.parts(file).iter().map(|(_, part)| *part).collect();
            for file in parts.into_iter().chain([file]) {
                if let Some(job) = cache.job(file) {
                    cache.publish(job.run(), &mut nowhere);
                }
            }
        }
    }

    #[test]
    fn a_process_finds_the_tables_that_an_earlier_one_asked_for() {
        let (pid, prebuilt) = (std::process::id(), PrebuiltTables::default());
        let maps = read_code_maps(pid).unwrap();
        compile_all(&prebuilt, &maps);
        let (region, _file) = Region::new().unwrap();
        let modules = prebuilt.publish(pid, &maps, &region, false).unwrap();
        let code = compile_all as *const () as u64;
        let module = modules.iter().find(|m| (m.start..m.end).contains(&code)).unwrap();
        let cache = prebuilt.cache();
        let (address, file) = (code - module.bias, module.file.unwrap());
        let part = cache.parts(file).iter().rfind(|(from, _)| *from <= address);
        let table = cache.state(part.map_or(file, |(_, part)| *part));
        let len = region.header().modules_len.load(Relaxed) as usize;
        assert!(len >= modules.len());
        let place = (0..len)
            .map(|at| region.module(at))
            .find(|place| (place.start.load(Relaxed)..place.end.load(Relaxed)).contains(&code));
        assert_eq!(*table, TableState::At(TableId(place.unwrap().table.load(Relaxed))));
    }

    #[test]
    fn nothing_is_published_while_a_table_is_missing_or_being_compiled() {
        let (pid, prebuilt) = (std::process::id(), PrebuiltTables::default());
        let maps = read_code_maps(pid).unwrap();
        let (region, _file) = Region::new().unwrap();
        assert!(prebuilt.publish(pid, &maps, &region, false).is_none());
        compile_all(&prebuilt, &maps);
        let at_work = prebuilt.cache();
        assert!(prebuilt.publish(pid, &maps, &region, false).is_none());
        drop(at_work);
        assert!(prebuilt.publish(pid, &[], &region, false).is_none());
        assert_eq!(region.header().modules_seq.load(Relaxed), 0);
        assert!(prebuilt.publish(pid, &maps, &region, false).is_some());
    }

    #[test]
    fn a_program_that_never_asked_for_tables_is_unknown() {
        let prebuilt = PrebuiltTables::default();
        assert_eq!(prebuilt.awaited("/usr/bin/cc1"), None);
        prebuilt.request_tables("/usr/bin/cc1", true);
        assert_eq!(prebuilt.awaited("/usr/bin/cc1"), Some(true));
        assert_eq!(prebuilt.awaited("/usr/bin/as"), None);
    }
    #[test]
    fn a_process_that_computes_rows_itself_needs_no_tables() {
        let (pid, prebuilt) = (std::process::id(), PrebuiltTables::default());
        let maps = read_code_maps(pid).unwrap();
        let (region, _file) = Region::new().unwrap();
        assert!(prebuilt.publish(pid, &maps, &region, true).is_some());
        assert!(region.finds_rows());
        let len = region.header().modules_len.load(Relaxed) as usize;
        let deferred = (0..len)
            .filter(|at| region.module(*at).table.load(Relaxed) == module_table::DEFERRED)
            .count();
        assert!(deferred > 2, "{deferred} of {len}");
    }
}

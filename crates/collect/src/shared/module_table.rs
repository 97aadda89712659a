//! Writes the table of a process's modules into its region, where the process finds the unwind
//! tables of its code.

use super::Region;
use std::sync::atomic::Ordering::*;
use tprof_unwind::modules::{FileKey, LoadedModule, ModuleCache, TableState};
use tprof_wire::region::{MAX_MODULES, module_table};

/// An entry of the table: a mapping, or the part of a mapping that has an unwind table of its own.
struct ModulePlace {
    start: u64,
    end: u64,
    /// Index of the module in the list of modules.
    module: usize,
    file: Option<FileKey>,
}

/// Returns the entries for modules, which are in order of address. A file that is compiled in parts
/// gets one entry per part, as long as entries are left.
fn places(modules: &[LoadedModule], cache: &ModuleCache) -> Vec<ModulePlace> {
    let mut places = Vec::with_capacity(modules.len());
    let mut spare = MAX_MODULES.saturating_sub(modules.len());
    for (module, m) in modules.iter().enumerate() {
        let whole = ModulePlace { start: m.start, end: m.end, module, file: m.file };
        let parts = m.file.map_or(&[][..], |file| cache.parts(file));
        if parts.is_empty() || parts.len() > spare {
            places.push(whole);
            continue;
        }
        let before = places.len();
        for (index, (from, file)) in parts.iter().enumerate() {
            let address = |at: u64| m.bias.wrapping_add(at).clamp(m.start, m.end);
            let start = if index == 0 { m.start } else { address(*from) };
            let end = parts.get(index + 1).map_or(m.end, |(next, _)| address(*next));
            if start < end {
                places.push(ModulePlace { start, end, module, file: Some(*file) });
            }
        }
        spare -= (places.len() - before).saturating_sub(1);
    }
    places.truncate(MAX_MODULES);
    places
}

/// Rewrites a target's module table. If the target has marked an entry as asked for, the file is
/// marked in `cache`, and the entry stays marked until its unwind table is compiled.
pub fn publish(region: &Region, modules: &mut [LoadedModule], cache: &mut ModuleCache) {
    modules.sort_by_key(|m| m.start);
    // Threads of the target spin during the rewrite, so slow work is done before.
    let header = region.header();
    let finds_rows = region.finds_rows();
    let places = places(modules, cache);
    let before = header.modules_seq.load(Relaxed) | 1;
    header.modules_seq.store(before, Release);
    // A thread may mark an entry after this point, and the mark will be overwritten. That thread
    // notices that the table was rewritten, and searches again.
    std::sync::atomic::fence(SeqCst);
    take_marks_of(region, &places, cache);
    for (index, new) in places.iter().enumerate() {
        let table = match new.file.map(|file| (file, cache.state(file))) {
            Some((file, TableState::At(table))) => {
                let module = &mut modules[new.module];
                module.table = Some(*table).filter(|_| module.file == Some(file)).or(module.table);
                table.0
            }
            Some((file, TableState::Wanted)) => match cache.is_deferred(file, finds_rows) {
                true => module_table::DEFERRED,
                // The target has asked for this table since the question for this answer was sent.
                false => module_table::ASKED,
            },
            Some((_, TableState::Compiling)) => module_table::COMING,
            Some((_, TableState::Absent(_))) | None => 0,
        };
        let place = region.module(index);
        place.start.store(new.start, Relaxed);
        place.end.store(new.end, Relaxed);
        place.bias.store(modules[new.module].bias, Relaxed);
        place.table.store(table, Relaxed);
    }
    header.modules_len.store(places.len() as u32, Relaxed);
    header.modules_seq.store(before.wrapping_add(1), Release);
}

/// Marks in `cache` the unwind tables that a target has asked for. `modules` is in order of
/// address.
pub fn take_marks(region: &Region, modules: &[LoadedModule], cache: &mut ModuleCache) {
    take_marks_of(region, &places(modules, cache), cache);
}

fn take_marks_of(region: &Region, places: &[ModulePlace], cache: &mut ModuleCache) {
    let len = (region.header().modules_len.load(Relaxed) as usize).min(MAX_MODULES);
    let marked: Vec<(u64, u64)> = (0..len)
        .map(|index| region.module(index))
        .filter(|place| place.table.load(Acquire) == module_table::ASKED)
        .map(|place| (place.start.load(Relaxed), place.end.load(Relaxed)))
        .collect();
    if marked.is_empty() {
        return;
    }
    let asked = places.iter().filter(|place| marked.contains(&(place.start, place.end)));
    asked.filter_map(|place| place.file).for_each(|file| cache.ask(file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_unwind::modules::{TableId, TableStore};

    /// A store that stores nothing and returns a constant offset.
    struct Nowhere;

    impl TableStore for Nowhere {
        fn append(&mut self, _: &[u8]) -> Option<u64> {
            Some(64)
        }
    }

    #[test]
    fn a_part_of_a_file_is_compiled_when_a_stack_asks_for_it() {
        let mut cache = ModuleCache::new();
        let mut modules = cache.loaded(std::process::id()).unwrap();
        let (region, _file) = Region::new().unwrap();
        publish(&region, &mut modules, &mut cache);
        let code = publish as *const () as u64;
        let len = region.header().modules_len.load(Relaxed) as usize;
        let places: Vec<_> = (0..len).map(|at| region.module(at)).collect();
        let mut starts = places.iter().map(|place| place.start.load(Relaxed));
        assert!(starts.clone().is_sorted() && starts.any(|start| start == modules[0].start));
        let holds = |at: &usize| {
            (places[*at].start.load(Relaxed)..places[*at].end.load(Relaxed)).contains(&code)
        };
        let own = (0..len).find(holds).unwrap();
        assert_eq!(places[own].table.load(Relaxed), module_table::DEFERRED);

        places[own].table.store(module_table::ASKED, Release);
        publish(&region, &mut modules, &mut cache);
        assert_eq!(places[own].table.load(Relaxed), module_table::ASKED);

        let module = modules.iter().find(|m| (m.start..m.end).contains(&code)).unwrap();
        let parts: Vec<_> = cache.parts(module.file.unwrap()).iter().map(|part| part.1).collect();
        let asked: Vec<_> = parts.iter().filter(|part| !cache.is_deferred(**part, false)).collect();
        let [part] = asked.as_slice() else { panic!("{} of {}", asked.len(), parts.len()) };
        let job = cache.job(**part).unwrap();
        assert_eq!(*cache.state(**part), TableState::Compiling);
        publish(&region, &mut modules, &mut cache);
        assert_eq!(places[own].table.load(Relaxed), module_table::COMING);
        cache.publish(job.run(), &mut Nowhere);
        assert_eq!(*cache.state(**part), TableState::At(TableId(64)));
        publish(&region, &mut modules, &mut cache);
        assert_eq!(places[own].table.load(Relaxed), 64);
    }
}

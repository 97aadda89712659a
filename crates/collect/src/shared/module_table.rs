//! The table in a region of what its process has mapped.

use super::Region;
use crate::modules::{LoadedModule, ModuleCache, TableState};
use std::sync::atomic::Ordering::*;
use tprof_wire::region::MAX_MODULES;

/// Rewrites a target's module table.
pub fn publish(region: &Region, modules: &mut [LoadedModule], cache: &ModuleCache) {
    modules.sort_by_key(|m| m.start);
    let header = region.header();
    let before = header.modules_seq.load(Relaxed) | 1;
    header.modules_seq.store(before, Release);
    std::sync::atomic::fence(SeqCst);
    let len = modules.len().min(MAX_MODULES);
    for (index, module) in modules.iter_mut().take(len).enumerate() {
        let table = match module.file.map(|file| cache.state(file)) {
            Some(TableState::At(table)) => {
                module.table = Some(*table);
                table.0
            }
            Some(TableState::Wanted | TableState::Compiling) => u64::MAX,
            Some(TableState::Absent(_)) | None => 0,
        };
        let place = region.module(index);
        place.start.store(module.start, Relaxed);
        place.end.store(module.end, Relaxed);
        place.bias.store(module.bias, Relaxed);
        place.table.store(table, Relaxed);
    }
    header.modules_len.store(len as u32, Relaxed);
    header.modules_seq.store(before.wrapping_add(1), Release);
}

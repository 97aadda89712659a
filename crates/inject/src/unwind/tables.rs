//! Finds rows in the tables that the collector publishes.

use crate::{state, sys};
use core::sync::atomic::Ordering::*;
use tprof_wire::region::{MAX_MODULES, MODULES_OFFSET, ModuleRange, module_table};
use tprof_wire::unwind::{Row, TableHeader};

/// A row that means "tables not there yet": never memoised.
pub const NOT_READY: u64 = 1 << 63;

/// What the tables have of a pc.
pub enum RowSearch {
    /// Its row, [`Row::NONE`] where its mapping's table has none.
    Row(Row),
    /// Its mapping's table is compiled once it is asked for, which it now is: by this search
    /// (true) or an earlier one.
    Asked(bool),
    /// No published mapping holds this pc.
    Unknown,
}

/// Finds `pc` in the published modules; `quiet`: without a system call.
pub fn search(pc: u64, quiet: bool) -> RowSearch {
    let Some(header) = state::header() else { return RowSearch::Unknown };
    let region = state::REGION.load(Relaxed);
    for _ in 0..1000 {
        let before = header.modules_seq.load(Acquire);
        if before & 1 != 0 {
            core::hint::spin_loop();
            continue;
        }
        let len = (header.modules_len.load(Relaxed) as usize).min(MAX_MODULES);
        // SAFETY: the module table lies in the region.
        let modules = unsafe {
            core::slice::from_raw_parts(region.add(MODULES_OFFSET).cast::<ModuleRange>(), len)
        };
        let after = modules.partition_point(|m| m.start.load(Relaxed) <= pc);
        let found = after
            .checked_sub(1)
            .and_then(|i| modules.get(i))
            .map(|m| (m, m.end.load(Relaxed), m.bias.load(Relaxed), m.table.load(Relaxed)));
        core::sync::atomic::fence(Acquire);
        if header.modules_seq.load(Relaxed) != before {
            continue;
        }
        return match found {
            Some((module, end, bias, table)) if pc < end => match table {
                module_table::COMING => RowSearch::Row(Row(NOT_READY)),
                // A quiet thread cannot ask.
                module_table::DEFERRED | module_table::ASKED if quiet => {
                    RowSearch::Row(Row(NOT_READY))
                }
                module_table::ASKED => RowSearch::Asked(false),
                module_table::DEFERRED => {
                    let (from, to) = (module_table::DEFERRED, module_table::ASKED);
                    let first = module.table.compare_exchange(from, to, AcqRel, Relaxed).is_ok();
                    // Where the collector rewrites the table meanwhile, it may have read this
                    // place before it was marked, and the place may be another module's.
                    core::sync::atomic::fence(SeqCst);
                    if header.modules_seq.load(Relaxed) != before {
                        continue;
                    }
                    RowSearch::Asked(first)
                }
                table => RowSearch::Row(table_row(table, pc.wrapping_sub(bias), quiet)),
            },
            _ => RowSearch::Unknown,
        };
    }
    RowSearch::Unknown
}

/// Opens the tables for reading up to `end`, if they are not yet; that takes a system
/// call, which a quiet thread does not make.
fn is_open(tables: *mut u8, end: usize, quiet: bool) -> bool {
    const STEP: usize = 1 << 20;
    let open = state::TABLES_OPEN.load(Acquire);
    if end <= open {
        return true;
    }
    let mapped = state::TABLES_BYTES.load(Relaxed);
    let wanted = end.next_multiple_of(STEP).min(mapped);
    if end > mapped || quiet {
        return false;
    }
    // SAFETY: the mapping of the tables, which are only read.
    if !unsafe { sys::protect(tables, wanted, sys::flags::PROT_READ) } {
        return false;
    }
    state::TABLES_OPEN.fetch_max(wanted, AcqRel);
    true
}

/// The row of a module's table for a module-relative pc. What is not open to a quiet
/// thread may yet be to another: it is not ready, rather than absent.
fn table_row(table: u64, pc: u64, quiet: bool) -> Row {
    let closed = if quiet { Row(NOT_READY) } else { Row::NONE };
    let tables = state::TABLES.load(Relaxed);
    let mapped = state::TABLES_BYTES.load(Relaxed);
    let Ok(pc) = u32::try_from(pc) else { return Row::NONE };
    if tables.is_null() || table == 0 || table as usize + size_of::<TableHeader>() > mapped {
        return Row::NONE;
    }
    if !is_open(tables, table as usize + size_of::<TableHeader>(), quiet) {
        return closed;
    }
    // SAFETY: tables are published whole before their offset is, never change,
    // and end inside the mapping's open part, which is checked again here.
    unsafe {
        let base = tables.add(table as usize);
        let head = base.cast::<TableHeader>().read();
        let len = head.len as usize;
        if table as usize + tprof_wire::unwind::table_bytes(len) > mapped {
            return Row::NONE;
        }
        if !is_open(tables, table as usize + tprof_wire::unwind::table_bytes(len), quiet) {
            return closed;
        }
        let pcs =
            core::slice::from_raw_parts(base.add(size_of::<TableHeader>()).cast::<u32>(), len);
        let rows = base.add(size_of::<TableHeader>() + (len * 4).next_multiple_of(8)).cast::<u64>();
        match pcs.partition_point(|p| *p <= pc) {
            0 => Row::NONE,
            after => Row(*rows.add(after - 1)),
        }
    }
}

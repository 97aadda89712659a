//! Finds unwind rows in the tables that the collector publishes.

use crate::{state, sys};
use tprof_wire::region::{MAX_MODULES, MODULES_OFFSET, ModuleRange, module_table};
use tprof_wire::sync::Ordering::*;
use tprof_wire::unwind::{Row, TableHeader};

/// The result of looking up a program counter in the tables.
pub enum RowSearch {
    /// The row; [`Row::NONE`] if the mapping's table has no row for the pc.
    Row(Row),
    /// The collector is making the mapping's table. Or the table exists, but a quiet thread can't
    /// make it readable.
    Coming,
    /// The collector makes the mapping's table only when a thread asks, and no thread has asked
    /// yet.
    Deferred,
    /// This lookup (true) or an earlier one (false) has asked for the mapping's table.
    Asked(bool),
    /// No published mapping contains this pc.
    Unknown,
    /// The collector was rewriting the module table during all attempts to read it.
    Rewritten,
}

/// Maximum number of attempts to read the module table while the collector rewrites it. Rewriting
/// takes some microseconds.
const MOST_TRIES: u32 = 2000;
const SPINS: u32 = 1000;

/// Looks up `pc` in the published modules. If `quiet`, this makes no system call. If `asks`, this
/// marks a deferred table as wanted.
pub fn search(pc: u64, quiet: bool, asks: bool) -> RowSearch {
    let Some(header) = state::header() else { return RowSearch::Unknown };
    let region = state::REGION.load(Relaxed);
    for tries in 0..MOST_TRIES {
        let before = header.modules_seq.load(Acquire);
        if before & 1 != 0 {
            match tries {
                SPINS.. if !quiet => sys::yield_now(),
                _ => tprof_wire::sync::spin_loop(),
            }
            continue;
        }
        let len = (header.modules_len.load(Relaxed) as usize).min(MAX_MODULES);
        // SAFETY: the region contains the module table, which has room for `len` entries.
        let modules = unsafe {
            core::slice::from_raw_parts(region.add(MODULES_OFFSET).cast::<ModuleRange>(), len)
        };
        let after = modules.partition_point(|m| m.start.load(Relaxed) <= pc);
        let found = after
            .checked_sub(1)
            .and_then(|i| modules.get(i))
            .map(|m| (m, m.end.load(Relaxed), m.bias.load(Relaxed), m.table.load(Relaxed)));
        tprof_wire::sync::fence(Acquire);
        if header.modules_seq.load(Relaxed) != before {
            continue;
        }
        return match found {
            Some((module, end, bias, table)) if pc < end => match table {
                module_table::COMING => RowSearch::Coming,
                module_table::ASKED => RowSearch::Asked(false),
                module_table::DEFERRED if !asks => RowSearch::Deferred,
                module_table::DEFERRED => {
                    let (from, to) = (module_table::DEFERRED, module_table::ASKED);
                    let first = module.table.compare_exchange(from, to, AcqRel, Relaxed).is_ok();
                    // The collector may be rewriting the module table. Then it may have read this
                    // entry before the mark, and the entry may already belong to another module.
                    tprof_wire::sync::fence(SeqCst);
                    if header.modules_seq.load(Relaxed) != before {
                        continue;
                    }
                    RowSearch::Asked(first)
                }
                table => match table_row(table, pc.wrapping_sub(bias), quiet) {
                    Some(row) => RowSearch::Row(row),
                    None => RowSearch::Coming,
                },
            },
            _ => RowSearch::Unknown,
        };
    }
    RowSearch::Rewritten
}

/// Makes the tables readable up to `end` if they aren't yet. Returns whether they are readable now.
/// Changing this takes a system call, which a quiet thread may not make.
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
    // SAFETY: the range is in the mapping of the tables, which this library only reads.
    if !unsafe { sys::protect(tables, wanted, sys::flags::PROT_READ) } {
        return false;
    }
    state::TABLES_OPEN.fetch_max(wanted, AcqRel);
    true
}

/// The row for a module-relative pc in a module's table. Returns `None` if the table isn't readable
/// and this thread is quiet, since another thread may still make it readable.
fn table_row(table: u64, pc: u64, quiet: bool) -> Option<Row> {
    let closed = (!quiet).then_some(Row::NONE);
    let tables = state::TABLES.load(Relaxed);
    let mapped = state::TABLES_BYTES.load(Relaxed);
    let Ok(pc) = u32::try_from(pc) else { return Some(Row::NONE) };
    if tables.is_null() || table == 0 || table as usize + size_of::<TableHeader>() > mapped {
        return Some(Row::NONE);
    }
    if !is_open(tables, table as usize + size_of::<TableHeader>(), quiet) {
        return closed;
    }
    // SAFETY: a table is complete before its offset is published, and never changes. `is_open` has
    // checked that the table is in the readable part of the mapping.
    unsafe {
        let base = tables.add(table as usize);
        let head = base.cast::<TableHeader>().read();
        let len = head.len as usize;
        if table as usize + tprof_wire::unwind::table_bytes(len) > mapped {
            return Some(Row::NONE);
        }
        if !is_open(tables, table as usize + tprof_wire::unwind::table_bytes(len), quiet) {
            return closed;
        }
        let pcs =
            core::slice::from_raw_parts(base.add(size_of::<TableHeader>()).cast::<u32>(), len);
        let rows = base.add(size_of::<TableHeader>() + (len * 4).next_multiple_of(8)).cast::<u64>();
        match pcs.partition_point(|p| *p <= pc) {
            0 => Some(Row::NONE),
            after => Some(Row(*rows.add(after - 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::Attached;

    /// A published module at 0x1000 to 0x2000 whose file begins at 0x800, and one at 0x5000.
    fn publish(process: &Attached, tables: [u64; 2]) {
        let region = state::REGION.load(Relaxed);
        // SAFETY: the module table lies in the region.
        let modules = unsafe { &*region.add(MODULES_OFFSET).cast::<[ModuleRange; 2]>() };
        for (module, (start, end, bias, table)) in
            modules.iter().zip([(0x1000, 0x2000, 0x800, tables[0]), (0x5000, 0x6000, 0, tables[1])])
        {
            module.start.store(start, Relaxed);
            module.end.store(end, Relaxed);
            module.bias.store(bias, Relaxed);
            module.table.store(table, Relaxed);
        }
        process.header().modules_len.store(2, Relaxed);
    }

    /// Maps tables with one at offset 64, which has rows from 0x900 and from 0xa00.
    fn tables() {
        let bytes = 1 << 20;
        let at = sys::map_anonymous(bytes).unwrap();
        let words = [2u64, 0x900 | 0xa00 << 32, 11 << 8 | 1, 22 << 8 | 1];
        for (place, word) in words.into_iter().enumerate() {
            // SAFETY: the mapping is this test's own.
            unsafe { at.add(64 + place * 8).cast::<u64>().write(word) };
        }
        state::TABLES.store(at, Relaxed);
        state::TABLES_BYTES.store(bytes, Relaxed);
        state::TABLES_OPEN.store(bytes, Relaxed);
    }

    fn row_at(pc: u64) -> Option<u64> {
        match search(pc, false, false) {
            RowSearch::Row(row) => Some(row.0),
            _ => None,
        }
    }

    #[test]
    fn a_row_holds_from_its_pc_up_to_the_next_in_the_module_it_is_of() {
        let process = Attached::new();
        tables();
        publish(&process, [64, module_table::COMING]);
        let rows = [0x1000, 0x10ff, 0x1100, 0x11ff, 0x1200, 0x1fff].map(row_at);
        let [none, one, other] = [0, 11 << 8 | 1, 22 << 8 | 1].map(Some);
        assert_eq!(rows, [none, none, one, one, other, other]);
    }

    #[test]
    fn a_pc_outside_of_all_modules_is_unknown() {
        let process = Attached::new();
        tables();
        publish(&process, [64, 64]);
        for pc in [0, 0xfff, 0x2000, 0x4fff, 0x6000, u64::MAX] {
            assert!(matches!(search(pc, false, true), RowSearch::Unknown), "{pc:x}");
        }
    }

    #[test]
    fn a_table_that_is_deferred_is_asked_for_once() {
        let process = Attached::new();
        publish(&process, [module_table::DEFERRED, module_table::DEFERRED]);
        assert!(matches!(search(0x1500, false, false), RowSearch::Deferred));
        assert!(matches!(search(0x1500, false, true), RowSearch::Asked(true)));
        assert!(matches!(search(0x1500, false, true), RowSearch::Asked(false)));
        assert!(matches!(search(0x5500, false, false), RowSearch::Deferred), "another module's");
    }

    #[test]
    fn a_table_that_is_rewritten_all_the_time_is_given_up() {
        let process = Attached::new();
        publish(&process, [module_table::COMING; 2]);
        process.header().modules_seq.store(1, Relaxed);
        assert!(matches!(search(0x1500, false, false), RowSearch::Rewritten));
        process.header().modules_seq.store(2, Relaxed);
        assert!(matches!(search(0x1500, false, false), RowSearch::Coming));
    }

    #[test]
    fn a_table_that_ends_outside_of_the_mapping_has_no_rows() {
        let process = Attached::new();
        tables();
        for table in [(1 << 20) - 4, 1 << 20, 1 << 40] {
            publish(&process, [table, 64]);
            assert_eq!(row_at(0x1100), Some(0), "{table:x}");
        }
        // A length that reaches beyond the mapping.
        let at = state::TABLES.load(Relaxed);
        // SAFETY: the mapping is this test's own.
        unsafe { at.add(64).cast::<u32>().write(1 << 20) };
        publish(&process, [64, 64]);
        assert_eq!(row_at(0x1100), Some(0));
    }

    #[test]
    fn a_quiet_thread_opens_no_tables_and_another_opens_as_many_as_it_needs() {
        let process = Attached::new();
        tables();
        publish(&process, [64, 64]);
        // SAFETY: the mapping is this test's own.
        assert!(unsafe {
            sys::protect(state::TABLES.load(Relaxed), 1 << 20, sys::flags::PROT_NONE)
        });
        state::TABLES_OPEN.store(0, Relaxed);
        assert!(matches!(search(0x1100, true, false), RowSearch::Coming));
        assert_eq!(row_at(0x1100), Some(11 << 8 | 1));
        assert!(matches!(search(0x1100, true, false), RowSearch::Row(_)));
    }
}

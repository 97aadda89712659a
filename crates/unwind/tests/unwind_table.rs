//! Compares compiled unwind rows with gimli's own look-up, and with glibc's unwinder on live
//! stacks. Also tests damaged files.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "walking a stack reads raw memory")]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gimli::{BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindSection, X86_64};
use object::{Object, ObjectSection};
use tprof_unwind::modules::{ModuleCache, TableState, TableStore};
use tprof_unwind::unwind_table::{UnwindTable, compile, compile_bytes, encode};
use tprof_wire::unwind::{Row, RowKind, table_bytes};

/// A random number generator with a fixed seed, so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn libc_path() -> PathBuf {
    let maps = tprof_os::maps::read_maps(std::process::id()).unwrap();
    maps.into_iter().map(|m| m.path).find(|p| p.to_string_lossy().contains("/libc.so")).unwrap()
}

/// Returns the row that gimli's row should become, by rules that were written independently of the
/// compiler; `None` if it can't be expressed.
fn expected(row: &gimli::UnwindTableRow<usize>, signal: bool) -> Option<Row> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Some(Row::END),
        Some(RegisterRule::Offset(-8)) if !signal => {}
        _ if signal => return Some(Row::SIGNAL),
        _ => return None,
    }
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(n)) => Some(n),
        _ => return None,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
            Row::new(RowKind::Sp, *offset, saved)
        }
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
            Row::new(RowKind::Fp, *offset, saved)
        }
        _ => None,
    }
}

fn agrees_with_gimli(path: &Path, samples: usize) {
    let table = compile(path).unwrap();
    assert!(table.pcs.is_sorted_by(|a, b| a < b));
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&data[..]).unwrap();
    let section = |name| file.section_by_name(name).unwrap();
    let (frame, header) = (section(".eh_frame"), section(".eh_frame_hdr"));
    let eh_frame = EhFrame::new(frame.data().unwrap(), LittleEndian);
    let bases =
        BaseAddresses::default().set_eh_frame(frame.address()).set_eh_frame_hdr(header.address());
    let parsed = gimli::EhFrameHdr::new(header.data().unwrap(), LittleEndian);
    let parsed = parsed.parse(&bases, 8).unwrap();
    let index = parsed.table().unwrap();
    let mut context = gimli::UnwindContext::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (first, last) = (u64::from(table.pcs[0]), u64::from(*table.pcs.last().unwrap()));
    let mut held = 0;
    for _ in 0..samples {
        let pc = first + random.next() % (last - first);
        let get = |section: &EhFrame<_>, bases: &_, offset| section.cie_from_offset(bases, offset);
        let reference = index.fde_for_address(&eh_frame, &bases, pc, get).ok().and_then(|fde| {
            let signal = fde.is_signal_trampoline();
            let row = fde.unwind_info_for_address(&eh_frame, &bases, &mut context, pc).ok()?;
            expected(row, signal)
        });
        held += usize::from(reference.is_some());
        let row = table.row_at(pc);
        // The compiler marks code at the entry point as the end of the stack if it has no frame
        // information.
        let entry = file.entry()..file.entry() + 96;
        if !(reference.is_none() && row == Row::END && entry.contains(&pc)) {
            assert_eq!(row, reference.unwrap_or(Row::NONE), "{} at {pc:#x}", path.display());
        }
    }
    assert!(held * 2 > samples, "{held} of {samples} pcs have a row");
}

#[test]
fn rows_agree_with_gimli() {
    agrees_with_gimli(&std::env::current_exe().unwrap(), 100_000);
    agrees_with_gimli(&libc_path(), 100_000);
}

#[test]
fn the_row_at_the_entry_point_ends_the_stack() {
    for path in [std::env::current_exe().unwrap(), PathBuf::from("/lib64/ld-linux-x86-64.so.2")] {
        let Ok(data) = std::fs::read(&path) else {
            continue;
        };
        let entry = object::File::parse(&data[..]).unwrap().entry();
        assert_eq!(compile(&path).unwrap().row_at(entry), Row::END, "{}", path.display());
    }
}

#[test]
fn a_table_is_encoded_in_the_wire_format() {
    let table =
        UnwindTable { pcs: vec![1, 2, 9], rows: vec![Row(8), Row(9), Row(10)], empty: None };
    let mut bytes = vec![7];
    encode(&table, &mut bytes);
    let bytes = &bytes[1..];
    assert_eq!(bytes.len(), table_bytes(3));
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_ne_bytes(b.try_into().unwrap())).collect();
    assert_eq!(words, [3, tprof_wire::WIRE_VERSION, 1, 2, 9, 0, 8, 0, 9, 0, 10, 0]);
}

#[test]
fn the_vdso_has_rows() {
    let mut cache = ModuleCache::new();
    let modules = cache.loaded(std::process::id()).unwrap();
    let Some(vdso) = modules.iter().find(|m| m.path == Path::new("[vdso]")) else {
        return;
    };
    let job = cache.job(vdso.file.unwrap()).unwrap();
    assert!(matches!(cache.publish(job.run(), &mut Tables::default()), TableState::At(_)));
}

/// A store in this process's memory, whose first table is at offset 8.
#[derive(Default)]
struct Tables(Vec<u8>);

impl TableStore for Tables {
    fn append(&mut self, bytes: &[u8]) -> Option<u64> {
        self.0.resize(self.0.len().max(8).next_multiple_of(8), 0);
        let offset = self.0.len() as u64;
        self.0.extend(bytes);
        Some(offset)
    }
}

/// The registers of a frame that rows can restore.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    pc: u64,
    sp: u64,
    fp: u64,
    /// Whether `pc` is where the code was interrupted, instead of a return address.
    exact: bool,
}

/// The modules of this process: start, end, bias and table.
struct Unwinder(Vec<(u64, u64, u64, UnwindTable)>);

impl Unwinder {
    fn of_this_process() -> Unwinder {
        let modules = ModuleCache::new().loaded(std::process::id()).unwrap();
        let table = |path: &Path| compile(path).unwrap_or_default();
        Unwinder(modules.iter().map(|m| (m.start, m.end, m.bias, table(&m.path))).collect())
    }

    fn row(&self, frame: Frame) -> Row {
        let pc = frame.pc - u64::from(!frame.exact);
        let module = self.0.iter().find(|m| pc >= m.0 && pc < m.1);
        module.map_or(Row::NONE, |m| m.3.row_at(pc.wrapping_sub(m.2)))
    }

    /// Returns the pcs up to the end of the stack. If the stack is cut, `Err` has the frame at
    /// which it is cut, and the pcs up to there.
    fn walk(&self, mut frame: Frame) -> Result<Vec<u64>, (Frame, Vec<u64>)> {
        // SAFETY: `walk` is called on this thread's own stack. If the rows under test are right,
        // they lead to slots of this thread's callers, which are alive during the walk. If they are
        // wrong, the test may crash.
        let word = |address: u64| unsafe { (address as *const u64).read() };
        let mut pcs = vec![frame.pc];
        loop {
            let row = self.row(frame);
            if row == Row::END {
                return Ok(pcs);
            } else if row == Row::SIGNAL {
                let register = |n: u64| word(frame.sp + 40 + 8 * n);
                frame = Frame { fp: register(10), sp: register(15), pc: register(16), exact: true };
            } else {
                let base = match row.kind() {
                    k if k == RowKind::Sp as u64 => frame.sp,
                    k if k == RowKind::Fp as u64 => frame.fp,
                    _ => return Err((frame, pcs)),
                };
                let cfa = base.wrapping_add_signed(row.cfa_offset());
                if row.saves_fp() {
                    frame.fp = word(cfa.wrapping_add_signed(row.fp_offset()));
                }
                frame = Frame { pc: word(cfa - 8), sp: cfa, fp: frame.fp, exact: false };
            }
            pcs.push(frame.pc);
        }
    }
}

/// Returns the pcs of this thread's callers twice: by rows, and by glibc's unwinder.
#[inline(never)]
fn both_walks(unwinder: &Unwinder) -> (Vec<u64>, Vec<u64>) {
    let mut addresses = [std::ptr::null_mut::<c_void>(); 256];
    // SAFETY: `addresses` has room for 256 addresses, which is the number that is passed.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), 256) };
    let mut frame = Frame { exact: true, ..Frame::default() };
    // SAFETY: the instructions only copy registers to the outputs.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            pc = out(reg) frame.pc, sp = out(reg) frame.sp, fp = out(reg) frame.fp,
        );
    }
    let walked = unwinder.walk(frame).unwrap_or_else(|cut| panic!("cut at {cut:x?}"));
    let seen = addresses[..count as usize].iter().map(|a| *a as u64);
    (walked[1..].to_vec(), seen.skip(1).collect())
}

/// Calls itself with frames of several sizes, and walks the stack in the innermost call.
#[inline(never)]
fn nested(unwinder: &Unwinder, depth: u32) -> (Vec<u64>, Vec<u64>) {
    let room = [depth as u8; 300];
    std::hint::black_box(&room);
    match depth {
        0 => both_walks(unwinder),
        n if n % 3 == 0 => std::hint::black_box(Box::new(|n| nested(unwinder, n)))(n - 1),
        n => std::hint::black_box(nested(unwinder, n - 1)),
    }
}

#[test]
fn walks_of_a_live_stack_agree_with_glibc() {
    let unwinder = Unwinder::of_this_process();
    let (walked, seen) = nested(&unwinder, 20);
    assert!(walked.len() > 20);
    assert_eq!(walked, seen);
    // The stack of another thread ends at `clone`, so its end is tested too.
    let thread = std::thread::spawn(move || nested(&unwinder, 3));
    let (walked, seen) = thread.join().unwrap();
    assert!(walked.len() > 3);
    assert_eq!(walked, seen);
}

#[test]
fn a_stack_is_walked_through_a_signal_handler() {
    static UNWINDER: Mutex<Option<Unwinder>> = Mutex::new(None);
    static WALKS: Mutex<Option<(Vec<u64>, Vec<u64>)>> = Mutex::new(None);
    extern "C" fn handler(_: libc::c_int) {
        let unwinder = UNWINDER.lock().unwrap();
        *WALKS.lock().unwrap() = unwinder.as_ref().map(|u| nested(u, 2));
    }
    let unwinder = Unwinder::of_this_process();
    let restorer = |row: &Row| *row == Row::SIGNAL;
    assert!(unwinder.0.iter().any(|m| m.3.rows.iter().any(restorer)), "no signal trampoline");
    *UNWINDER.lock().unwrap() = Some(unwinder);
    // SAFETY: this thread raises the signal itself, and holds none of the locks that the handler
    // takes.
    unsafe {
        libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t);
        libc::raise(libc::SIGUSR2);
    }
    let (walked, seen) = WALKS.lock().unwrap().take().unwrap();
    assert!(walked.len() > 5);
    assert_eq!(walked, seen);
}

#[test]
fn damaged_files_cause_no_panic() {
    let mut random = Random(42);
    let whole = std::fs::read("/bin/true").unwrap();
    for _ in 0..3_000 {
        let mut bytes = whole.clone();
        if random.next().is_multiple_of(4) {
            bytes.truncate(random.next() as usize % bytes.len());
        }
        for _ in 0..random.next() % 40 {
            // The headers are at the front of the file, so half of the damage is there.
            let span = if random.next().is_multiple_of(2) { 4096 } else { bytes.len() };
            let Some(at) = (random.next() as usize).checked_rem(span.min(bytes.len())) else {
                continue;
            };
            bytes[at] = random.next() as u8;
        }
        if let Ok(table) = compile_bytes(bytes.into()) {
            assert!(table.pcs.is_sorted_by(|a, b| a < b));
        }
    }
}

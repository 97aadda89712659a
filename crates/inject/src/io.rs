//! Records calls on files, pipes and sockets for their hooks: each call with its time and result, and
//! the name of each file once.
//!
//! - A file has a number from its first call on, see [`tprof_wire::io`]. The hooks keep the number
//!   of each open descriptor in a table, which the kernel zeroes in a forked child. Hooks of
//!   functions that make or close a descriptor without naming it only clear its entry. Its next call
//!   numbers it anew, and asks the kernel what it stands for. So a `vfork` child that closes
//!   descriptors in its parent's table does no harm, and it stores no numbers there.
//! - A call takes tens of nanoseconds to record, but a stack with Python's functions takes up to
//!   50 us while Python's lock is given up, as it is during such calls. So in each part of the time a
//!   thread takes one of a read, one of a write and one of another call; and one of each call that
//!   takes long. It takes none before the collector knows the process's code.
//! - A call in a coroutine or a signal handler takes little of its stack, which may be small: it
//!   takes no stack and names no file.
//! - Descriptors that libc itself, or a direct system call, opens and closes are not seen. The
//!   collector compares the bytes with the kernel's count for the process.

use crate::block::Thread;
use crate::seccomp::{CallClass, is_forbidden};
use crate::unwind::has_room;
use crate::{arch, fork_tables, gate, ring, stacks, state, sys, unwind};
use core::ffi::{CStr, c_int};
use tprof_wire::io::{Call, MAX_NAME_BYTES, NAMED_WORDS, NO_OFFSET, Named, Operation, naming};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicPtr, AtomicU32, Ordering::*};

/// A part of the time has this many bits of the clock, about 22 ms.
const PART: u32 = 26;
/// Every call that takes so many ticks, about 3 ms, has a stack.
const LONG: u64 = 1 << 23;
/// Bits of [`Thread::io_part`] for the kinds of calls of which the thread has taken a stack in this
/// part of the time.
const KINDS: u32 = 7;

/// The bit of an operation's kind.
const fn kind(operation: Operation) -> u32 {
    match operation {
        Operation::Read => 1,
        Operation::Write => 2,
        _ => 4,
    }
}
/// Room on the stack for what takes a stack of the call, with Python's functions.
const STACK_BYTES: usize = 8 << 10;
/// Room on the stack for what names a file.
const NAME_BYTES: usize = 4 << 10;
/// Number of descriptors that the table has entries for. Calls on higher ones have no file.
const DESCRIPTORS: usize = 1 << 16;
/// The table takes so many bytes of address space, of which only touched pages use memory.
const BYTES: usize = size_of::<Table>();

/// The numbers of the files that are open.
#[repr(C)]
struct Table {
    /// The last number that was given.
    last: AtomicU32,
    /// The number of each descriptor's file; 0 if it has none.
    files: [AtomicU32; DESCRIPTORS],
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

/// The table; `None` if it isn't mapped.
fn table() -> Option<&'static Table> {
    let table = TABLE.load(Acquire);
    // SAFETY: a table that is not null has `BYTES` bytes, stays mapped for the process's life, and
    // is zero at first, which is a valid value.
    (!table.is_null()).then(|| unsafe { &*table })
}

/// The table, which is mapped first if necessary; `None` if there is no memory, or if the thread
/// must make no system calls.
fn table_of(thread: &Thread) -> Option<&'static Table> {
    table().or_else(|| {
        if thread.is_quiet() {
            return None;
        }
        fork_tables::map(&TABLE, BYTES);
        table()
    })
}

impl Table {
    fn entry(&self, descriptor: c_int) -> Option<&AtomicU32> {
        self.files.get(usize::try_from(descriptor).ok()?)
    }
}

/// A call that has begun and will be recorded.
#[derive(Clone, Copy)]
pub struct Begun {
    thread: &'static Thread,
    start: u64,
}

/// Called just before the real function. Returns `None` if nothing is recorded of the call.
#[inline(always)]
pub fn begin() -> Option<Begun> {
    if state::IO.load(Relaxed) == 0 {
        return None;
    }
    let thread = gate::recording_if_own()?;
    if !thread.is_on() {
        return None;
    }
    Some(Begun { thread, start: thread.clock() })
}

impl Begun {
    /// Records that the call returned. `sp` and `fp` are those of the hook's entry.
    #[inline(always)]
    pub fn ended(
        &self,
        operation: Operation,
        descriptor: c_int,
        result: i64,
        offset: u64,
        sp: usize,
        fp: usize,
    ) {
        let file = match table().and_then(|table| table.entry(descriptor)) {
            Some(entry) if entry.load(Relaxed) != 0 => entry.load(Relaxed),
            // The descriptor of a call that failed may not be open at all.
            _ if result < 0 => 0,
            _ => self.number_by_link(descriptor),
        };
        self.record(operation, file, result, offset, sp, fp);
    }

    #[inline(always)]
    fn record(
        &self,
        operation: Operation,
        file: u32,
        result: i64,
        offset: u64,
        sp: usize,
        fp: usize,
    ) {
        let thread = self.thread;
        let clock = thread.clock();
        let part = ((clock >> PART) as u32) << KINDS.count_ones();
        let before = thread.io_part.get();
        let taken = if before & !KINDS == part { before & KINDS } else { 0 };
        let ticks = clock.wrapping_sub(self.start);
        let is_long = ticks >= LONG;
        let is_due = taken & kind(operation) == 0 || is_long;
        // A job must not wait for its first calls' stacks, which on a busy machine may take long.
        let stack = if !is_due || !unwind::is_code_known(thread) || !has_room(thread, STACK_BYTES) {
            0
        } else {
            thread.io_part.set(part | taken | kind(operation));
            let stack = stacks::with_python(thread, sp, fp);
            arch::add_local(&thread.slot().stack_ticks, thread.clock().wrapping_sub(clock));
            stack
        };
        let call = Call { file, stack, result, ticks, offset };
        let argument = operation as u32;
        match call.pack_short() {
            Some(words) => ring::quick(thread, ExtKind::FileCall, argument, clock, &words),
            None => ring::quick(thread, ExtKind::FileCall, argument, clock, &call.pack()),
        };
    }

    /// Records that the call opened `path`, relative to the directory of this descriptor. `result`
    /// is the new descriptor, or negative.
    ///
    /// # Safety
    /// If the call succeeded, `path` is a string that ends with NUL, as the real function demands.
    pub unsafe fn opened(
        &self,
        directory: c_int,
        path: *const u8,
        result: c_int,
        sp: usize,
        fp: usize,
    ) {
        let file = match result {
            0.. if !has_room(self.thread, NAME_BYTES) => {
                renewed(result);
                0
            }
            0.. => {
                // SAFETY: the call succeeded, so the path is what the real function demands.
                let path = unsafe { CStr::from_ptr(path.cast()) }.to_bytes();
                self.name(directory, path, result)
            }
            _ => 0,
        };
        // The descriptor isn't a number of bytes.
        self.record(Operation::Open, file, i64::from(result.min(0)), NO_OFFSET, sp, fp);
    }

    fn name(&self, directory: c_int, path: &[u8], descriptor: c_int) -> u32 {
        let kept = path.get(path.len().saturating_sub(MAX_NAME_BYTES)..).unwrap_or(path);
        let has_directory = directory >= 0 && path.first() != Some(&b'/');
        let known = table().and_then(|table| table.entry(directory));
        let directory = match known.map_or(0, |entry| entry.load(Relaxed)) {
            0 if has_directory => self.number_by_link(directory),
            known if has_directory => known,
            _ => 0,
        };
        let is_cut = kept.len() < path.len() || has_directory && directory == 0;
        let how = if is_cut { naming::END_OF_PATH } else { naming::PATH };
        number(self.thread, descriptor, how, directory, kept)
    }

    /// Records that the call accepted a connection. `result` is the new descriptor, or negative.
    pub fn accepted(&self, result: c_int, sp: usize, fp: usize) {
        let file = if result < 0 { 0 } else { self.number_by_link(result) };
        self.record(Operation::Accept, file, i64::from(result.min(0)), NO_OFFSET, sp, fp);
    }

    /// Records that the call connected a socket to the peer of this `struct sockaddr`. If it didn't
    /// yet (`EINPROGRESS`), the next call on the socket names it.
    ///
    /// # Safety
    /// If the call succeeded, `address` has `bytes` bytes, as `connect` demands.
    pub unsafe fn connected(
        &self,
        descriptor: c_int,
        address: *const u8,
        bytes: usize,
        result: c_int,
        sp: usize,
        fp: usize,
    ) {
        const MOST: usize = 128; // of `struct sockaddr_storage`
        let is_named = result == 0 && (1..=MOST).contains(&bytes);
        let file = if is_named && has_room(self.thread, NAME_BYTES) {
            // SAFETY: the kernel has read so many bytes there.
            let address = unsafe { core::slice::from_raw_parts(address, bytes) };
            number(self.thread, descriptor, naming::PEER, 0, address)
        } else {
            renewed(descriptor);
            0
        };
        self.record(Operation::Connect, file, i64::from(result), NO_OFFSET, sp, fp);
    }

    /// Gives a file that no hook saw opened a number. On a small stack it has none yet: its next call
    /// elsewhere gives it one.
    fn number_by_link(&self, descriptor: c_int) -> u32 {
        match has_room(self.thread, NAME_BYTES) {
            true => number_by_link(self.thread, descriptor),
            false => {
                renewed(descriptor);
                0
            }
        }
    }

    /// The same call, beginning now. A call that counts for two files takes its time only once.
    pub fn at_once(&self) -> Begun {
        Begun { start: self.thread.clock(), ..*self }
    }

    /// Records that the call wrote so many bytes to the file of this number.
    pub fn wrote(&self, file: u32, bytes: i64, sp: usize, fp: usize) {
        self.record(Operation::Write, file, bytes, NO_OFFSET, sp, fp);
    }

    /// Records that a descriptor was closed, whose file had the number that [`forgotten`] returned.
    #[inline(always)]
    pub fn closed(&self, file: u32, result: c_int, sp: usize, fp: usize) {
        if file != 0 {
            self.record(Operation::Close, file, i64::from(result), NO_OFFSET, sp, fp);
        }
    }
}

/// Forgets the file of a descriptor that is about to be closed, and returns its number; 0 if it has
/// none. Called before the real function, since another thread may get the same descriptor before
/// that returns.
#[inline(always)]
pub fn forgotten(descriptor: c_int) -> u32 {
    let Some(entry) = table().and_then(|table| table.entry(descriptor)) else { return 0 };
    match entry.load(Relaxed) {
        0 => 0,
        _ => entry.swap(0, Relaxed),
    }
}

/// Called when a descriptor stands for something new, or for nothing.
#[inline(always)]
pub fn renewed(descriptor: c_int) {
    if let Some(entry) = table().and_then(|table| table.entry(descriptor)) {
        entry.store(0, Relaxed);
    }
}

impl Begun {
    /// Returns the number of a descriptor's file, which gets one if it has none, and forgets the file
    /// as [`forgotten`] does.
    pub fn forgotten_or_named(&self, descriptor: c_int) -> u32 {
        match forgotten(descriptor) {
            0 => {
                let number = self.number_by_link(descriptor);
                forgotten(descriptor);
                number
            }
            number => number,
        }
    }
}

/// Called when all descriptors in this range were closed.
pub fn range_closed(first: u32, last: u32) {
    let Some(table) = table() else { return };
    let last = (last as usize).min(DESCRIPTORS - 1);
    for entry in table.files.get(first as usize..=last).into_iter().flatten() {
        // A write to a page that was never touched would allocate it.
        if entry.load(Relaxed) != 0 {
            entry.store(0, Relaxed);
        }
    }
}

/// Gives a file that no hook saw opened a number, with what the kernel says it is.
#[cold]
#[inline(never)]
fn number_by_link(thread: &Thread, descriptor: c_int) -> u32 {
    const DIRECTORY: &[u8] = b"/proc/self/fd/";
    let mut path = [0u8; 32];
    let mut link = [0u8; MAX_NAME_BYTES];
    if descriptor < 0 {
        return 0;
    }
    if thread.is_quiet() || is_forbidden(CallClass::Processes) {
        return number(thread, descriptor, naming::UNKNOWN, 0, &[]);
    }
    let mut digits = [0u8; 10];
    let mut rest = descriptor as u32;
    let mut count = 0;
    for digit in &mut digits {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.iter().take(count).rev();
    for (to, from) in path.iter_mut().zip(DIRECTORY.iter().chain(digits)) {
        *to = *from;
    }
    let target = CStr::from_bytes_until_nul(&path).ok();
    match target.and_then(|path| sys::link_target(path, &mut link)) {
        Some(target) => number(thread, descriptor, naming::LINK, 0, target),
        None => number(thread, descriptor, naming::UNKNOWN, 0, &[]),
    }
}

/// Gives a descriptor's file a number, and records its name. Returns 0 if there is no table.
#[cold]
#[inline(never)]
fn number(thread: &Thread, descriptor: c_int, how: u32, directory: u32, name: &[u8]) -> u32 {
    let Some(table) = table_of(thread) else { return 0 };
    let Some(entry) = table.entry(descriptor) else { return 0 };
    let number = table.last.fetch_add(1, Relaxed).wrapping_add(1);
    let mut payload = [0u64; NAMED_WORDS + MAX_NAME_BYTES / 8];
    let named =
        Named { descriptor: descriptor as u32, naming: how, bytes: name.len() as u32, directory };
    let head = named.pack();
    for (word, value) in payload.iter_mut().zip(head) {
        *word = value;
    }
    for (word, bytes) in payload.iter_mut().skip(NAMED_WORDS).zip(name.chunks(8)) {
        let mut whole = [0u8; 8];
        if let Some(to) = whole.get_mut(..bytes.len()) {
            to.copy_from_slice(bytes);
        }
        *word = u64::from_ne_bytes(whole);
    }
    let words = NAMED_WORDS + name.len().div_ceil(8);
    let payload = payload.get(..words).unwrap_or(&payload);
    ring::quick_text(thread, ExtKind::FileNamed, number, thread.clock(), payload);
    // The number is that of the child's descriptor, not of its parent's, which has this table too.
    if !is_vfork_child() {
        entry.store(number, Release);
    }
    number
}

/// Whether this is a vfork child, which shares its parent's memory. It is not recognised under a
/// filter that forbids `getpid`.
fn is_vfork_child() -> bool {
    !is_forbidden(CallClass::Threads) && sys::pid() != state::PID.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Attached, Written};
    use tprof_wire::io::NAMED_WORDS;
    use tprof_wire::region::off;

    /// A process that records calls on files, without numbers yet.
    fn recording() -> (Attached, &'static Thread) {
        let process = Attached::new();
        state::IO.store(1, SeqCst);
        let thread = process.thread();
        if let Some(table) = table_of(thread) {
            table.last.store(0, SeqCst);
            range_closed(0, u32::MAX);
        }
        (process, thread)
    }

    fn calls(process: &Attached, thread: &Thread) -> Vec<(u32, Call)> {
        let all = process.of_kind(thread, ExtKind::FileCall);
        all.iter().map(|one| (one.argument(), Call::unpack(one.payload()).unwrap())).collect()
    }

    fn name(record: &Written) -> (u32, Named, String) {
        let (named, words) = Named::unpack(record.payload()).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = String::from_utf8(bytes[..named.bytes as usize].to_vec()).unwrap();
        (record.argument(), named, text)
    }

    fn open(path: &CStr, descriptor: c_int) {
        // SAFETY: the path is a string that ends with NUL.
        unsafe { begin().unwrap().opened(-100, path.as_ptr().cast(), descriptor, 0, 0) };
    }

    #[test]
    fn a_file_is_named_once_and_its_calls_refer_to_it() {
        let (process, thread) = recording();
        open(c"/data/a.bin", 9);
        begin().unwrap().ended(Operation::Read, 9, 100, NO_OFFSET, 0, 0);
        begin().unwrap().ended(Operation::Read, 9, -1, 50, 0, 0);
        let names = process.of_kind(thread, ExtKind::FileNamed);
        assert_eq!(names.len(), 1);
        let (number, named, text) = name(&names[0]);
        assert_eq!(
            (number, named.descriptor, named.naming, &*text),
            (1, 9, naming::PATH, "/data/a.bin")
        );
        let of = |(operation, call): (u32, Call)| (operation, call.file, call.result, call.offset);
        let calls: Vec<_> = calls(&process, thread).into_iter().map(of).collect();
        let read = Operation::Read as u32;
        assert_eq!(calls, [(0, 1, 0, NO_OFFSET), (read, 1, 100, NO_OFFSET), (read, 1, -1, 50)]);
    }

    #[test]
    fn a_descriptor_that_stands_for_something_new_gets_a_new_number() {
        let (process, thread) = recording();
        const NONE: c_int = 60_000;
        open(c"/data/a.bin", NONE);
        assert_eq!((forgotten(NONE), forgotten(NONE)), (1, 0));
        open(c"/data/b.bin", NONE);
        renewed(NONE);
        begin().unwrap().ended(Operation::Write, NONE, 4, NO_OFFSET, 0, 0);
        let names: Vec<_> = process.of_kind(thread, ExtKind::FileNamed).iter().map(name).collect();
        let of: Vec<_> = names.iter().map(|(number, of, _)| (*number, of.naming)).collect();
        // The test has no such descriptor, so the kernel knows no name.
        assert_eq!(of, [(1, naming::PATH), (2, naming::PATH), (3, naming::UNKNOWN)]);
        assert_eq!(calls(&process, thread).last().unwrap().1.file, 3);
    }

    #[test]
    fn a_descriptor_that_no_hook_saw_opened_is_named_by_the_kernel() {
        use std::os::fd::AsRawFd;
        let (process, thread) = recording();
        let (pipe, _writer) = std::io::pipe().unwrap();
        begin().unwrap().ended(Operation::Read, pipe.as_raw_fd(), 5, NO_OFFSET, 0, 0);
        let file = std::fs::File::open("/dev/null").unwrap();
        begin().unwrap().ended(Operation::Read, file.as_raw_fd(), 0, NO_OFFSET, 0, 0);
        let names: Vec<_> = process.of_kind(thread, ExtKind::FileNamed).iter().map(name).collect();
        assert!(names.iter().all(|(_, named, _)| named.naming == naming::LINK), "{names:?}");
        assert!(names[0].2.starts_with("pipe:["), "{names:?}");
        assert_eq!(names[1].2, "/dev/null");
    }

    #[test]
    fn calls_that_failed_name_no_file() {
        let (process, thread) = recording();
        open(c"/missing", -1);
        begin().unwrap().ended(Operation::Read, 9, -1, NO_OFFSET, 0, 0);
        begin().unwrap().ended(Operation::Read, -1, -1, NO_OFFSET, 0, 0);
        begin().unwrap().ended(Operation::Read, 1 << 20, 5, NO_OFFSET, 0, 0);
        assert!(process.of_kind(thread, ExtKind::FileNamed).is_empty());
        assert!(calls(&process, thread).iter().all(|(_, call)| call.file == 0));
        assert_eq!(calls(&process, thread)[0].1.result, -1);
    }

    #[test]
    fn a_long_path_keeps_its_end_and_a_relative_one_its_directory() {
        let (process, thread) = recording();
        open(c"/data", 4);
        // SAFETY: the path is a string that ends with NUL.
        unsafe { begin().unwrap().opened(4, c"x/y".as_ptr().cast(), 5, 0, 0) };
        let long = std::ffi::CString::new("a/".repeat(MAX_NAME_BYTES)).unwrap();
        open(&long, 6);
        let names: Vec<_> = process.of_kind(thread, ExtKind::FileNamed).iter().map(name).collect();
        assert_eq!((names[1].1.directory, &*names[1].2), (1, "x/y"));
        assert_eq!((names[2].1.naming, names[2].2.len()), (naming::END_OF_PATH, MAX_NAME_BYTES));
        let words = process.of_kind(thread, ExtKind::FileNamed)[2].payload().len();
        assert_eq!(words, NAMED_WORDS + MAX_NAME_BYTES / 8);
    }

    #[test]
    fn nothing_is_recorded_while_recording_is_off_or_without_the_option() {
        let (process, _) = recording();
        process.header().off.store(off::PROGRAM, SeqCst);
        assert!(begin().is_none());
        process.header().off.store(0, SeqCst);
        state::IO.store(0, SeqCst);
        assert!(begin().is_none());
    }
}

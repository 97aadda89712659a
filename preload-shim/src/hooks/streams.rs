//! Hooks of the functions of `stdio.h` that open, read, write and close a stream.
//!
//! libc makes the system calls for a stream itself, so the hooks of `read` and `write` don't see
//! them. A hook compares the stream's buffer before and after a call, and records the bytes that
//! came from the kernel or went to it. A call that only uses the buffer isn't recorded and costs two
//! loads. Bytes that other functions transfer (`printf`, `fgets`, …) aren't seen, like those of
//! direct system calls.

use crate::{real, table};
use core::ffi::c_int;
use tprof_inject::io;
use tprof_wire::io::{NO_OFFSET, Operation};

/// The first members of glibc's `FILE`, whose places are part of its interface: programs were
/// compiled with macros that use them.
#[repr(C)]
pub struct Stream {
    flags: c_int,
    read_at: usize,
    read_end: usize,
    read_base: usize,
    write_base: usize,
    write_at: usize,
    write_end: usize,
    _others: [usize; 11],
    /// Where the next system call reads or writes; negative if that isn't known.
    offset: i64,
}

impl Stream {
    /// The stream, if the program's libc is glibc.
    ///
    /// # Safety
    /// `stream` is an open stream or null.
    unsafe fn of<'a>(stream: *const Stream) -> Option<&'a Stream> {
        if table::address(&table::GNU_GET_LIBC_VERSION) == 0 {
            return None;
        }
        // SAFETY: the caller's premise, and glibc's `FILE` has these members.
        unsafe { stream.as_ref() }
    }

    /// Bytes that were read from the kernel and not by the program.
    fn ahead(&self) -> usize {
        self.read_end.saturating_sub(self.read_at)
    }

    /// Bytes that the program wrote and the kernel hasn't got.
    fn waiting(&self) -> usize {
        self.write_at.saturating_sub(self.write_base)
    }

    /// Bytes that the program can write before the buffer is full.
    fn room(&self) -> usize {
        self.write_end.saturating_sub(self.write_at)
    }
}

/// Returns the descriptor of a stream; -1 if it has none, as streams in memory. Then libc sets `errno`,
/// which this keeps: the program may read it after its own call.
fn descriptor(stream: *const Stream) -> c_int {
    let place = real!(ERRNO_LOCATION() as fn() -> *mut c_int, else core::ptr::null_mut());
    // SAFETY: libc returned the address of this thread's `errno`, or it is null.
    let kept = unsafe { place.as_ref() }.copied();
    let descriptor = real!(FILENO(stream) as fn(*const Stream) -> c_int, else -1);
    if let Some(kept) = kept {
        // SAFETY: as before, and it isn't null.
        unsafe { place.write(kept) };
    }
    descriptor
}

/// Defines hooks of functions that open a stream by its path.
macro_rules! opens {
    ($($name:ident: $real:ident, $impl:ident;)*) => {$(
        file_hook!($name(path: *const u8, mode: *const u8) -> *const Stream, $real, $impl, "rdx", "rcx");
        unsafe extern "C" fn $impl(path: *const u8, mode: *const u8, sp: usize, fp: usize) -> *const Stream {
            let begun = io::begin();
            let stream = real!($real(path, mode)
                as fn(*const u8, *const u8) -> *const Stream, else core::ptr::null());
            let fd = if stream.is_null() { -1 } else { descriptor(stream) };
            match begun {
                // SAFETY: if the call succeeded, libc has read the path.
                Some(begun) => unsafe { begun.opened(-1, path, fd, sp, fp) },
                None => io::renewed(fd),
            }
            stream
        }
    )*};
}

opens! {
    fopen: FOPEN, fopen_impl;
    fopen64: FOPEN64, fopen64_impl;
}

/// Defines hooks of functions that read from a stream.
macro_rules! reads {
    ($($name:ident: $real:ident, $impl:ident;)*) => {$(
        file_hook!($name(to: usize, size: usize, count: usize, stream: *const Stream) -> usize, $real, $impl, "r8", "r9");
        unsafe extern "C" fn $impl(
            to: usize, size: usize, count: usize, stream: *const Stream, sp: usize, fp: usize,
        ) -> usize {
            // SAFETY: the program passes an open stream.
            let (before, begun) = unsafe { begins_read(stream, size.wrapping_mul(count)) };
            let got = real!($real(to, size, count, stream)
                as fn(usize, usize, usize, *const Stream) -> usize, else 0);
            if let Some(begun) = begun {
                // SAFETY: the stream is still open.
                unsafe { has_read(begun, stream, before, got.wrapping_mul(size), sp, fp) };
            }
            got
        }
    )*};
}

reads! {
    fread: FREAD, fread_impl;
    fread_unlocked: FREAD_UNLOCKED, fread_unlocked_impl;
}

/// Returns how many bytes the stream is ahead; and the call, if it needs more bytes than that.
///
/// # Safety
/// `stream` is an open stream.
#[inline(always)]
unsafe fn begins_read(stream: *const Stream, wanted: usize) -> (usize, Option<io::Begun>) {
    // SAFETY: the caller's premise.
    match unsafe { Stream::of(stream) }.map(Stream::ahead) {
        Some(ahead) if ahead < wanted => (ahead, io::begin()),
        _ => (0, None),
    }
}

/// # Safety
/// `stream` is an open stream.
unsafe fn has_read(
    begun: io::Begun,
    stream: *const Stream,
    before: usize,
    got: usize,
    sp: usize,
    fp: usize,
) {
    // SAFETY: the caller's premise.
    let after = unsafe { Stream::of(stream) }.map_or(0, Stream::ahead);
    let bytes = (got + after).saturating_sub(before);
    let descriptor = descriptor(stream);
    if descriptor >= 0 {
        begun.ended(Operation::Read, descriptor, bytes as i64, NO_OFFSET, sp, fp);
    }
}

/// Defines hooks of functions that write to a stream.
macro_rules! writes {
    ($($name:ident: $real:ident, $impl:ident;)*) => {$(
        file_hook!($name(from: usize, size: usize, count: usize, stream: *const Stream) -> usize, $real, $impl, "r8", "r9");
        unsafe extern "C" fn $impl(
            from: usize, size: usize, count: usize, stream: *const Stream, sp: usize, fp: usize,
        ) -> usize {
            // SAFETY: the program passes an open stream.
            let of = unsafe { Stream::of(stream) };
            let fills = of.is_some_and(|of| of.room() < size.wrapping_mul(count));
            let (waiting, begun) = match fills {
                true => (of.map_or(0, Stream::waiting), io::begin()),
                false => (0, None),
            };
            let put = real!($real(from, size, count, stream)
                as fn(usize, usize, usize, *const Stream) -> usize, else 0);
            if let Some(begun) = begun {
                // SAFETY: the stream is still open.
                unsafe { has_written(begun, stream, waiting + put.wrapping_mul(size), sp, fp) };
            }
            put
        }
    )*};
}

writes! {
    fwrite: FWRITE, fwrite_impl;
    fwrite_unlocked: FWRITE_UNLOCKED, fwrite_unlocked_impl;
}

/// # Safety
/// `stream` is an open stream.
unsafe fn has_written(begun: io::Begun, stream: *const Stream, given: usize, sp: usize, fp: usize) {
    // SAFETY: the caller's premise.
    let left = unsafe { Stream::of(stream) }.map_or(0, Stream::waiting);
    let bytes = given.saturating_sub(left);
    let descriptor = descriptor(stream);
    // The first bytes of a new stream only fill its new buffer, and streams in memory have no file.
    if bytes > 0 && descriptor >= 0 {
        begun.ended(Operation::Write, descriptor, bytes as i64, NO_OFFSET, sp, fp);
    }
}

/// Defines hooks of functions that move a stream to another place in its file. libc then reads the
/// block there, unless the buffer has it.
macro_rules! seeks {
    ($($name:ident($stream:ident: *const Stream $(, $arg:ident: $type:ty)*) -> $result:ty:
        $real:ident else $missing:expr, $impl:ident $sp:literal $fp:literal;)*) => {$(
        file_hook!($name($stream: *const Stream $(, $arg: $type)*) -> $result, $real, $impl, $sp, $fp);
        unsafe extern "C" fn $impl($stream: *const Stream, $($arg: $type,)* sp: usize, fp: usize) -> $result {
            // SAFETY: the program passes an open stream.
            let before = unsafe { Stream::of($stream) }.map(Buffered::of);
            let begun = before.and_then(|_| io::begin());
            let result = real!($real($stream $(, $arg)*) as fn(*const Stream $(, $type)*) -> $result, else $missing);
            if let (Some(begun), Some(before)) = (begun, before) {
                // SAFETY: the stream is still open.
                unsafe { has_sought(begun, $stream, before, sp, fp) };
            }
            result
        }
    )*};
}

seeks! {
    fseek(stream: *const Stream, offset: i64, from: c_int) -> c_int:
        FSEEK else -1, fseek_impl "rcx" "r8";
    fseeko(stream: *const Stream, offset: i64, from: c_int) -> c_int:
        FSEEKO else -1, fseeko_impl "rcx" "r8";
    fseeko64(stream: *const Stream, offset: i64, from: c_int) -> c_int:
        FSEEKO64 else -1, fseeko64_impl "rcx" "r8";
    fsetpos(stream: *const Stream, place: usize) -> c_int:
        FSETPOS else -1, fsetpos_impl "rdx" "rcx";
    fsetpos64(stream: *const Stream, place: usize) -> c_int:
        FSETPOS64 else -1, fsetpos64_impl "rdx" "rcx";
    rewind(stream: *const Stream) -> (): REWIND else (), rewind_impl "rsi" "rdx";
}

/// What a stream had in its buffer before it moved.
#[derive(Clone, Copy)]
struct Buffered {
    /// Offset in the file of the first and after the last byte that was read ahead.
    from: i64,
    to: i64,
    /// Bytes to write.
    waiting: usize,
}

impl Buffered {
    fn of(stream: &Stream) -> Buffered {
        let bytes = stream.read_end.saturating_sub(stream.read_base) as i64;
        let to = stream.offset;
        Buffered { from: to.saturating_sub(bytes), to, waiting: stream.waiting() }
    }

    /// Whether libc found the stream's new place in the buffer, and so read nothing.
    fn holds(self, stream: &Stream) -> bool {
        let place = stream.offset.saturating_sub(stream.ahead() as i64);
        self.waiting == 0 && self.to == stream.offset && (self.from..self.to).contains(&place)
    }
}

/// Records what a stream transferred when it moved.
///
/// # Safety
/// `stream` is an open stream.
unsafe fn has_sought(
    begun: io::Begun,
    stream: *const Stream,
    before: Buffered,
    sp: usize,
    fp: usize,
) {
    // SAFETY: the caller's premise.
    let Some(of) = (unsafe { Stream::of(stream) }) else { return };
    if before.waiting > 0 {
        // SAFETY: the caller's premise.
        unsafe { has_written(begun, stream, before.waiting, sp, fp) };
    }
    let descriptor = descriptor(stream);
    if of.offset < 0 || descriptor < 0 || before.holds(of) {
        return;
    }
    let begun = if before.waiting > 0 { begun.at_once() } else { begun };
    let bytes = of.read_end.saturating_sub(of.read_base) as i64;
    let place = of.offset.saturating_sub(bytes);
    begun.ended(Operation::Seek, descriptor, place, NO_OFFSET, sp, fp);
    if bytes > 0 {
        begun.ended(Operation::Read, descriptor, bytes, NO_OFFSET, sp, fp);
    }
}

file_hook!(fflush(stream: *const Stream) -> c_int, FFLUSH, fflush_impl, "rsi", "rdx");
unsafe extern "C" fn fflush_impl(stream: *const Stream, sp: usize, fp: usize) -> c_int {
    // SAFETY: the program passes an open stream, or null, which means all streams.
    let waiting = unsafe { Stream::of(stream) }.map_or(0, Stream::waiting);
    let begun = if waiting > 0 { io::begin() } else { None };
    let result = real!(FFLUSH(stream) as fn(*const Stream) -> c_int, else -1);
    if let Some(begun) = begun {
        // SAFETY: the stream is still open.
        unsafe { has_written(begun, stream, waiting, sp, fp) };
    }
    result
}

file_hook!(fclose(stream: *const Stream) -> c_int, FCLOSE, fclose_impl, "rsi", "rdx");
unsafe extern "C" fn fclose_impl(stream: *const Stream, sp: usize, fp: usize) -> c_int {
    // SAFETY: the program passes an open stream.
    let waiting = unsafe { Stream::of(stream) }.map_or(0, Stream::waiting);
    let begun = io::begin();
    let file = match begun {
        Some(begun) if waiting > 0 => begun.forgotten_or_named(descriptor(stream)),
        _ => io::forgotten(descriptor(stream)),
    };
    let result = real!(FCLOSE(stream) as fn(*const Stream) -> c_int, else -1);
    if let Some(begun) = begun {
        if waiting > 0 && result == 0 && file != 0 {
            begun.wrote(file, waiting as i64, sp, fp);
            begun.at_once().closed(file, result, sp, fp);
        } else {
            begun.closed(file, result, sp, fp);
        }
    }
    result
}

/// Defines hooks of functions that close a stream's file and open another. The stream's next call
/// names it.
macro_rules! reopens {
    ($($name:ident: $real:ident, $impl:ident;)*) => {$(
        file_hook!($name(path: *const u8, mode: *const u8, stream: *const Stream) -> *const Stream, $real, $impl, "rcx", "r8");
        unsafe extern "C" fn $impl(path: *const u8, mode: *const u8, stream: *const Stream) -> *const Stream {
            io::renewed(descriptor(stream));
            let reopened = real!($real(path, mode, stream)
                as fn(*const u8, *const u8, *const Stream) -> *const Stream, else core::ptr::null());
            if !reopened.is_null() {
                io::renewed(descriptor(reopened));
            }
            reopened
        }
    )*};
}

reopens! {
    freopen: FREOPEN, freopen_impl;
    freopen64: FREOPEN64, freopen64_impl;
}

file_hook!(pclose(stream: *const Stream) -> c_int, PCLOSE, pclose_impl, "rsi", "rdx");
unsafe extern "C" fn pclose_impl(stream: *const Stream, sp: usize, fp: usize) -> c_int {
    // SAFETY: the program passes an open stream.
    let waiting = unsafe { Stream::of(stream) }.map_or(0, Stream::waiting);
    match if waiting > 0 { io::begin() } else { None } {
        // The call also waits for the other program, so its time isn't that of the write.
        Some(begun) => {
            let file = begun.forgotten_or_named(descriptor(stream));
            begun.at_once().wrote(file, waiting as i64, sp, fp);
        }
        None => io::renewed(descriptor(stream)),
    }
    real!(PCLOSE(stream) as fn(*const Stream) -> c_int, else -1)
}

file_hook!(closedir(directory: *const u8) -> c_int, CLOSEDIR, closedir_impl, "rsi", "rdx");
unsafe extern "C" fn closedir_impl(directory: *const u8) -> c_int {
    // libc reports an error for null.
    if !directory.is_null() {
        io::renewed(real!(DIRFD(directory) as fn(*const u8) -> c_int, else -1));
    }
    real!(CLOSEDIR(directory) as fn(*const u8) -> c_int, else -1)
}

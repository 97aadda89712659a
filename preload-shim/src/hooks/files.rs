//! Hooks of the functions that open, read, write and close files, pipes and sockets.
//!
//! Each hook calls the real function and records the call, unless it only makes or closes a
//! descriptor: then the table of descriptors forgets what the descriptor stood for.

use crate::{real, table};
use core::ffi::{c_int, c_uint};
use tprof_inject::{arch, io, sys};
use tprof_wire::io::{NO_OFFSET, Operation};

/// The descriptor by which `openat` and others mean the working directory.
const WORKING_DIRECTORY: c_int = -100;

/// Defines hooks of functions with up to four arguments, of which the first is the descriptor.
/// `at` is the offset in the file at which the call begins. The two registers pass the stack and
/// frame pointers on.
macro_rules! calls {
    ($($name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty:
        $real:ident, $operation:ident at $offset:expr, $impl:ident $sp:literal $fp:literal;)*) => {$(
        file_hook!($name($fd: c_int $(, $arg: $type)*) -> $result, $real, $impl, $sp, $fp);
        #[allow(clippy::too_many_arguments)] // the hook adds two
        unsafe extern "C" fn $impl($fd: c_int, $($arg: $type,)* sp: usize, fp: usize) -> $result {
            let begun = io::begin();
            let result = real!($real($fd $(, $arg)*) as fn(c_int $(, $type)*) -> $result, else -1);
            if let Some(begun) = begun {
                begun.ended(Operation::$operation, $fd, result as i64, $offset as u64, sp, fp);
            }
            result
        }
    )*};
}

calls! {
    read(fd: c_int, to: usize, bytes: usize) -> isize: READ, Read at NO_OFFSET, read_impl "rcx" "r8";
    __read_chk(fd: c_int, to: usize, bytes: usize, room: usize) -> isize:
        READ_CHK, Read at NO_OFFSET, read_chk_impl "r8" "r9";
    readv(fd: c_int, parts: usize, count: c_int) -> isize:
        READV, Read at NO_OFFSET, readv_impl "rcx" "r8";
    pread(fd: c_int, to: usize, bytes: usize, offset: i64) -> isize:
        PREAD, Read at offset, pread_impl "r8" "r9";
    pread64(fd: c_int, to: usize, bytes: usize, offset: i64) -> isize:
        PREAD64, Read at offset, pread64_impl "r8" "r9";
    preadv(fd: c_int, parts: usize, count: c_int, offset: i64) -> isize:
        PREADV, Read at offset, preadv_impl "r8" "r9";
    preadv64(fd: c_int, parts: usize, count: c_int, offset: i64) -> isize:
        PREADV64, Read at offset, preadv64_impl "r8" "r9";
    write(fd: c_int, from: usize, bytes: usize) -> isize:
        WRITE, Write at NO_OFFSET, write_impl "rcx" "r8";
    writev(fd: c_int, parts: usize, count: c_int) -> isize:
        WRITEV, Write at NO_OFFSET, writev_impl "rcx" "r8";
    pwrite(fd: c_int, from: usize, bytes: usize, offset: i64) -> isize:
        PWRITE, Write at offset, pwrite_impl "r8" "r9";
    pwrite64(fd: c_int, from: usize, bytes: usize, offset: i64) -> isize:
        PWRITE64, Write at offset, pwrite64_impl "r8" "r9";
    pwritev(fd: c_int, parts: usize, count: c_int, offset: i64) -> isize:
        PWRITEV, Write at offset, pwritev_impl "r8" "r9";
    pwritev64(fd: c_int, parts: usize, count: c_int, offset: i64) -> isize:
        PWRITEV64, Write at offset, pwritev64_impl "r8" "r9";
    lseek(fd: c_int, offset: i64, from: c_int) -> i64: LSEEK, Seek at NO_OFFSET, lseek_impl "rcx" "r8";
    lseek64(fd: c_int, offset: i64, from: c_int) -> i64:
        LSEEK64, Seek at NO_OFFSET, lseek64_impl "rcx" "r8";
    fsync(fd: c_int) -> c_int: FSYNC, Sync at NO_OFFSET, fsync_impl "rsi" "rdx";
    fdatasync(fd: c_int) -> c_int: FDATASYNC, Sync at NO_OFFSET, fdatasync_impl "rsi" "rdx";
    syncfs(fd: c_int) -> c_int: SYNCFS, Sync at NO_OFFSET, syncfs_impl "rsi" "rdx";
    recv(fd: c_int, to: usize, bytes: usize, flags: c_int) -> isize:
        RECV, Read at NO_OFFSET, recv_impl "r8" "r9";
    recvmsg(fd: c_int, message: usize, flags: c_int) -> isize:
        RECVMSG, Read at NO_OFFSET, recvmsg_impl "rcx" "r8";
    send(fd: c_int, from: usize, bytes: usize, flags: c_int) -> isize:
        SEND, Write at NO_OFFSET, send_impl "r8" "r9";
    sendmsg(fd: c_int, message: usize, flags: c_int) -> isize:
        SENDMSG, Write at NO_OFFSET, sendmsg_impl "rcx" "r8";
}

/// Defines hooks of functions with more arguments, of which the first is the descriptor. The last
/// ones don't matter to the hook, which passes six words on in any case.
macro_rules! long_calls {
    ($($name:ident: $real:ident, $operation:ident, $impl:ident, $offset:expr;)*) => {$(
        file_hook!($name(_: c_int, _: usize, _: usize, _: usize, _: usize, _: usize) -> isize, $real, $impl);
        #[allow(clippy::too_many_arguments)] // the functions have up to six, and the hook adds two
        unsafe extern "C" fn $impl(
            fd: c_int, a: usize, b: usize, c: usize, d: usize, e: usize, sp: usize, fp: usize,
        ) -> isize {
            let begun = io::begin();
            let result = real!($real(fd, a, b, c, d, e)
                as fn(c_int, usize, usize, usize, usize, usize) -> isize, else -1);
            if let Some(begun) = begun {
                let at: fn(usize) -> u64 = $offset;
                begun.ended(Operation::$operation, fd, result as i64, at(c), sp, fp);
            }
            result
        }
    )*};
}

/// The offset of a call that has none as its fourth argument.
fn nowhere(_: usize) -> u64 {
    NO_OFFSET
}

/// The fourth argument is the offset.
fn there(offset: usize) -> u64 {
    offset as u64
}

long_calls! {
    __pread_chk: PREAD_CHK, Read, pread_chk_impl, there;
    __pread64_chk: PREAD64_CHK, Read, pread64_chk_impl, there;
    __recv_chk: RECV_CHK, Read, recv_chk_impl, nowhere;
    recvfrom: RECVFROM, Read, recvfrom_impl, nowhere;
    sendto: SENDTO, Write, sendto_impl, nowhere;
}

/// Defines hooks of functions that a libc of the time of glibc 2.17 doesn't have. A program may ask
/// for them by `dlsym` and find these hooks, which then make the system call themselves.
macro_rules! new_calls {
    ($($name:ident: $real:ident or $number:literal, $operation:ident, $impl:ident;)*) => {$(
        file_hook!($name(_: c_int, _: usize, _: usize, _: usize, _: usize) -> isize, $real, $impl);
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $impl(
            fd: c_int, parts: usize, count: usize, offset: usize, flags: usize, _: usize, sp: usize, fp: usize,
        ) -> isize {
            let begun = io::begin();
            let result = match table::address(&table::$real) {
                // SAFETY: the caller's premises are those of the system call, which takes the
                // offset in two words.
                0 => unsafe { system_call($number, [fd as usize, parts, count, offset, 0, flags]) },
                _ => real!($real(fd, parts, count, offset, flags)
                    as fn(c_int, usize, usize, usize, usize) -> isize, else -1),
            };
            if let Some(begun) = begun {
                // -1 stands for the file's own offset.
                begun.ended(Operation::$operation, fd, result as i64, offset as u64, sp, fp);
            }
            result
        }
    )*};
}

new_calls! {
    preadv2: PREADV2 or 327, Read, preadv2_impl;
    preadv64v2: PREADV64V2 or 327, Read, preadv64v2_impl;
    pwritev2: PWRITEV2 or 328, Write, pwritev2_impl;
    pwritev64v2: PWRITEV64V2 or 328, Write, pwritev64v2_impl;
}

/// Makes a system call as libc would: returns -1 if it failed, with the reason in `errno`.
///
/// # Safety
/// The premises of the system call.
unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's premise.
    let result = unsafe { arch::syscall(number, arguments) };
    if !sys::is_error(result) {
        return result;
    }
    let place = real!(ERRNO_LOCATION() as fn() -> *mut c_int, else core::ptr::null_mut());
    if !place.is_null() {
        // SAFETY: libc returned the address of this thread's `errno`.
        unsafe { place.write(-result as c_int) };
    }
    -1
}

/// Defines hooks of the functions that open a file by its path. The third argument is read even if
/// the program passed none, as libc does too.
macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*): $real:ident from $directory:expr, $path:ident, $impl:ident $sp:literal $fp:literal;)*) => {$(
        file_hook!($name($($arg: $type),*) -> c_int, $real, $impl, $sp, $fp);
        #[allow(clippy::too_many_arguments)] // the hook adds two
        unsafe extern "C" fn $impl($($arg: $type,)* sp: usize, fp: usize) -> c_int {
            let begun = io::begin();
            let result = real!($real($($arg),*) as fn($($type),*) -> c_int, else -1);
            match begun {
                // SAFETY: if the call succeeded, the kernel has read the path.
                Some(begun) => unsafe { begun.opened($directory, $path, result, sp, fp) },
                None => io::renewed(result),
            }
            result
        }
    )*};
}

opens! {
    open(path: *const u8, flags: c_int, mode: c_uint):
        OPEN from WORKING_DIRECTORY, path, open_impl "rcx" "r8";
    open64(path: *const u8, flags: c_int, mode: c_uint):
        OPEN64 from WORKING_DIRECTORY, path, open64_impl "rcx" "r8";
    openat(directory: c_int, path: *const u8, flags: c_int, mode: c_uint):
        OPENAT from directory, path, openat_impl "r8" "r9";
    openat64(directory: c_int, path: *const u8, flags: c_int, mode: c_uint):
        OPENAT64 from directory, path, openat64_impl "r8" "r9";
    creat(path: *const u8, mode: c_uint): CREAT from WORKING_DIRECTORY, path, creat_impl "rdx" "rcx";
    creat64(path: *const u8, mode: c_uint):
        CREAT64 from WORKING_DIRECTORY, path, creat64_impl "rdx" "rcx";
    __open_2(path: *const u8, flags: c_int):
        OPEN_2 from WORKING_DIRECTORY, path, open_2_impl "rdx" "rcx";
    __open64_2(path: *const u8, flags: c_int):
        OPEN64_2 from WORKING_DIRECTORY, path, open64_2_impl "rdx" "rcx";
    __openat_2(directory: c_int, path: *const u8, flags: c_int):
        OPENAT_2 from directory, path, openat_2_impl "rcx" "r8";
    __openat64_2(directory: c_int, path: *const u8, flags: c_int):
        OPENAT64_2 from directory, path, openat64_2_impl "rcx" "r8";
}

file_hook!(connect(fd: c_int, address: *const u8, bytes: c_uint) -> c_int, CONNECT, connect_impl, "rcx", "r8");
unsafe extern "C" fn connect_impl(
    fd: c_int,
    address: *const u8,
    bytes: c_uint,
    sp: usize,
    fp: usize,
) -> c_int {
    let begun = io::begin();
    let result =
        real!(CONNECT(fd, address, bytes) as fn(c_int, *const u8, c_uint) -> c_int, else -1);
    match begun {
        // SAFETY: if the call succeeded, the kernel has read the address.
        Some(begun) => unsafe { begun.connected(fd, address, bytes as usize, result, sp, fp) },
        None => io::renewed(fd),
    }
    result
}

file_hook!(accept(fd: c_int, address: *mut u8, bytes: *mut c_uint) -> c_int, ACCEPT, accept_impl, "rcx", "r8");
unsafe extern "C" fn accept_impl(
    fd: c_int,
    address: *mut u8,
    bytes: *mut c_uint,
    sp: usize,
    fp: usize,
) -> c_int {
    let begun = io::begin();
    let made =
        real!(ACCEPT(fd, address, bytes) as fn(c_int, *mut u8, *mut c_uint) -> c_int, else -1);
    has_accepted(begun, made, sp, fp);
    made
}

file_hook!(accept4(fd: c_int, address: *mut u8, bytes: *mut c_uint, flags: c_int) -> c_int, ACCEPT4, accept4_impl, "r8", "r9");
unsafe extern "C" fn accept4_impl(
    fd: c_int,
    address: *mut u8,
    bytes: *mut c_uint,
    flags: c_int,
    sp: usize,
    fp: usize,
) -> c_int {
    let begun = io::begin();
    let made = real!(ACCEPT4(fd, address, bytes, flags) as fn(c_int, *mut u8, *mut c_uint, c_int) -> c_int, else -1);
    has_accepted(begun, made, sp, fp);
    made
}

/// Records what `accept` returned. The peer is asked of the kernel: the length that the program passed
/// may be at a wrong address until the call has succeeded, and is overwritten then.
fn has_accepted(begun: Option<io::Begun>, made: c_int, sp: usize, fp: usize) {
    match begun {
        Some(begun) => begun.accepted(made, sp, fp),
        None => io::renewed(made),
    }
}

file_hook!(close(fd: c_int) -> c_int, CLOSE, close_impl, "rsi", "rdx");
unsafe extern "C" fn close_impl(fd: c_int, sp: usize, fp: usize) -> c_int {
    let begun = io::begin();
    let file = io::forgotten(fd);
    let result = real!(CLOSE(fd) as fn(c_int) -> c_int, else -1);
    if let Some(begun) = begun {
        begun.closed(file, result, sp, fp);
    }
    result
}

file_hook!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, CLOSE_RANGE, close_range_impl, "rcx", "r8");
unsafe extern "C" fn close_range_impl(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4; // descriptors stay open until an exec
    if flags & CLOEXEC == 0 {
        io::range_closed(first, last);
    }
    match table::address(&table::CLOSE_RANGE) {
        // SAFETY: the caller closes these descriptors.
        0 => unsafe {
            system_call(436, [first as usize, last as usize, flags as usize, 0, 0, 0]) as c_int
        },
        _ => {
            real!(CLOSE_RANGE(first, last, flags) as fn(c_uint, c_uint, c_int) -> c_int, else -1)
        }
    }
}

file_hook!(closefrom(first: c_int) -> (), CLOSEFROM, closefrom_impl, "rsi", "rdx");
unsafe extern "C" fn closefrom_impl(first: c_int) {
    let from = first.max(0) as c_uint;
    io::range_closed(from, c_uint::MAX);
    match table::address(&table::CLOSEFROM) {
        // SAFETY: the caller closes these descriptors.
        0 => unsafe {
            system_call(436, [from as usize, c_uint::MAX as usize, 0, 0, 0, 0]);
        },
        _ => real!(CLOSEFROM(first) as fn(c_int) -> (), else ()),
    }
}

/// Defines hooks of functions that return a new descriptor without naming a file.
macro_rules! makers {
    ($($name:ident($($arg:ident: $type:ty),*): $real:ident, $impl:ident;)*) => {$(
        file_hook!($name($($arg: $type),*) -> c_int, $real, $impl, "r8", "r9");
        unsafe extern "C" fn $impl($($arg: $type),*) -> c_int {
            let made = real!($real($($arg),*) as fn($($type),*) -> c_int, else -1);
            io::renewed(made);
            made
        }
    )*};
}

makers! {
    socket(domain: c_int, kind: c_int, protocol: c_int): SOCKET, socket_impl;
    dup(fd: c_int): DUP, dup_impl;
    dup2(fd: c_int, to: c_int): DUP2, dup2_impl;
    dup3(fd: c_int, to: c_int, flags: c_int): DUP3, dup3_impl;
}

/// Defines hooks of functions that store two new descriptors in an array.
macro_rules! pair_makers {
    ($($name:ident($($arg:ident: $type:ty),*) in $pair:ident: $real:ident, $impl:ident;)*) => {$(
        file_hook!($name($($arg: $type),*) -> c_int, $real, $impl, "r8", "r9");
        unsafe extern "C" fn $impl($($arg: $type),*) -> c_int {
            let result = real!($real($($arg),*) as fn($($type),*) -> c_int, else -1);
            if result == 0 {
                // SAFETY: the call has succeeded, so it has stored both there.
                unsafe { *$pair }.into_iter().for_each(io::renewed);
            }
            result
        }
    )*};
}

pair_makers! {
    pipe(pair: *mut [c_int; 2]) in pair: PIPE, pipe_impl;
    pipe2(pair: *mut [c_int; 2], flags: c_int) in pair: PIPE2, pipe2_impl;
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut [c_int; 2]) in pair:
        SOCKETPAIR, socketpair_impl;
}

/// Commands of `fcntl` that return a new descriptor: `F_DUPFD` and `F_DUPFD_CLOEXEC`.
const DUPLICATES: [c_int; 2] = [0, 1030];

file_hook!(fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, FCNTL, fcntl_impl, "rcx", "r8");
/// The third argument is read even if the program passed none.
unsafe extern "C" fn fcntl_impl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let result = real!(FCNTL(fd, command, argument) as fn(c_int, c_int, usize) -> c_int, else -1);
    if DUPLICATES.contains(&command) {
        io::renewed(result);
    }
    result
}

file_hook!(fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, FCNTL64, fcntl64_impl, "rcx", "r8");
/// glibc has it since 2.28.
unsafe extern "C" fn fcntl64_impl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if table::address(&table::FCNTL64) == 0 {
        // SAFETY: the caller's premises are those of `fcntl`, which is the same function.
        return unsafe { fcntl(fd, command, argument) };
    }
    let result = real!(FCNTL64(fd, command, argument) as fn(c_int, c_int, usize) -> c_int, else -1);
    if DUPLICATES.contains(&command) {
        io::renewed(result);
    }
    result
}

/// Defines hooks of functions that move bytes from one descriptor to another. The time counts for
/// the file that is read, so that it counts once.
macro_rules! movers {
    ($($name:ident($($arg:ident: $type:ty),*): $from:ident to $to:ident, $real:ident or $number:literal, $impl:ident;)*) => {$(
        file_hook!($name($($arg: $type),*) -> isize, $real, $impl);
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $impl($($arg: $type,)* sp: usize, fp: usize) -> isize {
            let begun = io::begin();
            let moved = match table::address(&table::$real) {
                // SAFETY: the caller's premises are those of the system call.
                0 => unsafe { system_call($number, [$($arg as usize),*]) },
                _ => real!($real($($arg),*) as fn($($type),*) -> isize, else -1),
            };
            if let Some(begun) = begun {
                begun.ended(Operation::Read, $from, moved as i64, NO_OFFSET, sp, fp);
                if moved >= 0 {
                    begun.at_once().ended(Operation::Write, $to, moved as i64, NO_OFFSET, sp, fp);
                }
            }
            moved
        }
    )*};
}

movers! {
    sendfile(to: c_int, from: c_int, offset: usize, bytes: usize, _e: usize, _f: usize):
        from to to, SENDFILE or 40, sendfile_impl;
    sendfile64(to: c_int, from: c_int, offset: usize, bytes: usize, _e: usize, _f: usize):
        from to to, SENDFILE64 or 40, sendfile64_impl;
    copy_file_range(from: c_int, at: usize, to: c_int, to_at: usize, bytes: usize, flags: usize):
        from to to, COPY_FILE_RANGE or 326, copy_file_range_impl;
    splice(from: c_int, at: usize, to: c_int, to_at: usize, bytes: usize, flags: usize):
        from to to, SPLICE or 275, splice_impl;
}

//! Holds the addresses of the real functions, which are looked up once, when the library starts.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use tprof_inject::real::{self, Others, Wanted};
use tprof_inject::{attach, state};
use tprof_wire::handshake::hello_flags;

/// Declares a variable for the address of each real function, and the list of all functions in three
/// parts: those of any library, libc's own, and the calls on files. For the latter it also declares
/// whether the hook passes every call through.
macro_rules! functions {
    ($($static:ident $name:literal)*; $($own:ident $own_name:literal)*; $($file:ident $file_name:literal)*) => {
        $(pub static $static: AtomicUsize = AtomicUsize::new(0);)*
        $(pub static $own: AtomicUsize = AtomicUsize::new(0);)*
        $(pub static $file: AtomicUsize = AtomicUsize::new(0);)*
        /// Not 0 where a library that isn't libc defines a function of a call's name. It may have
        /// other arguments, so its hook jumps to it with all registers as they are.
        pub mod passed {
            use core::sync::atomic::AtomicU32;
            $(pub static $file: AtomicU32 = AtomicU32::new(0);)*
        }
        static WANTED: &[Wanted] = &[
            Wanted { name: b"malloc\0", address: MALLOC, others: Others::Taken },
            Wanted { name: b"calloc\0", address: CALLOC, others: Others::Taken },
            Wanted { name: b"free\0", address: FREE, others: Others::Taken },
            $(Wanted { name: concat!($name, "\0").as_bytes(), address: &$static, others: Others::Taken },)*
            $(Wanted { name: concat!($own_name, "\0").as_bytes(), address: &$own, others: Others::Skipped },)*
            $(Wanted {
                name: concat!($file_name, "\0").as_bytes(),
                address: &$file,
                others: Others::Marked(&passed::$file),
            },)*
        ];
    };
}

/// The real `malloc`. The addresses of the functions that are called most are next to the other
/// values that their hooks read.
pub static MALLOC: &AtomicUsize = &state::HOT.malloc;
/// The real `calloc`, next to [`MALLOC`].
pub static CALLOC: &AtomicUsize = &state::HOT.calloc;
/// The real `free`, next to [`MALLOC`].
pub static FREE: &AtomicUsize = &state::HOT.free;

functions! {
    REALLOC "realloc" REALLOCARRAY "reallocarray"
    POSIX_MEMALIGN "posix_memalign" ALIGNED_ALLOC "aligned_alloc" MEMALIGN "memalign"
    VALLOC "valloc" PVALLOC "pvalloc" MALLOC_USABLE_SIZE "malloc_usable_size"
    MMAP "mmap" MMAP64 "mmap64" MUNMAP "munmap" MREMAP "mremap"
    SHMAT "shmat" SHMDT "shmdt"
    FORK "fork" EXECVE "execve" EXECVPE "execvpe" FEXECVE "fexecve" EXECVEAT "execveat"
    POSIX_SPAWN "posix_spawn" POSIX_SPAWNP "posix_spawnp"
    WAIT "wait" WAITPID "waitpid" WAIT3 "wait3" WAIT4 "wait4" WAITID "waitid"
    EXIT "exit" QUICK_EXIT "quick_exit" UNDERSCORE_EXIT "_exit" CAPITAL_EXIT "_Exit"
    PTHREAD_CREATE "pthread_create" PTHREAD_EXIT "pthread_exit" PTHREAD_SETNAME "pthread_setname_np"
    DLCLOSE "dlclose" DLSYM "dlsym" PRCTL "prctl" SYSCALL "syscall" CLOCK_GETTIME "clock_gettime";

    // libc's functions that hooks call for themselves.
    FILENO "fileno" DIRFD "dirfd" GNU_GET_LIBC_VERSION "gnu_get_libc_version"
    ERRNO_LOCATION "__errno_location";

    // Calls on files.
    OPEN "open" OPEN64 "open64" OPENAT "openat" OPENAT64 "openat64" CREAT "creat" CREAT64 "creat64"
    OPEN_2 "__open_2" OPEN64_2 "__open64_2" OPENAT_2 "__openat_2" OPENAT64_2 "__openat64_2"
    READ "read" READ_CHK "__read_chk" READV "readv" PREAD "pread" PREAD64 "pread64"
    PREAD_CHK "__pread_chk" PREAD64_CHK "__pread64_chk" PREADV "preadv" PREADV64 "preadv64"
    PREADV2 "preadv2" PREADV64V2 "preadv64v2"
    WRITE "write" WRITEV "writev" PWRITE "pwrite" PWRITE64 "pwrite64" PWRITEV "pwritev"
    PWRITEV64 "pwritev64" PWRITEV2 "pwritev2" PWRITEV64V2 "pwritev64v2"
    LSEEK "lseek" LSEEK64 "lseek64" FSYNC "fsync" FDATASYNC "fdatasync" SYNCFS "syncfs"
    SENDFILE "sendfile" SENDFILE64 "sendfile64" COPY_FILE_RANGE "copy_file_range"
    SPLICE "splice" RECV "recv" RECV_CHK "__recv_chk" RECVFROM "recvfrom"
    RECVMSG "recvmsg" SEND "send" SENDTO "sendto" SENDMSG "sendmsg"
    CONNECT "connect" ACCEPT "accept" ACCEPT4 "accept4"
    SOCKET "socket" SOCKETPAIR "socketpair" PIPE "pipe" PIPE2 "pipe2" DUP "dup" DUP2 "dup2"
    DUP3 "dup3" FCNTL "fcntl" FCNTL64 "fcntl64"
    CLOSE "close" CLOSE_RANGE "close_range" CLOSEFROM "closefrom"
    FOPEN "fopen" FOPEN64 "fopen64" FCLOSE "fclose" FFLUSH "fflush"
    FREOPEN "freopen" FREOPEN64 "freopen64" PCLOSE "pclose" CLOSEDIR "closedir"
    FREAD "fread" FREAD_UNLOCKED "fread_unlocked"
    FWRITE "fwrite" FWRITE_UNLOCKED "fwrite_unlocked" REWIND "rewind"
    FSEEK "fseek" FSEEKO "fseeko" FSEEKO64 "fseeko64" FSETPOS "fsetpos" FSETPOS64 "fsetpos64"
}

static RESOLVED: AtomicU32 = AtomicU32::new(0);

/// Looks up every real function that isn't known yet. Calls before the constructor come from one
/// thread (the loader's), and running this twice does no harm.
#[cold]
#[inline(never)]
pub extern "C" fn resolve() {
    RESOLVED.store(1, Release);
    let found = real::resolve(WANTED, &raw const RESOLVED as usize);
    state::MALLOC_IS_GLIBC.store(u32::from(found.malloc_is_glibc), Relaxed);
    state::USABLE_SIZE.store(MALLOC_USABLE_SIZE.load(Relaxed), Relaxed);
    state::CLOCK_GETTIME.store(CLOCK_GETTIME.load(Relaxed), Relaxed);
    state::HOT.resolved();
    let mut flags = 0;
    if found.malloc_before {
        flags |= hello_flags::OWN_MALLOC;
    }
    if MALLOC.load(Relaxed) == 0 {
        flags |= hello_flags::NO_REAL_MALLOC;
    }
    let is_passed =
        |wanted: &Wanted| matches!(wanted.others, Others::Marked(mark) if mark.load(Relaxed) != 0);
    if WANTED.iter().any(is_passed) {
        flags |= hello_flags::OTHER_FILE_CALLS;
    }
    attach::HELLO_FLAGS.store(flags, Relaxed);
}

/// Looks up the real functions when a hook is called before that was done, and keeps the registers
/// in which the hook's caller passed arguments: the function that is found may have others than the
/// hook knows.
///
/// # Safety
/// Called by a hook as its first call, with the stack as the hook's caller left it.
#[unsafe(naked)]
pub unsafe extern "C" fn resolve_between() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push r10",
        "sub rsp, 128",
        ".cfi_adjust_cfa_offset 192",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        // The hook's caller has pushed an address, the hook another: the stack is aligned.
        "call {resolve}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rax",
        ".cfi_adjust_cfa_offset -192",
        "ret",
        ".cfi_endproc",
        resolve = sym resolve,
    )
}

/// A real function's address; 0 only if no library defines the function.
#[inline(always)]
pub fn address(of: &AtomicUsize) -> usize {
    let address = of.load(Relaxed);
    if address == 0 { late(of) } else { address }
}

/// Looks up a function at the very first call of any hook, or a function of a library that was
/// loaded later. (Before glibc 2.34, libdl and libpthread are separate libraries.)
#[cold]
#[inline(never)]
fn late(of: &AtomicUsize) -> usize {
    resolve();
    of.load(Relaxed)
}

/// Calls a real function; returns `$missing` if no library defines it.
#[macro_export]
macro_rules! real {
    ($of:ident($($arg:expr),* $(,)?) as fn($($type:ty),*) -> $result:ty, else $missing:expr) => {{
        let address = $crate::table::address(&$crate::table::$of);
        if address == 0 {
            $missing
        } else {
            // SAFETY: the address was found under this function's name, so it has this type. The
            // arguments are those that the hook's caller passed for that function.
            unsafe {
                let call: unsafe extern "C" fn($($type),*) -> $result = core::mem::transmute(address);
                call($($arg),*)
            }
        }
    }};
}

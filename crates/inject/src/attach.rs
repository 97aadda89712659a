//! Attaching to the collector: one message out, one back with three
//! descriptors, three mappings, and nothing left open.

use crate::sys::{self, flags};
use crate::{arch, pointers, python, ring, stacks, start_collector, state};
use core::ffi::{c_char, c_ulong};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use tprof_wire::handshake::{HELLO_MAGIC, Hello, Role, Welcome, hello_flags};
use tprof_wire::region::{
    REGION_BYTES, REGION_MAGIC, RegionHeader, SESSION_BYTES, SMALL_OFFSET, SPARING_REGION_BYTES,
    SPARING_TABLES_BYTES, TABLES_BYTES, stack_mode,
};
use tprof_wire::{WIRE_VERSION, env};

unsafe extern "C" {
    static environ: *const *const c_char;
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Longest socket path (`sun_path` less its NUL).
const PATH_MAX: usize = 107;
/// How long a process waits for the collector's answer, once.
const ANSWER_NS: u64 = 5_000_000_000;
/// How long a process waits for a collector that it started, and how often it looks.
const START_NS: u64 = 5_000_000_000;
const STEP_NS: u64 = 2_000_000;
/// After so many collectors that left or could not begin a process goes on alone.
const IN_VAIN_MOST: u32 = 4;

static SOCKET_PATH: PathBuffer =
    PathBuffer { bytes: [const { AtomicU32::new(0) }; PATH_MAX + 1], len: AtomicUsize::new(0) };
/// Facts for the hello, gathered by the library's constructor.
pub static HELLO_FLAGS: AtomicU32 = AtomicU32::new(0);
static WIPE_ASKED: AtomicBool = AtomicBool::new(false);

struct PathBuffer {
    bytes: [AtomicU32; PATH_MAX + 1],
    len: AtomicUsize,
}

/// A variable of this process's environment.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: read at attach time; `environ` is NULL or a NULL-terminated array of
    // NUL-terminated strings. A program that changes its environment in another
    // thread at this very moment races with every `getenv` as well.
    unsafe {
        let mut at = environ;
        if at.is_null() {
            return None;
        }
        while !(*at).is_null() {
            let text = core::ffi::CStr::from_ptr(*at).to_bytes();
            if text.len() > name.len()
                && text[name.len()] == b'='
                && text.starts_with(name.as_bytes())
            {
                return text.get(name.len() + 1..);
            }
            at = at.add(1);
        }
    }
    None
}

/// The environment array itself, for a collector started from here.
pub fn environment() -> *const *const c_char {
    // SAFETY: reads one pointer.
    unsafe { environ }
}

/// What came of one meeting with a collector.
enum Answer {
    Attached,
    /// It will have nothing to do with this process, or cannot.
    Refused,
    /// None: it is just leaving.
    None,
}

/// Attaches this process; false leaves it inert. Called with signals blocked,
/// by one thread at a time.
pub fn attach(forked: bool) -> bool {
    const ENOENT: isize = -2;
    const ECONNREFUSED: isize = -111;
    if !forked {
        pointers::prepare();
        if !remember_socket() {
            return false;
        }
    }
    let (path, len) = socket_path();
    let Some(path) = path.get(..len) else { return false };
    let mut started = None;
    let mut in_vain = 0;
    for _ in 0..START_NS / STEP_NS {
        match sys::socket::connect(path, ANSWER_NS) {
            Ok(fd) => {
                let answer = shake_hands(fd, forked);
                sys::close(fd);
                match answer {
                    Answer::Attached => return true,
                    Answer::Refused => return false,
                    Answer::None => in_vain += 1,
                }
            }
            // Refused by the socket of a collector that was killed.
            Err(ENOENT | ECONNREFUSED) if !forked && may_start() => match started {
                None => match start_collector::start() {
                    None => return false,
                    pid => started = pid,
                },
                Some(pid) if !sys::has_ended(pid) => {}
                // Another one was faster, and has left since; or it could not begin.
                Some(_) => {
                    started = None;
                    in_vain += 1;
                }
            },
            Err(_) => return false,
        }
        if in_vain >= IN_VAIN_MOST {
            return false;
        }
        sys::sleep_ns(STEP_NS);
    }
    false
}

/// Whether the session's socket can be reached from here: not after a change of
/// user or of root.
pub fn is_reachable() -> bool {
    let (path, _) = socket_path();
    sys::may_use(path.as_ptr())
}

/// The socket's path, NUL terminated, and its length.
fn socket_path() -> ([u8; PATH_MAX + 1], usize) {
    let mut path = [0u8; PATH_MAX + 1];
    let len = SOCKET_PATH.len.load(Relaxed).min(PATH_MAX);
    for (byte, kept) in path.iter_mut().zip(&SOCKET_PATH.bytes).take(len) {
        *byte = kept.load(Relaxed) as u8;
    }
    (path, len)
}

fn remember_socket() -> bool {
    let Some(session) = variable(env::SESSION) else { return false };
    if session.is_empty()
        || session[0] != b'/'
        || session.len() + 1 + env::SOCKET_NAME.len() > PATH_MAX
    {
        return false;
    }
    let whole = session.iter().chain(b"/").chain(env::SOCKET_NAME.as_bytes());
    let mut len = 0;
    for (kept, byte) in SOCKET_PATH.bytes.iter().zip(whole) {
        kept.store(u32::from(*byte), Relaxed);
        len += 1;
    }
    SOCKET_PATH.len.store(len, Relaxed);
    true
}

/// Whether a missing session means "start one here": by `tprof env` on any
/// host, after `tprof run` on every host but its own.
fn may_start() -> bool {
    if variable(env::BIN).is_none() {
        return false;
    }
    match variable(env::HOST) {
        None => true,
        Some(host) => {
            let own = sys::host_name();
            let len = own.iter().position(|b| *b == 0).unwrap_or(own.len());
            own.get(..len) != Some(host)
        }
    }
}

fn shake_hands(fd: i32, forked: bool) -> Answer {
    if state::STACK_TOP.load(Relaxed) == 0 {
        const AT_EXECFN: c_ulong = 31;
        // SAFETY: reads the auxiliary vector.
        state::STACK_TOP.store(unsafe { getauxval(AT_EXECFN) } as usize, Relaxed);
    }
    let hello = Hello {
        magic: HELLO_MAGIC,
        version: WIRE_VERSION,
        role: Role::Target as u32,
        pid: sys::pid(),
        parent: sys::parent_pid(),
        flags: HELLO_FLAGS.load(Relaxed) | if forked { hello_flags::FORKED } else { 0 },
        tid: sys::tid(),
        clock: arch::ticks(),
        stack_top: state::STACK_TOP.load(Relaxed) as u64,
    };
    // SAFETY: a plain struct without padding (its size is asserted in `wire`).
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const hello).cast::<u8>(), size_of::<Hello>()) };
    if !sys::socket::send(fd, bytes) {
        return Answer::None;
    }
    let mut answer = [0u8; size_of::<Welcome>()];
    let fds = match sys::socket::receive(fd, &mut answer) {
        Ok(fds) => fds,
        Err(sys::socket::Unheard::Closed) => return Answer::None,
        Err(sys::socket::Unheard::Other) => return Answer::Refused,
    };
    // SAFETY: `Welcome` is plain integers and the buffer is exactly as long.
    let welcome = unsafe { answer.as_ptr().cast::<Welcome>().read_unaligned() };
    let ok = welcome.magic == HELLO_MAGIC
        && welcome.version == WIRE_VERSION
        && welcome.accepted == 1
        && map_all(fds);
    for fd in fds {
        sys::close(fd);
    }
    if ok { Answer::Attached } else { Answer::Refused }
}

fn map_all([session_fd, region_fd, tables_fd]: [i32; 3]) -> bool {
    let sparing = sys::address_space_is_limited();
    state::SPARING.store(sparing, Relaxed);
    let region_bytes = if sparing { SPARING_REGION_BYTES } else { REGION_BYTES };
    let tables_bytes = if sparing { SPARING_TABLES_BYTES } else { TABLES_BYTES };
    // Chunks and tables are opened up one by one when they are used: what is
    // closed cannot be filled by an `mlockall` of the job.
    let shared = flags::MAP_SHARED | flags::MAP_NORESERVE;
    let Some(region) = sys::map(region_bytes, flags::PROT_NONE, shared, region_fd) else {
        return false;
    };
    sys::advise(region, region_bytes, flags::MADV_DONTDUMP);
    if !sys::protect(region, SMALL_OFFSET, flags::PROT_READ | flags::PROT_WRITE) {
        return false;
    }
    let Some(session) = sys::map(SESSION_BYTES, flags::PROT_READ, flags::MAP_SHARED, session_fd)
    else {
        // SAFETY: just mapped, not published.
        unsafe { sys::unmap(region, region_bytes) };
        return false;
    };
    // SAFETY: mapped, REGION_BYTES long, page aligned.
    let header = unsafe { &*region.cast::<RegionHeader>() };
    if header.magic.load(Relaxed) != REGION_MAGIC {
        return false;
    }
    // Without tables there are no stacks by unwind rows; everything else works.
    if state::TABLES.load(Relaxed).is_null()
        && let Some(tables) = sys::map(tables_bytes, flags::PROT_NONE, shared, tables_fd)
    {
        sys::advise(tables, tables_bytes, flags::MADV_DONTDUMP);
        state::TABLES_BYTES.store(tables_bytes, Relaxed);
        state::TABLES.store(tables, Relaxed);
    }
    state::MEM_MODE.store(header.mem_mode.load(Relaxed), Relaxed);
    state::CALLS.store(header.calls.load(Relaxed), Relaxed);
    state::STACK_MODE.store(header.stack_mode.load(Relaxed), Relaxed);
    state::INTERVAL.store(header.sample_interval.load(Relaxed), Relaxed);
    state::CLOCK_IS_TSC.store(header.clock_is_tsc.load(Relaxed), Relaxed);
    header.pid.store(sys::pid(), Relaxed);
    state::PID.store(sys::pid(), Relaxed);
    if !WIPE_ASKED.swap(true, Relaxed) {
        let page = (&raw const state::WIPED).cast_mut().cast::<u8>();
        // Refused by kernels before 4.14: then the `fork` hook alone tells a child.
        sys::advise(page, 4096, flags::MADV_WIPEONFORK);
    }
    stacks::prepare();
    if header.stack_mode.load(Relaxed) == stack_mode::PYTHON {
        python::attached(header);
    }
    // SAFETY: mapped above, published below.
    unsafe { ring::prepare(region, sparing) };
    state::SESSION.store(session.cast(), Release);
    state::REGION.store(region, Release);
    state::WIPED.generation.store(state::next_generation(), Release);
    true
}

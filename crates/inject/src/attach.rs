//! Attaches this process to the collector: the process sends one message and receives one with
//! three descriptors. It maps all three and leaves no descriptor open.

use crate::block::Thread;
use crate::loss::lose_child;
use crate::sys::{self, flags};
use crate::{
    arch, collector_liveness, environment, python, recent_stacks, ring, start_collector, state,
    tls_owner, unwind,
};
use core::ffi::c_ulong;
use tprof_wire::env;
use tprof_wire::handshake::{ExecArguments, Hello, Role, Welcome, hello_flags};
use tprof_wire::region::{
    REGION_BYTES, REGION_MAGIC, RegionHeader, SESSION_BYTES, SMALL_BYTES, SMALL_OFFSET,
    SPARING_REGION_BYTES, SPARING_TABLES_BYTES, TABLES_BYTES, stack_mode,
};
use tprof_wire::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Longest socket path (`sun_path` less its NUL).
const PATH_MAX: usize = 107;
/// How long a process waits for the collector's answer. Each process waits only once.
const ANSWER_NS: u64 = 5_000_000_000;
/// How long a process waits for a collector that it started.
const START_NS: u64 = 5_000_000_000;
/// Interval at which it tries to connect meanwhile.
const STEP_NS: u64 = 2_000_000;
/// After this number of collectors that exited or failed to start, a process continues without
/// recording.
const IN_VAIN_MOST: u32 = 4;

static SOCKET_PATH: PathBuffer =
    PathBuffer { bytes: [const { AtomicU32::new(0) }; PATH_MAX + 1], len: AtomicUsize::new(0) };
/// Flags of the hello message. The library's constructor sets them.
pub static HELLO_FLAGS: AtomicU32 = AtomicU32::new(0);
static WIPE_ASKED: AtomicBool = AtomicBool::new(false);

struct PathBuffer {
    bytes: [AtomicU32; PATH_MAX + 1],
    len: AtomicUsize,
}

/// The outcome of one attempt to reach a collector.
enum Answer {
    Attached,
    /// The collector refuses this process, or cannot record it.
    Refused,
    /// The collector did not answer, because it is about to exit.
    None,
    /// The collector did not answer in time: it is stopped, or slow.
    Late,
}

/// The outcome of attaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This process records.
    Attached,
    /// This process will never record.
    Never,
    /// No answer came in time; [`is_time_again`] decides when to try once more.
    Later,
}

/// Attaches this process. `again` is true if an earlier attempt got no answer. The caller has
/// blocked signals, and only one thread calls this at a time.
pub fn attach(thread: &Thread, forked: bool, again: bool) -> Outcome {
    #[cfg(all(test, loom))]
    if let Some(outcome) = crate::models::attach(forked) {
        return outcome;
    }
    let began_ns = sys::monotonic_ns();
    if !forked && !again {
        tls_owner::prepare();
        if !remember_socket() {
            return Outcome::Never;
        }
    }
    let was_asked = state::WIPED.asked.load(Relaxed) != 0;
    // A forked child doesn't wait if its parent got no answer: until it attaches, all mappings here
    // and the thread's block are still its parent's.
    let patient = !(again && !was_asked || forked && collector_liveness::is_stalled(thread));
    SEEN_CHANGED.store(changed(), Relaxed);
    let outcome = meet(forked, patient, was_asked);
    if outcome == Outcome::Later {
        ask_for_wiping();
        state::WIPED.asked.store(1, Relaxed);
    }
    if let (Outcome::Attached, Some(header)) = (outcome, state::header()) {
        header.attach_ns.store(sys::monotonic_ns().wrapping_sub(began_ns), Relaxed);
    }
    outcome
}

/// Modification time of the socket at the last attempt. The collector touches the socket when it
/// resumes, which is the only sign that a process without a connection can see.
static SEEN_CHANGED: AtomicU64 = AtomicU64::new(0);
/// Processor ticks at the last check of the socket.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
/// Ticks between checks, a few milliseconds on any processor. Each check is a system call.
const LOOK_TICKS: u64 = 1 << 24;

fn changed() -> u64 {
    let (path, _) = socket_path();
    sys::changed_at(path.as_ptr()).map_or(0, |[s, ns]| s.wrapping_mul(1_000_000_000) + ns)
}

/// Whether a process that got no answer should ask again: because the collector has resumed, or
/// because this is a forked child that never asked.
#[cold]
pub fn is_time_again() -> bool {
    if state::WIPED.asked.load(Relaxed) == 0 {
        return true;
    }
    let (now, last) = (arch::ticks(), LOOKED_AT.load(Relaxed));
    if now.wrapping_sub(last) < LOOK_TICKS
        || LOOKED_AT.compare_exchange(last, now, Relaxed, Relaxed).is_err()
    {
        return false;
    }
    changed() != SEEN_CHANGED.load(Relaxed)
}

/// Has the next check of the socket wait for its interval.
#[cfg(test)]
pub fn look_again_later() {
    LOOKED_AT.store(arch::ticks(), SeqCst);
}

/// Connects to the collector, and starts one first if necessary.
fn meet(forked: bool, patient: bool, late: bool) -> Outcome {
    const ENOENT: isize = -2;
    const EAGAIN: isize = -11;
    const ECONNREFUSED: isize = -111;
    let (path, len) = socket_path();
    let Some(path) = path.get(..len) else { return Outcome::Never };
    let mut started = None;
    let mut in_vain = 0;
    // The kernel takes a timeout of 0 for no timeout.
    let time_ns = if patient { ANSWER_NS } else { 1000 };
    for _ in 0..START_NS / STEP_NS {
        match sys::socket::connect(path, time_ns) {
            Ok(fd) => {
                // A collector of another version accepts only the plain message, and its answer
                // contains its version.
                let is_plain = forked || late || in_vain > 0;
                let answer = shake_hands(fd, forked, late, is_plain);
                sys::close(fd);
                match answer {
                    Answer::Attached => return Outcome::Attached,
                    Answer::Refused => return Outcome::Never,
                    Answer::Late => return Outcome::Later,
                    Answer::None => in_vain += 1,
                }
            }
            // So many processes wait for the collector that the socket's backlog is full.
            Err(EAGAIN) => {
                if forked {
                    lose_child(sys::pid());
                }
                return Outcome::Later;
            }
            // The session has no socket, or the socket belongs to a collector that was killed.
            Err(ENOENT | ECONNREFUSED) if !forked && may_start() => match started {
                None => match start_collector::start() {
                    None => return Outcome::Never,
                    pid => started = pid,
                },
                Some(pid) if !sys::has_ended(pid) => {}
                // Another collector was faster and has exited since, or this one could not start.
                Some(_) => {
                    started = None;
                    in_vain += 1;
                }
            },
            Err(_) => return Outcome::Never,
        }
        if in_vain >= IN_VAIN_MOST {
            return Outcome::Never;
        }
        sys::sleep_ns(STEP_NS);
    }
    Outcome::Never
}

/// Whether this process can reach the session's socket. After a change of user or of root it may
/// not.
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
    let Some(session) = environment::variable(env::SESSION) else { return false };
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

/// Whether a process that finds no collector should start one. Under `tprof env` it should on every
/// host. Under `tprof run` it should on every host except the one where the run was started.
fn may_start() -> bool {
    if environment::variable(env::BIN).is_none() {
        return false;
    }
    match environment::variable(env::HOST) {
        None => true,
        Some(host) => {
            let own = sys::host_name();
            let len = own.iter().position(|b| *b == 0).unwrap_or(own.len());
            own.get(..len) != Some(host)
        }
    }
}

fn shake_hands(fd: i32, forked: bool, late: bool, is_plain: bool) -> Answer {
    if state::STACK_TOP.load(Relaxed) == 0 {
        const AT_EXECFN: c_ulong = 31;
        // SAFETY: `getauxval` only reads the auxiliary vector.
        state::STACK_TOP.store(unsafe { getauxval(AT_EXECFN) } as usize, Relaxed);
    }
    let mut flags = HELLO_FLAGS.load(Relaxed);
    for (is_so, flag) in [(forked, hello_flags::FORKED), (late, hello_flags::LATE)] {
        flags |= if is_so { flag } else { 0 };
    }
    let hello = Hello {
        parent: sys::parent_pid(),
        flags,
        tid: sys::tid(),
        clock: arch::ticks(),
        stack_top: state::STACK_TOP.load(Relaxed) as u64,
        ..Hello::new(Role::Target, sys::pid())
    };
    // After the first attempt, and in a forked child, the program may have changed its arguments
    // and environment.
    let began = if is_plain { None } else { environment::beginning() };
    let with_beginning = began.is_some_and(|began| {
        let hello = Hello { flags: hello.flags | hello_flags::BEGAN_WITH, ..hello };
        let ExecArguments { arguments, environment } = began;
        let parts = [&hello.to_bytes()[..], &began.head(), arguments, environment];
        sys::socket::send(fd, parts)
    });
    // If the socket doesn't accept such a long message, the collector reads the arguments and
    // environment from /proc.
    if !with_beginning && !sys::socket::send(fd, [&hello.to_bytes()]) {
        return Answer::None;
    }
    let mut answer = [0u8; Welcome::BYTES];
    let fds = match sys::socket::receive(fd, &mut answer) {
        Ok(fds) => fds,
        Err(sys::socket::NoMessage::Closed) => return Answer::None,
        Err(sys::socket::NoMessage::Late) => return Answer::Late,
        Err(sys::socket::NoMessage::Other) => return Answer::Refused,
    };
    collector_liveness::COLLECTOR.store(sys::socket::peer(fd), Relaxed);
    let is_welcome = Welcome::from_bytes(&answer).is_some_and(|answer| answer.admits());
    let ok = is_welcome && map_all(fds);
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
    // Chunks and tables become accessible one by one when they are used. Pages that are
    // inaccessible don't get memory from an `mlockall` of the job.
    let shared = flags::MAP_SHARED | flags::MAP_NORESERVE;
    let Some(region) = sys::map(region_bytes, flags::PROT_NONE, shared, region_fd) else {
        return false;
    };
    // SAFETY: the region was just mapped, and nothing uses it yet.
    let is_open = unsafe {
        sys::advise(region, region_bytes, flags::MADV_DONTDUMP);
        // The first chunk becomes accessible together with the header. A separate call would split
        // the mapping once more.
        let open = SMALL_OFFSET + SMALL_BYTES;
        sys::protect(region, open, flags::PROT_READ | flags::PROT_WRITE)
    };
    let unmap_region = || {
        // SAFETY: the region was just mapped, and its address was not published.
        unsafe { sys::unmap(region, region_bytes) };
    };
    if !is_open {
        unmap_region();
        return false;
    }
    let Some(session) = sys::map(SESSION_BYTES, flags::PROT_READ, flags::MAP_SHARED, session_fd)
    else {
        unmap_region();
        return false;
    };
    // SAFETY: the region is mapped and page aligned, and its first pages, which contain the header,
    // are accessible.
    let header = unsafe { &*region.cast::<RegionHeader>() };
    if header.magic.load(Relaxed) != REGION_MAGIC {
        // SAFETY: the session page was just mapped, and its address was not published.
        unsafe { sys::unmap(session, SESSION_BYTES) };
        unmap_region();
        return false;
    }
    // Without the tables, stacks can't be unwound by rows, but everything else works.
    if state::TABLES.load(Relaxed).is_null()
        && let Some(tables) = sys::map(tables_bytes, flags::PROT_NONE, shared, tables_fd)
    {
        // SAFETY: the tables were just mapped, and nothing uses them yet.
        unsafe { sys::advise(tables, tables_bytes, flags::MADV_DONTDUMP) };
        state::TABLES_BYTES.store(tables_bytes, Relaxed);
        state::TABLES.store(tables, Relaxed);
    }
    state::MEM_MODE.store(header.mem_mode.load(Relaxed), Relaxed);
    state::CALLS.store(header.calls.load(Relaxed), Relaxed);
    state::IO.store(header.io.load(Relaxed), Relaxed);
    state::OPERATORS.store(header.operators.load(Relaxed), Relaxed);
    state::STACK_MODE.store(header.stack_mode.load(Relaxed), Relaxed);
    if let Some(path) = environment::variable(env::TEST_STACKS) {
        state::CHECK_STACKS.store(path.as_ptr().cast_mut(), Relaxed);
    }
    state::INTERVAL.store(header.sample_interval.load(Relaxed), Relaxed);
    state::HOT.clock_is_tsc.store(header.clock_is_tsc.load(Relaxed), Relaxed);
    header.pid.store(sys::pid(), Relaxed);
    state::PID.store(sys::pid(), Relaxed);
    ask_for_wiping();
    let is_forked = !state::REGION.load(Relaxed).is_null();
    unwind::prepare(is_forked);
    if !is_forked {
        unwind::set_watched_late(may_start());
    }
    recent_stacks::prepare();
    python::attached(header);
    if header.stack_mode.load(Relaxed) == stack_mode::PYTHON {
        python::prepare();
    }
    // SAFETY: `region` was mapped above, and is published only below.
    unsafe { ring::prepare(region, sparing) };
    state::SESSION.store(session.cast(), Release);
    state::REGION.store(region, Release);
    state::WIPED.generation.store(state::next_generation(), Release);
    state::attached(header);
    // The losses are read only after other threads can see that they may record. From then on these
    // threads count losses in the region, so none is missed.
    header.missed.fetch_add(state::WIPED.missed.swap(0, AcqRel), Relaxed);
    true
}

/// Makes the kernel zero the page [`state::WIPED`] in a forked child, by which the child is
/// detected.
fn ask_for_wiping() {
    if !WIPE_ASKED.swap(true, Relaxed) {
        let page = (&raw const state::WIPED).cast_mut().cast::<u8>();
        // Kernels before 4.14 refuse this. There only the `fork` hook detects a child.
        // SAFETY: `Wiped` fills a page of its own, and all its users expect zeros in a forked
        // child.
        unsafe { sys::advise(page, 4096, flags::MADV_WIPEONFORK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    /// Remembers this socket.
    fn remember(path: &[u8]) {
        for (kept, byte) in SOCKET_PATH.bytes.iter().zip(path) {
            kept.store(u32::from(*byte), SeqCst);
        }
        SOCKET_PATH.len.store(path.len(), SeqCst);
    }

    fn made(name: &str) -> (std::path::PathBuf, std::fs::File) {
        let path = std::env::temp_dir().join(format!("tprof-{name}-{}", sys::pid()));
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn a_process_asks_again_once_its_collector_has_touched_the_socket() {
        let _alone = alone();
        let (path, file) = made("touched");
        remember(path.as_os_str().as_encoded_bytes());
        assert!(is_reachable());
        SEEN_CHANGED.store(changed(), SeqCst);
        state::WIPED.asked.store(0, SeqCst);
        assert!(is_time_again(), "this process has not asked yet");
        state::WIPED.asked.store(1, SeqCst);
        LOOKED_AT.store(0, SeqCst);
        assert!(!is_time_again(), "nothing has changed");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(5)).unwrap();
        look_again_later();
        assert!(!is_time_again(), "it has just looked");
        LOOKED_AT.store(0, SeqCst);
        assert!(is_time_again());
        state::WIPED.asked.store(0, SeqCst);
        std::fs::remove_file(path).unwrap();
        assert!(!is_reachable());
        assert_eq!(changed(), 0);
        remember(b"");
    }

    #[test]
    fn a_forked_child_without_a_collector_never_attaches() {
        let _alone = alone();
        remember(b"/nonexistent/socket");
        assert!(meet(true, true, false) == Outcome::Never);
        remember(b"");
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_cut() {
        let _alone = alone();
        remember(&[b'/'; PATH_MAX + 1]);
        let (path, len) = socket_path();
        assert_eq!((len, path[PATH_MAX - 1], path[PATH_MAX]), (PATH_MAX, b'/', 0));
        remember(b"");
    }

    #[test]
    fn a_region_is_used_only_if_it_is_one() {
        let _alone = alone();
        let [region, session, tables] = ["region", "session", "tables"].map(made);
        let bytes = [REGION_BYTES, SESSION_BYTES, TABLES_BYTES];
        for ((_, file), bytes) in [&region, &session, &tables].into_iter().zip(bytes) {
            file.set_len(bytes as u64).unwrap();
        }
        let fds = [&session, &region, &tables].map(|(_, file)| file.as_raw_fd());
        let before = state::TABLES.load(SeqCst);
        assert!(!map_all([-1, -1, -1]), "there is nothing to map");
        assert!(!map_all(fds), "it is empty");
        assert!(state::REGION.load(SeqCst).is_null() && !state::is_attached());
        region.1.write_all_at(&REGION_MAGIC.to_ne_bytes(), 0).unwrap();
        state::WIPED.missed.store(3, SeqCst);
        assert!(map_all(fds));
        let header = state::header().unwrap();
        assert!(state::is_attached() && state::session().is_some());
        assert_eq!(header.pid.load(SeqCst), sys::pid());
        assert_eq!((header.missed.load(SeqCst), state::WIPED.missed.load(SeqCst)), (3, 0));
        state::WIPED.generation.store(0, SeqCst);
        state::REGION.store(core::ptr::null_mut(), SeqCst);
        state::SESSION.store(core::ptr::null_mut(), SeqCst);
        state::TABLES.store(before, SeqCst);
        for (path, _) in [region, session, tables] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

//! Stands in for NCCL. A collective is a kernel that begins to work once every rank's kernel has
//! arrived. Ranks meet in a small file that all of them map. No data is exchanged.
#![allow(unsafe_code, non_snake_case, clippy::missing_safety_doc)]

mod log;
mod meeting;
mod more;
mod profiler;

use meeting::Meeting;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_fake_cuda::engine;

const SUCCESS: c_int = 0;
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;
/// Number of bytes that a link carries in a microsecond.
const BYTES_PER_US: u64 = 50_000;

/// NCCL's `ncclUniqueId`: here, a path.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

struct Communicator {
    id: u64,
    rank: u32,
    ranks: u32,
    meeting: Meeting,
    profiled: profiler::Profiled,
}

unsafe extern "C" {
    fn cudaLaunchKernelExC(
        config: *const Config,
        stub: *const c_void,
        arguments: *mut *mut c_void,
    ) -> u32;
    #[allow(clippy::too_many_arguments)]
    fn __cudaRegisterFunction(
        handle: *mut *mut c_void,
        stub: *const c_char,
        function: *mut c_char,
        name: *const c_char,
        limit: c_int,
        thread: *mut c_void,
        block: *mut c_void,
        block_dim: *mut c_void,
        grid_dim: *mut c_void,
        warp: *mut c_int,
    );
}

#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: usize,
    stream: *mut c_void,
    attributes: *mut c_void,
    count: u32,
}

#[repr(C)]
struct Gated {
    gate: extern "C" fn(*mut c_void),
    data: *mut c_void,
    ns: u64,
}

/// A collective on its way to the device.
struct Round {
    meeting: &'static Meeting,
    /// The meeting's number within this communicator.
    number: u64,
}

extern "C" fn gate(round: *mut c_void) {
    // SAFETY: `launch` made this value with `Box::into_raw` for this kernel, which runs once.
    let round = unsafe { Box::from_raw(round.cast::<Round>()) };
    round.meeting.wait(round.number);
}

/// Returns the bytes of an element of NCCL's data types, by their number.
fn type_bytes(data_type: c_int) -> u64 {
    match data_type {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

macro_rules! kernels {
    ($($stub:ident $name:literal)*) => {
        $(static $stub: u8 = 0;)*
        fn register() {
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(|| {
                let null: *mut c_void = std::ptr::null_mut();
                for (stub, name) in [$((&raw const $stub, $name)),*] {
                    // SAFETY: these are the arguments that nvcc's code passes. The stub and the
                    // name are statics.
                    unsafe {
                        __cudaRegisterFunction(
                            null.cast(), stub.cast(), null.cast(), name.as_ptr(), -1, null, null,
                            null, null, null.cast(),
                        );
                    }
                }
            });
        }
    };
}

kernels! {
    ALL_REDUCE c"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    BROADCAST c"_Z31ncclDevKernel_Broadcast_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    REDUCE c"_Z36ncclDevKernel_Reduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    ALL_GATHER c"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    REDUCE_SCATTER c"_Z43ncclDevKernel_ReduceScatter_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"
    SEND_RECEIVE c"_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"
}

/// A group's kernel: stub, communicator, bytes, stream.
type Waiting = (usize, usize, u64, usize);

thread_local! {
    /// The depth of groups, and the kernel that waits for the end of the outermost group: one for
    /// the whole group.
    static GROUP: RefCell<(u32, Option<Waiting>)> = const { RefCell::new((0, None)) };
}

fn launch(stub: *const u8, communicator: &'static Communicator, bytes: u64, stream: *mut c_void) {
    register();
    let round = Box::new(Round {
        meeting: &communicator.meeting,
        number: communicator.meeting.next_round(),
    });
    let mut gated =
        Gated { gate, data: Box::into_raw(round).cast(), ns: 5_000 + bytes * 1000 / BYTES_PER_US };
    let config = Config {
        grid: [4, 1, 1],
        block: [512, 1, 1],
        dynamic_shared: 0,
        stream,
        attributes: std::ptr::null_mut(),
        count: 0,
    };
    let mut arguments = [stub.cast_mut().cast(), (&raw mut gated).cast()];
    // SAFETY: all arguments are local variables; the runtime's stand-in copies them before it
    // returns.
    unsafe { cudaLaunchKernelExC(&raw const config, stub.cast(), arguments.as_mut_ptr()) };
}

/// Returns a function's name without `nccl` before it.
fn short(name: &'static CStr) -> &'static CStr {
    let bytes = name.to_bytes_with_nul();
    let prefix = if bytes.starts_with(b"nccl") { 4 } else { 0 };
    CStr::from_bytes_with_nul(&bytes[prefix..]).unwrap_or(name)
}

#[allow(clippy::too_many_arguments)]
fn collective(
    name: &'static CStr,
    stub: *const u8,
    count: usize,
    data_type: c_int,
    peer: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    if communicator.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: `ncclCommInitRank` made the communicator, and communicators are never freed.
    let communicator: &'static Communicator = unsafe { &*communicator.cast::<Communicator>() };
    let bytes = count as u64 * type_bytes(data_type);
    let engine = engine();
    let start = (engine.now)();
    let grouped = GROUP.with_borrow_mut(|(depth, waiting)| {
        if *depth > 0 {
            let sum = waiting.map_or(0, |w| w.2) + bytes;
            let at = std::ptr::from_ref(communicator) as usize;
            *waiting = Some((stub as usize, at, sum, stream as usize));
        }
        *depth > 0
    });
    if !grouped {
        launch(stub, communicator, bytes, stream);
    }
    let asked = profiler::Asked::new(short(name), count as u64, data_type, peer, stream as usize);
    communicator.profiled.called(asked, grouped);
    let line = format!(
        "{{\"what\":\"collective\",\"name\":\"{}\",\"count\":{count},\"type\":{data_type},\
         \"peer\":{peer},\"communicator\":{},\"rank\":{},\"ranks\":{},\"grouped\":{grouped},\
         \"start\":{start},\"end\":{}}}",
        name.to_string_lossy(),
        communicator.id,
        communicator.rank,
        communicator.ranks,
        (engine.now)()
    );
    (engine.log)(line.as_ptr(), line.len());
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *version = 22_809 };
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    let Some(path) = meeting::new_path() else { return SYSTEM_ERROR };
    let mut bytes = [0; 128];
    for (to, from) in bytes.iter_mut().zip(path.bytes()) {
        *to = from;
    }
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *id = UniqueId(bytes) };
    SUCCESS
}

/// Like NCCL's function: it waits until all ranks have called it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    communicator: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    let Some(made) = make(&id, ranks, rank) else { return SYSTEM_ERROR };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *communicator = Box::into_raw(made).cast() };
    SUCCESS
}

/// Joins the ranks that have this id. Waits until all of them have called it.
fn make(id: &UniqueId, ranks: c_int, rank: c_int) -> Option<Box<Communicator>> {
    let end = id.0.iter().position(|b| *b == 0).unwrap_or(128);
    let path = String::from_utf8_lossy(&id.0[..end]).into_owned();
    let meeting = Meeting::open(&path, ranks as u32)?;
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (rank, ranks) = (rank as u32, ranks as u32);
    meeting.wait(meeting.next_round());
    // All ranks have mapped the file, so no rank needs its name any more.
    let _ = std::fs::remove_file(&path);
    let mut hash = std::hash::DefaultHasher::new();
    path.hash(&mut hash);
    let hash = hash.finish();
    let profiled = profiler::Profiled::new(hash, ranks, rank, "world");
    let id = NEXT.fetch_add(1, Relaxed);
    let made = Box::new(Communicator { id, rank, ranks, meeting, profiled });
    log::made((&raw const *made).cast(), hash, rank, ranks);
    Some(made)
}

/// Like NCCL's function, but the communicator stays, because kernels may still use it.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(_communicator: *mut c_void) -> c_int {
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: *mut c_void, count: *mut c_int) -> c_int {
    // SAFETY: `ncclCommInitRank` made the communicator, and the caller passes a valid pointer to
    // write the answer to.
    unsafe { *count = (*communicator.cast::<Communicator>()).ranks as c_int };
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: *mut c_void, rank: *mut c_int) -> c_int {
    // SAFETY: `ncclCommInitRank` made the communicator, and the caller passes a valid pointer to
    // write the answer to.
    unsafe { *rank = (*communicator.cast::<Communicator>()).rank as c_int };
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    if result == SUCCESS { c"no error" } else { c"an error" }.as_ptr()
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    GROUP.with_borrow_mut(|(depth, _)| *depth += 1);
    SUCCESS
}

/// Like NCCL's function: it launches one kernel for all operations of the group.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let due = GROUP.with_borrow_mut(|(depth, waiting)| {
        *depth = depth.saturating_sub(1);
        if *depth == 0 { waiting.take() } else { None }
    });
    if let Some((stub, communicator, bytes, stream)) = due {
        // SAFETY: `collective` stored the address of a communicator, and communicators are never
        // freed.
        let communicator = unsafe { &*(communicator as *const Communicator) };
        launch(stub as *const u8, communicator, bytes, stream as *mut c_void);
        profiler::group_ends();
    }
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclAllReduce", &raw const ALL_REDUCE, count, data_type, -1, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclBroadcast", &raw const BROADCAST, count, data_type, root, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn ncclReduce(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclReduce", &raw const REDUCE, count, data_type, root, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclAllGather", &raw const ALL_GATHER, count, data_type, -1, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    _from: *const c_void,
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    let stub = &raw const REDUCE_SCATTER;
    collective(c"ncclReduceScatter", stub, count, data_type, -1, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    _from: *const c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclSend", &raw const SEND_RECEIVE, count, data_type, peer, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    collective(c"ncclRecv", &raw const SEND_RECEIVE, count, data_type, peer, communicator, stream)
}

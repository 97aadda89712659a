//! Functions of NCCL that few programs call: other ways to make communicators, memory, one-sided
//! transfers, and `ncclBcast`, which NCCL implements with its own public function.

use super::{
    Communicator, INVALID_ARGUMENT, SUCCESS, SYSTEM_ERROR, UniqueId, make, ncclAllReduce,
    ncclGetUniqueId,
};
use std::ffi::{c_int, c_uint, c_void};

const IN_PROGRESS: c_int = 7;

unsafe extern "C" {
    // The call is resolved by the loader, as NCCL's own call is, so that hooks see it.
    #[link_name = "ncclBroadcast"]
    fn public_broadcast(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        data_type: c_int,
        root: c_int,
        communicator: *mut c_void,
        stream: *mut c_void,
    ) -> c_int;
    fn cudaMalloc(at: *mut *mut c_void, bytes: usize) -> c_int;
    fn cudaFree(at: *mut c_void) -> c_int;
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    data_type: c_int,
    root: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments are valid for `ncclBcast`, so they are valid for
    // `ncclBroadcast`.
    unsafe { public_broadcast(buffer, buffer, count, data_type, root, communicator, stream) }
}

/// Like NCCL's function for a non-blocking communicator: the communicator's address is available at
/// once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    _config: *mut c_void,
) -> c_int {
    let Some(made) = make(&id, ranks, rank) else { return SYSTEM_ERROR };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *communicator = Box::into_raw(made).cast() };
    IN_PROGRESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    communicator: *mut *mut c_void,
    ranks: c_int,
    rank: c_int,
    ids: c_int,
    id: *const UniqueId,
    _config: *mut c_void,
) -> c_int {
    if !(1..=ranks).contains(&ids) {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a valid array of ids; this reads the first.
    let Some(made) = make(unsafe { &*id }, ranks, rank) else { return SYSTEM_ERROR };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *communicator = Box::into_raw(made).cast() };
    SUCCESS
}

fn made_here() -> Option<Box<Communicator>> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: the answer goes to a local variable.
    (unsafe { ncclGetUniqueId(&raw mut id) } == SUCCESS).then_some(())?;
    make(&id, 1, 0)
}

fn store(communicator: *mut *mut c_void) -> c_int {
    let Some(made) = made_here() else { return SYSTEM_ERROR };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *communicator = Box::into_raw(made).cast() };
    SUCCESS
}

/// Like NCCL's function, but for one device.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitAll(
    communicators: *mut *mut c_void,
    count: c_int,
    _devices: *const c_int,
) -> c_int {
    if count == 1 { store(communicators) } else { INVALID_ARGUMENT }
}

/// Like NCCL's function, but for a communicator of one rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommSplit(
    _parent: *mut c_void,
    _colour: c_int,
    _key: c_int,
    communicator: *mut *mut c_void,
    _config: *mut c_void,
) -> c_int {
    store(communicator)
}

/// Like NCCL's function, but for a communicator of one rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommShrink(
    _parent: *mut c_void,
    _left_out: *mut c_int,
    count: c_int,
    communicator: *mut *mut c_void,
    _config: *mut c_void,
    _flags: c_int,
) -> c_int {
    // The communicator's one rank may not be left out.
    if count == 0 { store(communicator) } else { INVALID_ARGUMENT }
}

/// Like NCCL's function, but for a communicator of one rank, to which no rank is added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGrow(
    _parent: *mut c_void,
    ranks: c_int,
    id: *const UniqueId,
    rank: c_int,
    communicator: *mut *mut c_void,
    _config: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes a valid id. Ranks that are already members pass −1.
    let Some(made) = make(unsafe { &*id }, ranks, rank.max(0)) else { return SYSTEM_ERROR };
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *communicator = Box::into_raw(made).cast() };
    SUCCESS
}

/// Like NCCL's function from 2.32 on.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn ncclAllReduceConfig(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
    _config: *const c_void,
) -> c_int {
    ncclAllReduce(from, to, count, data_type, operation, communicator, stream)
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclSignal(
    _peer: c_int,
    _signal: c_int,
    _context: c_int,
    _flags: c_uint,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(at: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { cudaMalloc(at, bytes) }
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemFree(at: *mut c_void) -> c_int {
    // SAFETY: the caller passes an address that `ncclMemAlloc` returned, and frees it once.
    unsafe { cudaFree(at) }
}

/// Like NCCL's function, but no data is moved.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn ncclPutSignal(
    _from: *const c_void,
    _count: usize,
    _data_type: c_int,
    _peer: c_int,
    _window: *mut c_void,
    _offset: usize,
    _signal: c_int,
    _context: c_int,
    _flags: c_uint,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    SUCCESS
}

/// Stands in for NCCL's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn ncclWaitSignal(
    _count: c_int,
    _descriptions: *mut c_void,
    _communicator: *mut c_void,
    _stream: *mut c_void,
) -> c_int {
    SUCCESS
}

//! Implements the interface of CUDA 13.3 for several clients, each with its own kinds, calls,
//! buffers and records.
//!
//! According to NVIDIA's documentation, a process may use this interface or the older one, and calls of the one that
//! comes second are refused. This is simpler than CUPTI: a client lends one buffer for all threads, no client gets
//! callbacks, fields can't be chosen, and threads have the same ids for all clients.

use crate::{CALLS_FROM, KINDS, SYSTEM_THREADS, buffers, enter, faults, feed, lock, log_kinds};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::*};
use tprof_cupti_sys::bindings::*;
use tprof_fake_cuda::engine;

type Request = unsafe extern "C" fn(
    *mut *mut u8,
    *mut usize,
    *mut usize,
    *mut CUpti_BufferCallbackRequestInfo,
);
type Complete = unsafe extern "C" fn(*mut u8, usize, usize, *mut CUpti_BufferCallbackCompleteInfo);

struct Client {
    handle: usize,
    kinds: u64,
    muted: BTreeSet<(CUpti_ActivityKind, u32)>,
    callbacks: Option<(Request, Complete)>,
    open: Option<buffers::Buffer>,
}

static CLIENTS: Mutex<Vec<Client>> = Mutex::new(Vec::new());
/// The interface in use.
static INTERFACE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const OLDER: u32 = 1;
const NEWER: u32 = 2;

/// Functions of the older interface that are replaced in the newer one, by NVIDIA's table.
const OF_OLDER: [&str; 15] = [
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivitySetAttribute",
    "cuptiActivityGetAttribute",
    "cuptiActivityGetNumDroppedRecords",
    "cuptiActivityEnableRuntimeApi",
    "cuptiActivityEnableDriverApi",
    "cuptiActivityRegisterTimestampCallback",
    "cuptiActivityPushExternalCorrelationId",
    "cuptiActivityPopExternalCorrelationId",
    "cuptiSetThreadIdType",
    "cuptiGetTimestamp",
    "cuptiSubscribe",
    "cuptiGetThreadIdType",
];

/// Marks the interface that a function belongs to as used. Refuses if the other interface is in
/// use.
pub fn use_interface(function: &str) -> CUptiResult {
    let this = match function {
        "cuptiSubscribe_v2" => NEWER,
        _ if OF_OLDER.contains(&function) => OLDER,
        _ => return CUPTI_SUCCESS,
    };
    match INTERFACE.compare_exchange(NONE, this, SeqCst, SeqCst) {
        Err(other) if other != this => CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
        _ => CUPTI_SUCCESS,
    }
}

/// Whether the interface for several clients is in use.
pub fn are_apart() -> bool {
    INTERFACE.load(SeqCst) == NEWER
}

/// Whether CUPTI may be finalized: it may not while other clients use it.
pub fn may_finalize() -> bool {
    lock(&CLIENTS).len() <= 1
}

/// Forgets the interface in use, because CUPTI is finalized.
pub fn forget() {
    lock(&CLIENTS).clear();
    INTERFACE.store(NONE, SeqCst);
}

/// Runs `work` on a client and returns its result.
fn with(
    subscriber: CUpti_SubscriberHandle,
    work: impl FnOnce(&mut Client) -> CUptiResult,
) -> CUptiResult {
    let mut clients = lock(&CLIENTS);
    let Some(client) = clients.iter_mut().find(|client| client.handle == subscriber as usize)
    else {
        return CUPTI_ERROR_INVALID_PARAMETER;
    };
    let result = work(client);
    KINDS.store(clients.iter().fold(0, |kinds, client| kinds | client.kinds), SeqCst);
    result
}

fn word(record: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(record[at..at + 4].try_into().unwrap_or_default())
}

impl Client {
    fn wants(&self, record: &[u8]) -> bool {
        let kind = word(record, 0);
        let is_call = matches!(kind, CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER);
        self.kinds >> kind & 1 != 0 && !(is_call && self.muted.contains(&(kind, word(record, 4))))
    }
}

/// Puts a record into a buffer of each client that wants it.
pub fn put(record: &[u8]) {
    let mut full = Vec::new();
    for client in lock(&CLIENTS).iter_mut().filter(|client| client.wants(record)) {
        let Some((request, complete)) = client.callbacks else { continue };
        if let Some(buffer) = client.open.take_if(|open| !open.has_room(record)) {
            full.push((buffer, complete));
        }
        if client.open.is_none() {
            client.open = buffers::ask(|at, bytes, most| {
                let mut info = CUpti_BufferCallbackRequestInfo { structSize: size_of::<usize>() };
                // SAFETY: the client registered this function of CUPTI's type, and the pointers are to locals.
                unsafe { request(at, bytes, most, &raw mut info) };
            });
        }
        match &mut client.open {
            Some(open) => open.write(record),
            None => drop(faults::DROPPED.fetch_add(1, SeqCst)),
        }
    }
    full.into_iter().for_each(|(buffer, complete)| hand_over(buffer, complete));
}

fn hand_over(buffer: buffers::Buffer, complete: Complete) {
    let mut info = CUpti_BufferCallbackCompleteInfo {
        structSize: size_of::<CUpti_BufferCallbackCompleteInfo>(),
        threadId: 0,
        ppRecordLayouts: std::ptr::null_mut(),
        numRecordLayouts: 0,
    };
    // SAFETY: the client registered this function of CUPTI's type, and it lent the buffer.
    unsafe { complete(buffer.at as *mut u8, buffer.bytes, buffer.used, &raw mut info) };
}

/// Returns the buffers of all clients to them.
pub fn flush() {
    let take = |client: &mut Client| Some((client.open.take()?, client.callbacks?.1));
    let open: Vec<_> = lock(&CLIENTS).iter_mut().filter_map(take).collect();
    open.into_iter().for_each(|(buffer, complete)| hand_over(buffer, complete));
}

/// Stands in for CUPTI's function of this name. The first client decides whether there may be other clients.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut CUpti_SubscriberHandle,
    _callback: CUpti_CallbackFunc,
    _data: *mut c_void,
    parameters: *const CUpti_SubscriberParams,
) -> CUptiResult {
    static HANDLES: AtomicU32 = AtomicU32::new(0);
    static ALLOWS: Mutex<bool> = Mutex::new(false);
    let result = enter("cuptiSubscribe_v2");
    if result != CUPTI_SUCCESS {
        return result;
    }
    // SAFETY: the pointer is null, or the caller passes valid parameters.
    let allows =
        unsafe { parameters.as_ref() }.is_some_and(|given| given.allowMultipleSubscribers != 0);
    let mut clients = lock(&CLIENTS);
    if clients.is_empty() {
        *lock(&ALLOWS) = allows;
    } else if !allows || !*lock(&ALLOWS) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    let handle = HANDLES.fetch_add(1, SeqCst) as usize * 16 + 16;
    clients.push(Client { handle, kinds: 0, muted: BTreeSet::new(), callbacks: None, open: None });
    // SAFETY: the caller passes a valid pointer to write the answer to. The handle is opaque, and nothing dereferences
    // it.
    unsafe { *subscriber = handle as *mut CUpti_Subscriber_st };
    CUPTI_SUCCESS
}

/// Ends a client of this interface. Returns false if it isn't one.
pub fn unsubscribe(subscriber: CUpti_SubscriberHandle) -> bool {
    let is_this = |client: &Client| client.handle == subscriber as usize;
    let found = with(subscriber, |client| {
        client.kinds = 0;
        CUPTI_SUCCESS
    });
    lock(&CLIENTS).retain(|client| !is_this(client));
    found == CUPTI_SUCCESS
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks_v2(
    subscriber: CUpti_SubscriberHandle,
    request: CUpti_BuffersCallbackRequestFunc_v2,
    complete: CUpti_BuffersCallbackCompleteFunc_v2,
) -> CUptiResult {
    let (Some(request), Some(complete)) = (request, complete) else {
        return CUPTI_ERROR_INVALID_PARAMETER;
    };
    match enter("cuptiActivityRegisterCallbacks_v2") {
        CUPTI_SUCCESS => with(subscriber, |client| {
            client.callbacks = Some((request, complete));
            CUPTI_SUCCESS
        }),
        refused => refused,
    }
}

/// Stands in for CUPTI's function of this name. It refuses records of whole graphs, because CUPTI requires that they
/// are requested before the first kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable_v2(
    subscriber: CUpti_SubscriberHandle,
    kind: CUpti_ActivityKind,
    _fields: *mut CUpti_ActivityConfig,
) -> CUptiResult {
    let result = enter("cuptiActivityEnable_v2");
    if result != CUPTI_SUCCESS {
        return result;
    }
    if kind >= 64 || crate::records::size(kind) == 0 {
        return CUPTI_ERROR_INVALID_KIND;
    }
    if kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE {
        return CUPTI_ERROR_NOT_COMPATIBLE;
    }
    let is_first = !crate::is_on(kind);
    let result = with(subscriber, |client| {
        client.kinds |= 1 << kind;
        client.muted.retain(|(of, _)| *of != kind);
        CUPTI_SUCCESS
    });
    if result == CUPTI_SUCCESS {
        if kind == CUPTI_ACTIVITY_KIND_RUNTIME && is_first {
            CALLS_FROM.store((engine().now)(), SeqCst);
        }
        log_kinds();
        feed();
    }
    result
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable_v2(
    subscriber: CUpti_SubscriberHandle,
    kind: CUpti_ActivityKind,
    _fields: *mut CUpti_ActivityConfig,
) -> CUptiResult {
    match enter("cuptiActivityDisable_v2") {
        CUPTI_SUCCESS if kind < 64 => with(subscriber, |client| {
            client.kinds &= !(1 << kind);
            CUPTI_SUCCESS
        }),
        refused => refused,
    }
}

/// Stands in for CUPTI's function of this name. It only sets how threads are identified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute_v2(
    subscriber: CUpti_SubscriberHandle,
    attribute: CUpti_ActivityAttribute,
    _bytes: *mut usize,
    value: *mut c_void,
) -> CUptiResult {
    let result = enter("cuptiActivitySetAttribute_v2");
    if result == CUPTI_SUCCESS && attribute == CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE {
        // SAFETY: the caller passes a value of this type, which the header documents for the attribute.
        let kind = unsafe { *value.cast::<CUpti_ActivityThreadIdType>() };
        SYSTEM_THREADS.store(kind == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, SeqCst);
    }
    match result {
        CUPTI_SUCCESS => with(subscriber, |_| CUPTI_SUCCESS),
        refused => refused,
    }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord_v2(
    subscriber: CUpti_SubscriberHandle,
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut CUpti_Activity,
) -> CUptiResult {
    match with(subscriber, |_| CUPTI_SUCCESS) {
        // SAFETY: this function's caller passes a buffer that CUPTI returned, and the record before
        // or null.
        CUPTI_SUCCESS => unsafe { crate::cuptiActivityGetNextRecord(buffer, valid, record) },
        refused => refused,
    }
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords_v2(
    subscriber: CUpti_SubscriberHandle,
    _context: CUcontext,
    _stream: u32,
    dropped: *mut usize,
) -> CUptiResult {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *dropped = faults::DROPPED.swap(0, SeqCst) };
    with(subscriber, |_| CUPTI_SUCCESS)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp_v2(
    subscriber: CUpti_SubscriberHandle,
    time: *mut u64,
) -> CUptiResult {
    // SAFETY: the caller passes a valid pointer to write the answer to.
    unsafe { *time = (engine().stamp)((engine().now)()) };
    with(subscriber, |_| CUPTI_SUCCESS)
}

fn choose(
    subscriber: CUpti_SubscriberHandle,
    kind: CUpti_ActivityKind,
    call: u32,
    on: u8,
) -> CUptiResult {
    with(subscriber, |client| {
        match on {
            0 => client.muted.insert((kind, call)),
            _ => client.muted.remove(&(kind, call)),
        };
        CUPTI_SUCCESS
    })
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi_v2(
    subscriber: CUpti_SubscriberHandle,
    call: CUpti_CallbackId,
    on: u8,
) -> CUptiResult {
    choose(subscriber, CUPTI_ACTIVITY_KIND_RUNTIME, call, on)
}

/// Stands in for CUPTI's function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi_v2(
    subscriber: CUpti_SubscriberHandle,
    call: CUpti_CallbackId,
    on: u8,
) -> CUptiResult {
    choose(subscriber, CUPTI_ACTIVITY_KIND_DRIVER, call, on)
}

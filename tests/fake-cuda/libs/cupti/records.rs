//! Makes records that are identical, byte for byte, to those of CUPTI 12.9 and 13.5.

use crate::{
    CALLS_FROM, SYSTEM_THREADS, buffers, clock, external, faults, is_on, major, muted, replay,
    sampling, version,
};
use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_cupti_sys::bindings::*;
use tprof_cupti_sys::record::{GraphTrace2, ON_HOST};
use tprof_fake_cuda::{Happened, Launch, Place, engine, memory};

/// Numbers of calls that end a context.
const RESET: u32 = CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020;
const DRIVER_RESET: u32 = 545;
const DESTROY: u32 = 322;
/// A kind that CUPTI does not define.
const UNKNOWN: CUpti_ActivityKind = 63;
const UNKNOWN_BYTES: usize = 48;
/// Bytes of `CUpti_ActivityCdpKernel`, by the headers of CUDA 12 and 13.
const NESTED_BYTES: usize = 144;

/// Returns the bytes of a record of this kind, or 0 for kinds that this module does not make.
pub fn size(kind: CUpti_ActivityKind) -> usize {
    if let Some(replay) = replay::replay() {
        return replay.size(kind);
    }
    let new = major() == 13;
    let of = |old: usize, now: usize| if new { now } else { old };
    match kind {
        CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
            of(size_of::<CUpti_ActivityKernel9>(), size_of::<CUpti_ActivityKernel13>())
        }
        CUPTI_ACTIVITY_KIND_MEMCPY => {
            of(size_of::<CUpti_ActivityMemcpy6>(), size_of::<CUpti_ActivityMemcpy7>())
        }
        CUPTI_ACTIVITY_KIND_MEMCPY2 => size_of::<CUpti_ActivityMemcpyPtoP4>(),
        CUPTI_ACTIVITY_KIND_MEMSET => {
            of(size_of::<CUpti_ActivityMemset4>(), size_of::<CUpti_ActivityMemset5>())
        }
        CUPTI_ACTIVITY_KIND_MEMORY2 => size_of::<CUpti_ActivityMemory4>(),
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION => size_of::<CUpti_ActivitySynchronization2>(),
        CUPTI_ACTIVITY_KIND_OVERHEAD => size_of::<CUpti_ActivityOverhead3>(),
        CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER => size_of::<CUpti_ActivityAPI>(),
        CUPTI_ACTIVITY_KIND_CONTEXT => {
            of(size_of::<CUpti_ActivityContext3>(), size_of::<CUpti_ActivityContext4>())
        }
        CUPTI_ACTIVITY_KIND_DEVICE => {
            of(size_of::<CUpti_ActivityDevice5>(), size_of::<CUpti_ActivityDevice6>())
        }
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE => size_of::<GraphTrace2>(),
        CUPTI_ACTIVITY_KIND_STREAM => size_of::<CUpti_ActivityStream>(),
        CUPTI_ACTIVITY_KIND_NAME => size_of::<CUpti_ActivityName>(),
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => size_of::<CUpti_ActivityExternalCorrelation>(),
        UNKNOWN => UNKNOWN_BYTES,
        CUPTI_ACTIVITY_KIND_CDP_KERNEL => NESTED_BYTES,
        _ => 0,
    }
}

/// Writes a record into the buffer of a thread, and the faulty records that follow it.
fn write<T>(thread: u32, record: &T) {
    // SAFETY: `record` is a plain struct without uninitialized bytes, because its padding was
    // zeroed.
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>())
    };
    buffers::put(thread, bytes);
    static UNKNOWNS: AtomicU64 = AtomicU64::new(0);
    static NESTED: AtomicU64 = AtomicU64::new(0);
    static BROKEN: AtomicU64 = AtomicU64::new(0);
    if faults::turn("unknown", &UNKNOWNS) {
        let mut record = [0u8; UNKNOWN_BYTES];
        record[..4].copy_from_slice(&UNKNOWN.to_ne_bytes());
        buffers::put(thread, &record);
    }
    if faults::turn("nested", &NESTED) {
        let mut record = [0u8; NESTED_BYTES];
        record[..4].copy_from_slice(&CUPTI_ACTIVITY_KIND_CDP_KERNEL.to_ne_bytes());
        buffers::put(thread, &record);
    }
    if faults::turn("broken", &BROKEN) {
        buffers::put(thread, &[0; 8]);
    }
}

macro_rules! record {
    ($type:ty, $kind:expr, $($field:ident: $value:expr),* $(,)?) => {{
        // SAFETY: all fields of records are integers and raw pointers, for which zero is valid.
        let mut record: $type = unsafe { zeroed() };
        record.kind = $kind;
        $(record.$field = $value as _;)*
        record
    }};
}

/// Makes the struct of this CUPTI's version, with the same fields.
macro_rules! versioned {
    ($thread:expr, $old:ty, $new:ty, $kind:expr, $($rest:tt)*) => {
        if major() == 12 {
            write($thread, &record!($old, $kind, $($rest)*))
        } else {
            write($thread, &record!($new, $kind, $($rest)*))
        }
    };
}

/// Makes the records of an event, if its kind is collected.
pub extern "C" fn take(place: *const Place, start: u64, end: u64, what: *const Happened) {
    // SAFETY: the driver's stand-in passes pointers that are valid during this call.
    let (place, what) = unsafe { (&*place, &*what) };
    let call = matches!(what, Happened::Call(..) | Happened::DriverCall(..));
    if call && start < CALLS_FROM.load(Relaxed) {
        return;
    }
    if let Happened::Call(RESET, ..) | Happened::DriverCall(DRIVER_RESET | DESTROY, ..) = what
        && faults::is_set("reset")
    {
        buffers::forget();
    }
    let stamp = |time| clock::of((engine().stamp)(time));
    let is_late = end == u64::MAX;
    let (start, end) = (stamp(start), stamp(end));
    if let Happened::Kernel(launch) = what {
        // SAFETY: the driver's stand-in passes a name that ends with a zero.
        sampling::ran(place.context, unsafe { CStr::from_ptr(launch.name) });
    }
    // Nodes have no records of their own if whole graphs have records.
    let whole = is_on(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    if whole && place.graph != 0 && !matches!(what, Happened::Graph) {
        return;
    }
    match what {
        Happened::Graph if whole => {
            let record = GraphTrace2 {
                kind: CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
                correlationId: place.correlation,
                start,
                end,
                deviceId: if faults::is_set("hoststart") { ON_HOST } else { place.device },
                graphId: place.graph,
                contextId: if faults::is_set("hoststart") { ON_HOST } else { place.context },
                streamId: place.stream,
                reserved: std::ptr::null_mut(),
                endDeviceId: place.device,
                endContextId: place.context,
            };
            write(0, &record);
        }
        Happened::Kernel(launch) if is_on(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) => {
            kernel(place, start, end, launch);
        }
        Happened::Copy(bytes, kind, from, to) if is_on(CUPTI_ACTIVITY_KIND_MEMCPY) => {
            versioned!(0, CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy7, CUPTI_ACTIVITY_KIND_MEMCPY,
                start: start, end: end, bytes: *bytes, copyKind: *kind, srcKind: *from,
                dstKind: *to, flags: CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, deviceId: place.device,
                contextId: place.context, streamId: place.stream,
                correlationId: place.correlation, graphId: place.graph, graphNodeId: place.node);
        }
        Happened::Fill(bytes, value, kind) if is_on(CUPTI_ACTIVITY_KIND_MEMSET) => {
            versioned!(0, CUpti_ActivityMemset4, CUpti_ActivityMemset5, CUPTI_ACTIVITY_KIND_MEMSET,
                start: start, end: end, bytes: *bytes, value: *value, memoryKind: *kind,
                deviceId: place.device, contextId: place.context, streamId: place.stream,
                correlationId: place.correlation, graphId: place.graph, graphNodeId: place.node);
        }
        Happened::Call(number, thread, result) if is_on(CUPTI_ACTIVITY_KIND_RUNTIME) => {
            externals(*thread, place.correlation);
            let kind = CUPTI_ACTIVITY_KIND_RUNTIME;
            call_record(kind, *number, *thread, *result, place.correlation, (start, end));
        }
        Happened::DriverCall(number, thread, result) if is_on(CUPTI_ACTIVITY_KIND_DRIVER) => {
            let kind = CUPTI_ACTIVITY_KIND_DRIVER;
            call_record(kind, *number, *thread, *result, place.correlation, (start, end));
        }
        Happened::PeerCopy(bytes, from, to) if is_on(CUPTI_ACTIVITY_KIND_MEMCPY2) => {
            write(
                0,
                &record!(CUpti_ActivityMemcpyPtoP4, CUPTI_ACTIVITY_KIND_MEMCPY2,
                copyKind: CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, srcKind: memory::DEVICE,
                dstKind: memory::DEVICE, flags: CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC, bytes: *bytes,
                start: start, end: end, deviceId: place.device, contextId: place.context,
                streamId: place.stream, srcDeviceId: *from, dstDeviceId: *to,
                correlationId: place.correlation, graphId: place.graph, graphNodeId: place.node),
            );
        }
        // The first release of CUPTI 13.0 lacks this record.
        Happened::Wait(CONTEXT_WAIT, _) if version() == 130_000 => {}
        Happened::Wait(kind, event) if is_on(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) => {
            write(
                0,
                &record!(CUpti_ActivitySynchronization2, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                start: start, end: end, type_: *kind, contextId: place.context,
                streamId: place.stream, correlationId: place.correlation, cudaEventId: *event),
            );
        }
        Happened::Memory(operation, kind, address, bytes) if is_on(CUPTI_ACTIVITY_KIND_MEMORY2) => {
            let kind = match *kind {
                memory::PINNED | memory::DEVICE | memory::MANAGED => *kind,
                _ if !faults::is_set("everything") => return,
                memory::ARRAY => memory::ARRAY,
                memory::REGISTERED => memory::PINNED,
                _ => memory::DEVICE,
            };
            changed(place, start, (*operation, kind, *address, *bytes), None);
        }
        Happened::PoolMemory(operation, address, bytes, pool)
            if is_on(CUPTI_ACTIVITY_KIND_MEMORY2) =>
        {
            changed(place, start, (*operation, memory::DEVICE, *address, *bytes), Some(*pool));
        }
        Happened::Context(null) if faults::is_set("contexts") && !is_late => {
            LATE.lock().unwrap().push((*place, *null));
        }
        Happened::Context(null) if is_on(CUPTI_ACTIVITY_KIND_CONTEXT) => {
            versioned!(0, CUpti_ActivityContext3, CUpti_ActivityContext4,
                CUPTI_ACTIVITY_KIND_CONTEXT, contextId: place.context, deviceId: place.device,
                computeApiKind: 1, nullStreamId: *null);
        }
        Happened::Stream(priority) if is_on(CUPTI_ACTIVITY_KIND_STREAM) => {
            write(
                0,
                &record!(CUpti_ActivityStream, CUPTI_ACTIVITY_KIND_STREAM,
                contextId: place.context, streamId: place.stream, priority: *priority, flag: 1,
                correlationId: place.correlation),
            );
        }
        Happened::Device if faults::is_set("devices") => {}
        Happened::Device if is_on(CUPTI_ACTIVITY_KIND_DEVICE) => {
            versioned!(0, CUpti_ActivityDevice5, CUpti_ActivityDevice6, CUPTI_ACTIVITY_KIND_DEVICE,
                id: place.device, name: c"Simulated GPU".as_ptr(), computeCapabilityMajor: 9,
                computeCapabilityMinor: 0, globalMemorySize: tprof_fake_cuda::device_bytes(),
                numMultiprocessors: 132, coreClockRate: 1_980_000, globalMemoryBandwidth: 3_350_000_000u64,
                l2CacheSize: 50 << 20, numThreadsPerWarp: 32, maxThreadsPerBlock: 1024,
                maxWarpsPerMultiprocessor: 64, maxBlocksPerMultiprocessor: 32,
                maxSharedMemoryPerMultiprocessor: 233_472, maxSharedMemoryPerBlock: 49_152,
                maxRegistersPerMultiprocessor: 65_536, maxRegistersPerBlock: 65_536,
                uuid: CUuuid_st { bytes: tprof_fake_cuda::uuid(place.device).map(|byte| byte as _) });
        }
        _ => {}
    }
}

/// Records a change of memory: operation, kind, address, bytes; and the pool's address, size and
/// use.
fn changed(
    place: &Place,
    time: u64,
    (operation, kind, address, bytes): (u32, u32, u64, u64),
    pool: Option<[u64; 3]>,
) {
    let mut record = record!(CUpti_ActivityMemory4, CUPTI_ACTIVITY_KIND_MEMORY2,
        memoryOperationType: operation, memoryKind: kind, address: address, bytes: bytes,
        timestamp: time, processId: std::process::id(), deviceId: place.device,
        contextId: place.context, streamId: place.stream, correlationId: place.correlation,
        isAsync: pool.is_some());
    if let Some([at, size, used]) = pool {
        record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
        record.memoryPoolConfig.address = at;
        record.memoryPoolConfig.pool.size = size;
        record.memoryPoolConfig.utilizedSize = used;
    }
    write(0, &record);
}

/// Value of `CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE`.
const CONTEXT_WAIT: u32 = 4;

/// Contexts whose records come last.
static LATE: Mutex<Vec<(Place, u32)>> = Mutex::new(Vec::new());

/// Writes the records of contexts that were held back.
pub fn late_contexts() {
    for (place, null) in std::mem::take(&mut *LATE.lock().unwrap()) {
        take(&raw const place, 0, u64::MAX, &Happened::Context(null));
    }
}

/// Records a call of the runtime or the driver.
fn call_record(
    kind: CUpti_ActivityKind,
    number: u32,
    thread: u32,
    result: u32,
    correlation: u32,
    (start, end): (u64, u64),
) {
    if muted::is(kind, number) {
        return;
    }
    // SAFETY: pthread_self has no preconditions.
    let own = unsafe { libc::pthread_self() } as u32;
    let named = if SYSTEM_THREADS.load(Relaxed) { thread } else { own };
    write(
        thread,
        &record!(CUpti_ActivityAPI, kind, start: start, end: end, cbid: number,
        processId: std::process::id(), threadId: named, correlationId: correlation,
        returnValue: result),
    );
}

/// Records the external ids that the calling thread has pushed, before the record of its call.
fn externals(thread: u32, correlation: u32) {
    if !is_on(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        return;
    }
    external::each(|kind, id| {
        let line = format!(
            "{{\"what\":\"external\",\"kind\":{kind},\"id\":{id},\"correlation\":{correlation}}}"
        );
        (engine().log)(line.as_ptr(), line.len());
        write(
            thread,
            &record!(CUpti_ActivityExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            externalKind: kind, externalId: id, correlationId: correlation),
        );
    });
}

/// Records time that CUPTI itself spent after a kernel, on this process's first thread.
fn overhead(end: u64) {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    if !is_on(CUPTI_ACTIVITY_KIND_OVERHEAD) || !faults::turn("overhead", &TURNS) {
        return;
    }
    // SAFETY: pthread_self has no preconditions.
    let cut = unsafe { libc::pthread_self() } as u32;
    // Before CUDA 12.4 the thread's id is a truncated `pthread_t`, whatever id type was chosen.
    let thread = if crate::version() < 22 { cut } else { std::process::id() };
    let (start, end) = (end, end + 5_000);
    let kind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
    let owner = CUpti_ActivityObjectKindId {
        pt: CUpti_ActivityObjectKindId__bindgen_ty_1 { processId: thread, threadId: thread },
    };
    let line = format!(
        "{{\"what\":\"overhead\",\"kind\":{kind},\"thread\":{thread},\"length\":{}}}",
        end - start
    );
    (engine().log)(line.as_ptr(), line.len());
    let mut record = record!(CUpti_ActivityOverhead3, CUPTI_ACTIVITY_KIND_OVERHEAD,
        overheadKind: kind, objectKind: CUPTI_ACTIVITY_OBJECT_THREAD, start: start, end: end);
    record.objectId = owner;
    write(0, &record);
}

fn kernel(place: &Place, start: u64, end: u64, launch: &Launch) {
    static DROPS: AtomicU64 = AtomicU64::new(0);
    static ZEROS: AtomicU64 = AtomicU64::new(0);
    if faults::turn("drop", &DROPS) {
        faults::DROPPED.fetch_add(1, SeqCst);
        return faults::log("dropped", place.correlation, place.node);
    }
    let mut times = (start, end);
    if faults::turn("zero", &ZEROS) {
        faults::log("no times", place.correlation, place.node);
        times = (0, 0);
    }
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    versioned!(0, CUpti_ActivityKernel9, CUpti_ActivityKernel13,
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        start: times.0, end: times.1, completed: times.1, deviceId: place.device,
        contextId: place.context, streamId: place.stream, gridX: gx, gridY: gy, gridZ: gz,
        blockX: bx, blockY: by, blockZ: bz, staticSharedMemory: launch.static_shared,
        dynamicSharedMemory: launch.dynamic_shared, registersPerThread: launch.registers,
        correlationId: place.correlation, gridId: place.correlation, name: launch.name,
        graphId: place.graph, graphNodeId: place.node, channelID: 1, channelType: 1);
    overhead(end);
}

/// Returns the name of a runtime call with its version, as CUPTI has it.
pub fn name_of(number: u32) -> Option<&'static CStr> {
    macro_rules! names {
        ($($constant:ident $name:literal)*) => {
            match number { $($constant => Some($name),)* _ => None }
        };
    }
    // Calls that `tprof-cupti-sys` does not list.
    let unlisted = match number {
        161 => Some(c"cudaMemcpyPeerAsync_v4000"),
        215 => Some(c"cudaMemcpy_ptds_v7000"),
        225 => Some(c"cudaMemcpyAsync_ptsz_v7000"),
        233 => Some(c"cudaMemset_ptds_v7000"),
        242 => Some(c"cudaEventRecord_ptsz_v7000"),
        316 => Some(c"cudaStreamBeginCapture_ptsz_v10000"),
        320 => Some(c"cudaStreamEndCapture_ptsz_v10000"),
        374 => Some(c"cudaMallocAsync_ptsz_v11020"),
        376 => Some(c"cudaFreeAsync_ptsz_v11020"),
        _ => None,
    };
    if unlisted.is_some() {
        return unlisted;
    }
    names! {
        CUPTI_RUNTIME_TRACE_CBID_cudaGetDeviceCount_v3020 c"cudaGetDeviceCount_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020 c"cudaSetDevice_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020 c"cudaGetDevice_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020 c"cudaGetLastError_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020 c"cudaPeekAtLastError_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000 c"cudaProfilerStart_v4000"
        CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000 c"cudaProfilerStop_v4000"
        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 c"cudaLaunchKernel_v7000"
        CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060 c"cudaLaunchKernelExC_v11060"
        CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020 c"cudaMalloc_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020 c"cudaFree_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020 c"cudaMallocAsync_v11020"
        CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_v11020 c"cudaFreeAsync_v11020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020 c"cudaMallocHost_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020 c"cudaHostAlloc_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaFreeHost_v3020 c"cudaFreeHost_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMallocManaged_v6000 c"cudaMallocManaged_v6000"
        CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020 c"cudaMemcpy_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020 c"cudaMemcpyAsync_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020 c"cudaMemset_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020 c"cudaMemsetAsync_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamCreate_v3020 c"cudaStreamCreate_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamCreateWithFlags_v5000 c"cudaStreamCreateWithFlags_v5000"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamDestroy_v5050 c"cudaStreamDestroy_v5050"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020 c"cudaStreamSynchronize_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020 c"cudaDeviceReset_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020 c"cudaDeviceSynchronize_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020 c"cudaStreamWaitEvent_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020 c"cudaEventCreateWithFlags_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020 c"cudaEventDestroy_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020 c"cudaEventRecord_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020 c"cudaEventSynchronize_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020 c"cudaEventQuery_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaEventElapsedTime_v3020 c"cudaEventElapsedTime_v3020"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamBeginCapture_v10000 c"cudaStreamBeginCapture_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamEndCapture_v10000 c"cudaStreamEndCapture_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000 c"cudaStreamIsCapturing_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphInstantiate_v12000 c"cudaGraphInstantiate_v12000"
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 c"cudaGraphLaunch_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphDestroy_v10000 c"cudaGraphDestroy_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaGraphExecDestroy_v10000 c"cudaGraphExecDestroy_v10000"
        CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000 c"cudaMemsetAsync_ptsz_v7000"
        CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_ptsz_v7000 c"cudaStreamSynchronize_ptsz_v7000"
        CUPTI_RUNTIME_TRACE_CBID___cudaGetKernel_v13000 c"__cudaGetKernel_v13000"
        CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000 c"__cudaLaunchKernel_v13000"
        CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000 c"__cudaLaunchKernel_ptsz_v13000"
    }
}

//! Decodes CUPTI's records into tprof's. It reads only the beginning of each record: the fields
//! that have the same offset in every version of CUDA 12 and 13 (see `tprof-cupti-sys`).

use core::ffi::{CStr, c_char};
use tprof_cupti_sys::record::{GraphTrace, GraphTrace2, ON_HOST};
use tprof_cupti_sys::*;
use tprof_wire::gpu;
use tprof_wire::record::ExtKind;

/// Words of the longest payload.
const MOST: usize = 16;

/// A decoded record in tprof's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Kind of the record.
    pub kind: ExtKind,
    words: [u64; MOST],
    len: usize,
}

impl Decoded {
    /// The record's payload words.
    #[inline(always)]
    pub fn payload(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&self.words)
    }
}

/// Why a record is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The record has no times, because CUPTI lacked the memory for them.
    NoTimes,
    /// The record's kind was not enabled, or is unknown.
    Unknown,
    /// The record contains nothing that tprof uses.
    Idle,
}

/// Resolves names to the ids of texts.
pub trait Names {
    /// The id of a text.
    fn text(&mut self, text: &[u8]) -> u32;
    /// The id of a call's name, by domain and number.
    fn call(&mut self, domain: CUpti_CallbackDomain, number: u32) -> u32;
    /// Whether tprof's records leave out this call of a thread.
    fn is_left_out(&self, _driver: bool, _number: u32, _thread: u32) -> bool {
        false
    }
    /// Whether records of CUPTI's overhead name threads by the kernel's ids.
    fn names_threads_of_overhead(&self) -> bool {
        true
    }
}

#[inline(always)]
fn decoded<const N: usize>(kind: ExtKind, payload: [u64; N]) -> Result<Decoded, Skip> {
    let mut words = [0; MOST];
    for (to, from) in words.iter_mut().zip(payload) {
        *to = from;
    }
    Ok(Decoded { kind, words, len: N })
}

/// The id of the text that a record points at; the pointer may be null.
///
/// # Safety
/// `at` is null or points at a NUL-terminated string.
unsafe fn text(names: &mut impl Names, at: *const c_char) -> u32 {
    if at.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees a NUL-terminated string, and it isn't null.
    names.text(unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// Decodes one record.
///
/// # Safety
/// CUPTI (12.0 or newer) returned `record`, in a buffer that has not been recycled yet.
pub unsafe fn decode(
    record: *const CUpti_Activity,
    names: &mut impl Names,
) -> Result<Decoded, Skip> {
    // SAFETY: the caller guarantees a record of CUPTI's. A record of each kind begins with the
    // fields of the struct through which it is read here.
    unsafe {
        match (*record).kind {
            CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL | CUPTI_ACTIVITY_KIND_KERNEL => {
                kernel(&*record.cast::<record::Kernel>(), names)
            }
            CUPTI_ACTIVITY_KIND_GRAPH_TRACE => whole_graph(record.cast(), names),
            CUPTI_ACTIVITY_KIND_MEMCPY => copy(&*record.cast::<record::Memcpy>()),
            CUPTI_ACTIVITY_KIND_MEMCPY2 => peer_copy(&*record.cast::<record::MemcpyPeer>()),
            CUPTI_ACTIVITY_KIND_MEMSET => fill(&*record.cast::<record::Memset>()),
            CUPTI_ACTIVITY_KIND_RUNTIME => call(&*record.cast::<record::Api>(), false, names),
            CUPTI_ACTIVITY_KIND_DRIVER => call(&*record.cast::<record::Api>(), true, names),
            CUPTI_ACTIVITY_KIND_SYNCHRONIZATION => wait(&*record.cast::<record::Synchronization>()),
            CUPTI_ACTIVITY_KIND_MEMORY2 => memory(&*record.cast::<record::Memory>()),
            CUPTI_ACTIVITY_KIND_OVERHEAD => overhead(&*record.cast::<record::Overhead>(), names),
            CUPTI_ACTIVITY_KIND_DEVICE => device(&*record.cast::<record::Device>(), names),
            CUPTI_ACTIVITY_KIND_CONTEXT => {
                let r = &*record.cast::<record::Context>();
                let context = gpu::Context {
                    context: r.contextId,
                    device: r.deviceId,
                    null_stream: u32::from(r.nullStreamId),
                };
                decoded(ExtKind::Context, context.pack())
            }
            CUPTI_ACTIVITY_KIND_STREAM => {
                let r = &*record.cast::<record::Stream>();
                let stream =
                    gpu::Stream { context: r.contextId, stream: r.streamId, priority: r.priority };
                decoded(ExtKind::Stream, stream.pack())
            }
            CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => {
                let r = &*record.cast::<record::ExternalCorrelation>();
                let external = gpu::External {
                    id: r.externalId,
                    correlation: r.correlationId,
                    kind: r.externalKind,
                };
                decoded(ExtKind::External, external.pack())
            }
            // CUPTI 12.6 writes records of events together with the waits; 13.0 writes none.
            CUPTI_ACTIVITY_KIND_NAME | CUPTI_ACTIVITY_KIND_CUDA_EVENT => Err(Skip::Idle),
            _ => Err(Skip::Unknown),
        }
    }
}

fn has_times(start: u64, end: u64) -> Result<(), Skip> {
    if start == 0 || end < start { Err(Skip::NoTimes) } else { Ok(()) }
}

#[inline(always)]
unsafe fn kernel(r: &record::Kernel, names: &mut impl Names) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    // A time that CUPTI did not measure is 0 or has all bits set.
    let measured = |time: u64| if time == u64::MAX { 0 } else { time };
    let kernel = gpu::Kernel {
        start: r.start,
        end: r.end,
        queued: measured(r.queued),
        submitted: measured(r.submitted),
        node: r.graphNodeId,
        correlation: r.correlationId,
        stream: r.streamId,
        // SAFETY: CUPTI's names are NUL-terminated strings.
        name: unsafe { text(names, r.name) },
        graph: r.graphId,
        device: r.deviceId,
        context: r.contextId,
        grid_x: r.gridX as u32,
        grid_y: r.gridY as u32,
        grid_z: r.gridZ as u32,
        block_x: r.blockX as u32,
        block_y: r.blockY as u32,
        block_z: r.blockZ as u32,
        registers: u32::from(r.registersPerThread),
        shared_static: r.staticSharedMemory as u32,
        shared_dynamic: r.dynamicSharedMemory as u32,
    };
    decoded(ExtKind::Kernel, kernel.pack())
}

/// Decodes a graph that ran as a whole. The result is a kernel without blocks, whose name has the
/// graph's number.
///
/// # Safety
/// `record` is a record of CUPTI's of the kind `GRAPH_TRACE`.
unsafe fn whole_graph(record: *const GraphTrace, names: &mut impl Names) -> Result<Decoded, Skip> {
    // SAFETY: the caller guarantees a record of a graph, which has these fields.
    let r = unsafe { &*record };
    has_times(r.start, r.end)?;
    let (device, context) = match r.deviceId {
        // SAFETY: only records of the second version have this device number. These also have the
        // device on which the graph ended.
        ON_HOST => unsafe {
            let end = &*record.cast::<GraphTrace2>();
            (end.endDeviceId, end.endContextId)
        },
        device => (device, r.contextId),
    };
    let mut text = *b"CUDA graph 4294967295";
    const PREFIX: usize = b"CUDA graph ".len();
    let (mut rest, mut len) = (r.graphId, PREFIX);
    let digits = r.graphId.checked_ilog10().unwrap_or(0) as usize + 1;
    for at in (PREFIX..PREFIX + digits).rev() {
        if let Some(place) = text.get_mut(at) {
            *place = b'0' + (rest % 10) as u8;
        }
        (rest, len) = (rest / 10, len + 1);
    }
    let kernel = gpu::Kernel {
        start: r.start,
        end: r.end,
        correlation: r.correlationId,
        stream: r.streamId,
        name: names.text(text.get(..len).unwrap_or(&text)),
        graph: r.graphId,
        device,
        context,
        ..gpu::Kernel::default()
    };
    decoded(ExtKind::Kernel, kernel.pack())
}

fn copy(r: &record::Memcpy) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    let copy = gpu::Copy {
        start: r.start,
        end: r.end,
        bytes: r.bytes,
        node: r.graphNodeId,
        correlation: r.correlationId,
        stream: r.streamId,
        graph: r.graphId,
        device: r.deviceId,
        context: r.contextId,
        kind: u32::from(r.copyKind),
        from: u32::from(r.srcKind),
        to: u32::from(r.dstKind),
        flags: u32::from(r.flags),
        peer: 0,
    };
    decoded(ExtKind::Copy, copy.pack())
}

fn peer_copy(r: &record::MemcpyPeer) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    let other = if r.deviceId == r.srcDeviceId { r.dstDeviceId } else { r.srcDeviceId };
    let copy = gpu::Copy {
        start: r.start,
        end: r.end,
        bytes: r.bytes,
        node: r.graphNodeId,
        correlation: r.correlationId,
        stream: r.streamId,
        graph: r.graphId,
        device: r.deviceId,
        context: r.contextId,
        kind: u32::from(r.copyKind),
        from: u32::from(r.srcKind),
        to: u32::from(r.dstKind),
        flags: u32::from(r.flags),
        peer: other.wrapping_add(1),
    };
    decoded(ExtKind::Copy, copy.pack())
}

fn fill(r: &record::Memset) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    let copy = gpu::Copy {
        start: r.start,
        end: r.end,
        bytes: r.bytes,
        node: r.graphNodeId,
        correlation: r.correlationId,
        stream: r.streamId,
        graph: r.graphId,
        device: r.deviceId,
        context: r.contextId,
        kind: gpu::FILL,
        from: r.value,
        to: u32::from(r.memoryKind),
        flags: u32::from(r.flags),
        peer: 0,
    };
    decoded(ExtKind::Copy, copy.pack())
}

#[inline(always)]
fn call(r: &record::Api, driver: bool, names: &mut impl Names) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    if names.is_left_out(driver, r.cbid, r.threadId) {
        return Err(Skip::Idle);
    }
    let domain = if driver { CUPTI_CB_DOMAIN_DRIVER_API } else { CUPTI_CB_DOMAIN_RUNTIME_API };
    let call = gpu::Call {
        start: r.start,
        end: r.end,
        correlation: r.correlationId,
        thread: r.threadId,
        name: names.call(domain, r.cbid),
        result: r.returnValue,
        driver: u32::from(driver),
    };
    decoded(ExtKind::Call, call.pack())
}

fn wait(r: &record::Synchronization) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    let wait = gpu::Wait {
        start: r.start,
        end: r.end,
        correlation: r.correlationId,
        stream: r.streamId,
        context: r.contextId,
        kind: r.type_,
        event: r.cudaEventId,
    };
    decoded(ExtKind::Wait, wait.pack())
}

fn memory(r: &record::Memory) -> Result<Decoded, Skip> {
    has_times(r.timestamp, r.timestamp)?;
    // CUPTI stores pool sizes only for a pool of this process.
    let is_local = r.memoryPoolConfig.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    let of_pool = |value: u64| if is_local { value } else { 0 };
    // SAFETY: both variants of the union are one word, and every bit pattern is a valid integer.
    let pool_held = unsafe { r.memoryPoolConfig.pool.size };
    let memory = gpu::Memory {
        time: r.timestamp,
        address: r.address,
        bytes: r.bytes,
        pool: of_pool(r.memoryPoolConfig.address),
        pool_held: of_pool(pool_held),
        pool_given: of_pool(r.memoryPoolConfig.utilizedSize),
        correlation: r.correlationId,
        operation: r.memoryOperationType,
        kind: r.memoryKind,
        device: r.deviceId,
        context: r.contextId,
        stream: r.streamId,
        asynchronous: r.isAsync,
    };
    decoded(ExtKind::Memory, memory.pack())
}

fn overhead(r: &record::Overhead, names: &impl Names) -> Result<Decoded, Skip> {
    has_times(r.start, r.end)?;
    // SAFETY: both variants of the union consist of integers, so every bit pattern is valid.
    let thread = unsafe { r.objectId.pt.threadId };
    let known = names.names_threads_of_overhead();
    let thread = if known && r.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD { thread } else { 0 };
    let overhead = gpu::Overhead { start: r.start, end: r.end, kind: r.overheadKind, thread };
    decoded(ExtKind::Overhead, overhead.pack())
}

unsafe fn device(r: &record::Device, names: &mut impl Names) -> Result<Decoded, Skip> {
    let uuid = r.uuid.bytes.map(|byte| byte as u8);
    let half = |at: usize| {
        let bytes = uuid.iter().skip(at).take(8);
        bytes.rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let device = gpu::Device {
        memory: r.globalMemorySize,
        bandwidth: r.globalMemoryBandwidth,
        uuid_low: half(0),
        uuid_high: half(8),
        device: r.id,
        // SAFETY: CUPTI's names are NUL-terminated strings.
        name: unsafe { text(names, r.name) },
        processors: r.numMultiprocessors,
        major: r.computeCapabilityMajor,
        minor: r.computeCapabilityMinor,
        clock: r.coreClockRate,
        cache: r.l2CacheSize,
        warp: r.numThreadsPerWarp,
        threads: r.maxThreadsPerBlock,
        warps: r.maxWarpsPerMultiprocessor,
        blocks: r.maxBlocksPerMultiprocessor,
        shared: r.maxSharedMemoryPerMultiprocessor,
        shared_block: r.maxSharedMemoryPerBlock,
        registers: r.maxRegistersPerMultiprocessor,
        registers_block: r.maxRegistersPerBlock,
    };
    decoded(ExtKind::Device, device.pack())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;
    impl Names for Fixed {
        fn text(&mut self, text: &[u8]) -> u32 {
            text.len() as u32
        }
        fn call(&mut self, domain: CUpti_CallbackDomain, number: u32) -> u32 {
            domain * 1000 + number
        }
    }

    fn zeroed<T>() -> T {
        // SAFETY: records consist of integers and pointers, for which zero is a valid value.
        unsafe { std::mem::zeroed() }
    }

    fn take<T>(record: &T) -> Result<Decoded, Skip> {
        // SAFETY: each test passes a record whose header has the record's own kind.
        unsafe { decode(std::ptr::from_ref(record).cast(), &mut Fixed) }
    }

    fn kernel_13() -> CUpti_ActivityKernel13 {
        let mut r: CUpti_ActivityKernel13 = zeroed();
        r.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        r.start = 100;
        r.end = 250;
        r.correlationId = 7;
        r.streamId = 13;
        r.gridX = 4;
        r.blockX = 128;
        r.registersPerThread = 40;
        r.name = c"gemm".as_ptr();
        r.submitted = u64::MAX;
        r.priority = 99;
        r
    }

    #[test]
    fn a_kernel_of_the_newest_version_is_read_as_a_prefix() {
        let decoded = take(&kernel_13()).unwrap();
        let kernel = gpu::Kernel::unpack(decoded.payload()).unwrap();
        let expected = gpu::Kernel {
            start: 100,
            end: 250,
            correlation: 7,
            stream: 13,
            grid_x: 4,
            block_x: 128,
            registers: 40,
            name: 4,
            ..gpu::Kernel::default()
        };
        assert_eq!((decoded.kind, kernel), (ExtKind::Kernel, expected));
    }

    #[test]
    fn a_kernel_without_times_is_skipped() {
        let mut r = kernel_13();
        r.start = 0;
        r.end = 0;
        assert_eq!(take(&r), Err(Skip::NoTimes));
        let mut r = kernel_13();
        r.end = 99;
        assert_eq!(take(&r), Err(Skip::NoTimes));
    }

    #[test]
    fn unknown_kinds_and_unused_ones_are_skipped_for_different_reasons() {
        let mut r = kernel_13();
        r.kind = 1 << 20;
        assert_eq!(take(&r), Err(Skip::Unknown));
        r.kind = CUPTI_ACTIVITY_KIND_INVALID;
        assert_eq!(take(&r), Err(Skip::Unknown));
        for kind in [CUPTI_ACTIVITY_KIND_NAME, CUPTI_ACTIVITY_KIND_CUDA_EVENT] {
            r.kind = kind;
            assert_eq!(take(&r), Err(Skip::Idle));
        }
    }

    #[test]
    fn the_record_of_a_call_says_whether_it_is_a_driver_call() {
        let mut r: CUpti_ActivityAPI = zeroed();
        (r.start, r.end, r.cbid, r.threadId, r.returnValue) = (5, 6, 211, 42, 2);
        for (kind, driver) in [(CUPTI_ACTIVITY_KIND_RUNTIME, 0), (CUPTI_ACTIVITY_KIND_DRIVER, 1)] {
            r.kind = kind;
            let call = gpu::Call::unpack(take(&r).unwrap().payload()).unwrap();
            let domain =
                if driver == 1 { CUPTI_CB_DOMAIN_DRIVER_API } else { CUPTI_CB_DOMAIN_RUNTIME_API };
            assert_eq!((call.driver, call.name), (driver, domain * 1000 + 211));
            assert_eq!((call.thread, call.result), (42, 2));
        }
    }

    #[test]
    fn the_bytes_of_a_device_uuid_stay_in_order() {
        let mut r: CUpti_ActivityDevice6 = zeroed();
        r.kind = CUPTI_ACTIVITY_KIND_DEVICE;
        for (at, byte) in r.uuid.bytes.iter_mut().enumerate() {
            *byte = at as core::ffi::c_char;
        }
        let device = gpu::Device::unpack(take(&r).unwrap().payload()).unwrap();
        assert_eq!(device.uuid_low.to_le_bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(device.uuid_high.to_le_bytes(), [8, 9, 10, 11, 12, 13, 14, 15]);
    }
}

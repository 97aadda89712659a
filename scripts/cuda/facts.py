"""Lists the numbers from NVIDIA's headers that tprof's sources repeat, with their names there, so that signatures.py
can compare them."""

import re

from hooks import ROOT

SYNC = "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_"
COPY = "CUPTI_ACTIVITY_MEMCPY_KIND_"
MEMORY = "CUPTI_ACTIVITY_MEMORY_KIND_"
OVERHEAD = "CUPTI_ACTIVITY_OVERHEAD_"
EXTERNAL = "CUPTI_EXTERNAL_CORRELATION_KIND_"
ROWS = "crates/collect/src/gpu/rows.rs"
WORDS = "crates/collect/src/targets/calls/words.rs"
TYPES = "crates/collect/src/targets/collectives/words.rs"
ARRAYS = "crates/inject/src/array_bytes.rs"
CALLS = "crates/inject/src/calls.rs"
UNSEEN = "crates/collect/src/targets/calls/unseen.rs"
GEMM = "crates/wire/src/gemm.rs"
GEMMS = "crates/collect/src/targets/gemms.rs"
HOOKS = "preload-shim/src/hooks/calls.rs"
TABLE = "crates/wire/src/calls.rs"

# Source file, a pattern for the number in it (the group), and NVIDIA's expression.
NUMBERS = [
    (HOOKS, r"NO_RUNTIME: u64 = (\d+)", "cudaErrorSharedObjectInitFailed"),
    (HOOKS, r"NO_NCCL: u64 = (\d+)", "ncclSystemError"),
    (HOOKS, r"NO_CUBLAS: u64 = (\d+)", "CUBLAS_STATUS_NOT_INITIALIZED"),
    ("preload-shim/src/hooks/cupti.rs", r"NO_CUPTI: u32 = (\d+)", "CUPTI_ERROR_NOT_INITIALIZED"),
    (CALLS, r"IN_PROGRESS: u32 = (\d+)", "ncclInProgress"),
    (CALLS, r"pitch = unsafe { word\(frame\.register\(0\), (\d+)\)", "offsetof(struct cudaPitchedPtr, pitch)"),
    (CALLS, r"place = unsafe { word\(frame\.register\(2\), (\d+)\)", "offsetof(CUmemAllocationProp, location)"),
    ("crates/collect/src/gpu/virtual_memory.rs", r"ON_DEVICE: u32 = (\d+)", "CU_MEM_LOCATION_TYPE_DEVICE"),
    (UNSEEN, r"DEVICE_LAUNCH: u64 = (\d+)", "cudaGraphInstantiateFlagDeviceLaunch"),
    (UNSEEN, r"DEVICE_LAUNCH: u64 = (\d+)", "CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH"),
    (UNSEEN, r"OF_NESTED_KERNELS: [^=]*= \[(\d+), \d+\]", "cudaLimitDevRuntimeSyncDepth"),
    (UNSEEN, r"OF_NESTED_KERNELS: [^=]*= \[\d+, (\d+)\]", "cudaLimitDevRuntimePendingLaunchCount"),
    (UNSEEN, r"OF_NESTED_KERNELS: [^=]*= \[(\d+), \d+\]", "CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH"),
    (UNSEEN, r"OF_NESTED_KERNELS: [^=]*= \[\d+, (\d+)\]", "CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT"),
    (ARRAYS, r"\[0, (\d+), 16, if depth", "offsetof(CUDA_ARRAY_DESCRIPTOR, Height)"),
    (ARRAYS, r"\[0, 8, (\d+), if depth", "offsetof(CUDA_ARRAY3D_DESCRIPTOR, Depth)"),
    (ARRAYS, r"if depth { (\d+) } else", "offsetof(CUDA_ARRAY3D_DESCRIPTOR, Format)"),
    (ARRAYS, r"if depth { 24 } else { (\d+) }", "offsetof(CUDA_ARRAY_DESCRIPTOR, Format)"),
    *((ARRAYS, rf"({number})(?= \||  ?=>)", "CU_AD_FORMAT_" + name) for number, name in [
        ("0x01", "UNSIGNED_INT8"), ("0x08", "SIGNED_INT8"), ("0x02", "UNSIGNED_INT16"),
        ("0x09", "SIGNED_INT16"), ("0x10", "HALF"), ("0x03", "UNSIGNED_INT32"),
        ("0x0a", "SIGNED_INT32"), ("0x20", "FLOAT")]),
    (TABLE, r"cudaLaunchKernelExC \d+ launches\(1, Field\((\d+)\)\)", "offsetof(cudaLaunchConfig_t, stream)"),
    (GEMM, r"FLOAT: u8 = (\d+)", "CUDA_R_32F"), (GEMM, r"DOUBLE: u8 = (\d+)", "CUDA_R_64F"),
    (GEMM, r"HALF: u8 = (\d+)", "CUDA_R_16F"), (GEMM, r"COMPLEX_FLOAT: u8 = (\d+)", "CUDA_C_32F"),
    (GEMM, r"COMPLEX_DOUBLE: u8 = (\d+)", "CUDA_C_64F"),
    (GEMM, r"LAYOUT_TYPE: u32 = (\d+)", "CUBLASLT_MATRIX_LAYOUT_TYPE"),
    (GEMM, r"LAYOUT_ROWS: u32 = (\d+)", "CUBLASLT_MATRIX_LAYOUT_ROWS"),
    (GEMM, r"LAYOUT_COLUMNS: u32 = (\d+)", "CUBLASLT_MATRIX_LAYOUT_COLS"),
    (GEMM, r"LAYOUT_BATCH: u32 = (\d+)", "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"),
    (GEMM, r"MATMUL_COMPUTE: u32 = (\d+)", "CUBLASLT_MATMUL_DESC_COMPUTE_TYPE"),
    (GEMM, r"MATMUL_TRANSPOSE_A: u32 = (\d+)", "CUBLASLT_MATMUL_DESC_TRANSA"),
    (GEMM, r"MATMUL_TRANSPOSE_B: u32 = (\d+)", "CUBLASLT_MATMUL_DESC_TRANSB"),
    *((ROWS, rf"(\d+) => SyncKind::{ours},", SYNC + theirs) for ours, theirs in [
        ("Event", "EVENT_SYNCHRONIZE"), ("StreamWaitEvent", "STREAM_WAIT_EVENT"),
        ("Stream", "STREAM_SYNCHRONIZE"), ("Context", "CONTEXT_SYNCHRONIZE")]),
    *((ROWS, rf"(\d+) => MemoryKind::{ours},", MEMORY + theirs) for ours, theirs in [
        ("Pageable", "PAGEABLE"), ("Pinned", "PINNED"), ("Device", "DEVICE"), ("Array", "ARRAY"),
        ("Managed", "MANAGED"), ("DeviceStatic", "DEVICE_STATIC"), ("ManagedStatic", "MANAGED_STATIC")]),
    *((ROWS, rf"(\w+) => \"{ours}\",", OVERHEAD + theirs) for ours, theirs in [
        ("driver compiler", "DRIVER_COMPILER"), ("CUPTI buffer flush", "CUPTI_BUFFER_FLUSH"),
        ("CUPTI instrumentation", "CUPTI_INSTRUMENTATION"), ("CUPTI resources", "CUPTI_RESOURCE"),
        ("module loading by the runtime", "RUNTIME_TRIGGERED_MODULE_LOADING"),
        ("lazy function loading", "LAZY_FUNCTION_LOADING"),
        ("command buffer full", "COMMAND_BUFFER_FULL"),
        ("CUPTI buffer request", "ACTIVITY_BUFFER_REQUEST"),
        ("setting up unified memory", "UVM_ACTIVITY_INIT")]),
    *((ROWS, rf"(\d+) => ExternalKind::{ours},", EXTERNAL + theirs) for ours, theirs in [
        ("OpenAcc", "OPENACC"), ("Custom0", "CUSTOM0"), ("Custom1", "CUSTOM1"), ("Custom2", "CUSTOM2")]),
    (ROWS, r"(\d+) \| \d+ => CopyKind::HostToDevice", COPY + "HTOD"),
    (ROWS, r"\d+ \| (\d+) => CopyKind::HostToDevice", COPY + "HTOA"),
    (ROWS, r"(\d+) \| \d+ => CopyKind::DeviceToHost", COPY + "DTOH"),
    (ROWS, r"\d+ \| (\d+) => CopyKind::DeviceToHost", COPY + "ATOH"),
    (ROWS, r"(\d+)\.\.=\d+ => CopyKind::DeviceToDevice", COPY + "ATOA"),
    (ROWS, r"\d+\.\.=(\d+) => CopyKind::DeviceToDevice", COPY + "DTOD"),
    (ROWS, r"(\d+) => CopyKind::HostToHost", COPY + "HTOH"),
    (ROWS, r"(\d+) => CopyKind::PeerToPeer", COPY + "PTOP"),
    *((GEMMS, rf"(\d+) => \"{ours}\",", "CUDA_" + theirs) for ours, theirs in [
        ("Float", "R_32F"), ("Double", "R_64F"), ("Half", "R_16F"), ("Char", "R_8I"),
        ("ComplexFloat", "C_32F"), ("ComplexDouble", "C_64F"), ("ComplexHalf", "C_16F"), ("Byte", "R_8U"),
        ("Int", "R_32I"), ("BFloat16", "R_16BF"), ("Short", "R_16I"), ("Long", "R_64I"),
        ("Float8_e4m3fn", "R_8F_E4M3"), ("Float8_e5m2", "R_8F_E5M2"), ("Float8_e8m0fnu", "R_8F_UE8M0"),
        ("Float4_e2m1fn", "R_4F_E2M1")]),
]
# Numbers in lists: the source file, a pattern for the list (the group), the form of a word in it, and NVIDIA's
# names in order.
LISTS = [
    (TYPES, r"const TYPES: [^=]*= \[(.*?)\];", r'"(nccl\w+)"', [
        "ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64", "ncclFloat16",
        "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"]),
    (WORDS, r'let name = \[("HtoH".*?)\];', r'"(\w+)"', [
        "cudaMemcpyHostToHost", "cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost",
        "cudaMemcpyDeviceToDevice", "cudaMemcpyDefault"]),
]


def ours():
    """Yields (source, NVIDIA's expression, our number) for each number."""
    for source, pattern, expression in NUMBERS:
        found = re.findall(rf"(?<!\w){pattern}", (ROOT / source).read_text())
        if len(set(found)) != 1:
            raise SystemExit(f"{source}: {len(found)} places for {pattern}")
        yield source, expression, int(found[0].replace("_", ""), 0)
    for source, pattern, word, names in LISTS:
        found = re.search(pattern, (ROOT / source).read_text(), re.S)
        words = re.findall(word, found.group(1)) if found else []
        if len(words) != len(names) or word.startswith('"(nccl') and words != names:
            raise SystemExit(f"{source}: not {len(names)} words in {pattern}")
        yield from ((source, name, number) for number, name in enumerate(names))


def bindings():
    """Returns the constants of CUPTI that the bindings declare, except those that are the size of an enum."""
    text = (ROOT / "crates/cupti-sys/src/bindings.rs").read_text()
    found = re.findall(r"pub const (CUPTI_\w+): \w+ = (\d+);", text)
    return {name: int(number) for name, number in found if not name.endswith(("_SIZE", "_COUNT"))}

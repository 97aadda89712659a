"""CUPTI's activity records as ctypes structs.

Fields are in the order of NVIDIA's structs of CUDA 12.0; later structs only append. ctypes computes the offsets of the
fields. They are not taken from tprof's own tables, so that a wrong offset in either shows as a difference. `sizes.txt`
has the lengths of each version's records; `sizes.py` makes it from NVIDIA's headers.
"""

import bisect
import ctypes
import functools
import os
from ctypes import c_char, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64

KERNEL, CONCURRENT_KERNEL = 3, 10


def struct(name, *fields):
    """Returns a struct made of lines `TYPE field field …`; fields that begin with `_` are not compared."""
    types = {"u8": c_uint8, "u16": c_uint16, "u32": c_uint32, "u64": c_uint64, "i32": c_int32, "i64": c_int64}
    listed = []
    for line in fields:
        kind, *names = line.split()
        wanted = types.get(kind) or (c_char * int(kind.removeprefix("bytes")))
        listed += [(f"_{len(listed)}" if name == "_" else name, wanted) for name in names]
    return type(name, (ctypes.LittleEndianStructure,), {"_fields_": listed})


# `CUpti_ActivityKind` and the struct of that kind's records.
STRUCTS = {
    1: struct(
        "Memcpy", "u32 kind", "u8 copyKind srcKind dstKind flags", "u64 bytes start end",
        "u32 deviceId contextId streamId correlationId runtimeCorrelationId _", "u64 _ graphNodeId",
        "u32 graphId channelID channelType _",
    ),
    2: struct(
        "Memset", "u32 kind value", "u64 bytes start end", "u32 deviceId contextId streamId correlationId",
        "u16 flags memoryKind", "u32 _", "u64 _ graphNodeId", "u32 graphId channelID channelType",
    ),
    4: struct("Driver", "u32 kind cbid", "u64 start end", "u32 processId threadId correlationId returnValue"),
    5: struct("Runtime", "u32 kind cbid", "u64 start end", "u32 processId threadId correlationId returnValue"),
    8: struct(
        "Device", "u32 kind flags", "u64 globalMemoryBandwidth globalMemorySize",
        "u32 constantMemorySize l2CacheSize numThreadsPerWarp coreClockRate numMemcpyEngines",
        "u32 numMultiprocessors maxIPC maxWarpsPerMultiprocessor maxBlocksPerMultiprocessor",
        "u32 maxSharedMemoryPerMultiprocessor maxRegistersPerMultiprocessor maxRegistersPerBlock",
        "u32 maxSharedMemoryPerBlock maxThreadsPerBlock _ _ _ _ _ _",
        "u32 computeCapabilityMajor computeCapabilityMinor id eccEnabled", "bytes16 uuid", "u64 name",
    ),
    9: struct("Context", "u32 kind contextId deviceId", "u16 computeApiKind nullStreamId"),
    CONCURRENT_KERNEL: struct(
        "Kernel", "u32 kind", "u8 cacheConfig sharedMemoryConfig", "u16 registersPerThread", "u32 _ _",
        "u64 start end completed", "u32 deviceId contextId streamId",
        "i32 gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory",
        "u32 localMemoryPerThread localMemoryTotal correlationId", "i64 gridId", "u64 name _ queued submitted",
        "u8 launchType _ _ _", "u32 sharedMemoryExecuted", "u64 graphNodeId", "u32 _ graphId", "u64 _",
        "u32 channelID channelType clusterX clusterY clusterZ",
    ),
    17: struct("Overhead", "u32 kind overheadKind objectKind", "u32 processId threadId _", "u64 start end"),
    22: struct(
        "MemcpyPeer", "u32 kind", "u8 copyKind srcKind dstKind flags", "u64 bytes start end",
        "u32 deviceId contextId streamId srcDeviceId srcContextId dstDeviceId dstContextId correlationId",
        "u64 _ graphNodeId", "u32 graphId channelID channelType",
    ),
    36: struct("CudaEvent", "u32 kind correlationId contextId streamId eventId _"),
    38: struct("Synchronization", "u32 kind type", "u64 start end", "u32 correlationId contextId streamId cudaEventId"),
    39: struct("ExternalCorrelation", "u32 kind externalKind", "u64 externalId", "u32 correlationId _"),
    37: struct("Stream", "u32 kind contextId streamId priority flag correlationId"),
    49: struct(
        "Memory", "u32 kind memoryOperationType memoryKind correlationId", "u64 address bytes timestamp PC",
        "u32 processId deviceId contextId streamId", "u64 name", "u32 isAsync",
    ),
}
STRUCTS[KERNEL] = STRUCTS[CONCURRENT_KERNEL]


@functools.cache
def read_sizes(path=os.path.join(os.path.dirname(os.path.abspath(__file__)), "sizes.txt")):
    """Returns [(CUPTI's version, {kind: bytes})], oldest first."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                version, *pairs = line.split()
                rows.append((int(version), {int(k): int(b) for k, b in (pair.split(":") for pair in pairs)}))
    return sorted(rows)


def sizes_of(version, rows=None):
    """Returns the bytes of each kind's record in a version, taken from the newest known version that is not newer."""
    rows = rows or read_sizes()
    at = bisect.bisect_right([known for known, _ in rows], version) - 1
    return rows[max(at, 0)][1]

"""Prints the offsets of the record fields that tprof reads, in several CUDA versions.

`offsets.py INCLUDE…` compiles one small program against each include folder and
prints a table with the record, the field and its offset in each version (`-` if that version's newest
record of that name has no such field), and a line with each record's size. It fails if a field has
another offset in some version, because the record can't be read as a prefix then.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

COMMON = ["kind"]
SPAN = [*COMMON, "start", "end"]
PLACE = ["deviceId", "contextId", "streamId", "correlationId"]
GRAPH = ["graphNodeId", "graphId"]

# The fields that tprof reads, by record.
FIELDS = {
    "Kernel": [
        *SPAN, *PLACE, *GRAPH, "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY",
        "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
        "localMemoryTotal", "gridId", "name", "queued", "submitted", "launchType",
        "channelID", "channelType", "clusterX", "clusterY", "clusterZ",
    ],
    "Memcpy": [*SPAN, *PLACE, *GRAPH, "copyKind", "srcKind", "dstKind", "flags", "bytes"],
    "MemcpyPtoP": [
        *SPAN, *PLACE, *GRAPH, "copyKind", "srcKind", "dstKind", "flags", "bytes", "srcDeviceId",
        "dstDeviceId",
    ],
    "Memset": [*SPAN, *PLACE, *GRAPH, "value", "bytes", "flags", "memoryKind"],
    "Memory": [
        *COMMON, "memoryOperationType", "memoryKind", "correlationId", "address", "bytes",
        "timestamp", "processId", "deviceId", "contextId", "streamId", "isAsync",
    ],
    "Synchronization": [*SPAN, "type", "correlationId", "contextId", "streamId", "cudaEventId"],
    "Overhead": [*SPAN, "overheadKind", "objectKind", "objectId"],
    "API": [*SPAN, "cbid", "processId", "threadId", "correlationId", "returnValue"],
    "Context": [*COMMON, "contextId", "deviceId", "computeApiKind", "nullStreamId"],
    "Device": [
        *COMMON, "globalMemoryBandwidth", "globalMemorySize", "l2CacheSize", "numThreadsPerWarp",
        "coreClockRate", "numMultiprocessors", "maxThreadsPerBlock", "maxBlocksPerMultiprocessor",
        "maxWarpsPerMultiprocessor", "maxSharedMemoryPerMultiprocessor", "maxSharedMemoryPerBlock",
        "maxRegistersPerMultiprocessor", "maxRegistersPerBlock", "computeCapabilityMajor",
        "computeCapabilityMinor", "id", "uuid", "name",
    ],
    "Stream": [*COMMON, "contextId", "streamId", "priority", "flag", "correlationId"],
    "GraphTrace": [*SPAN, *PLACE, "graphId"],
    "Name": [*COMMON, "objectKind", "objectId", "name"],
    "ExternalCorrelation": [*COMMON, "externalKind", "externalId", "correlationId"],
}
# Structures of the PC Sampling API, which have a header and names of their own.
SAMPLING = {
    "PCSamplingData": [
        "size", "collectNumPcs", "totalSamples", "droppedSamples", "totalNumPcs", "remainingNumPcs",
        "pPcData", "nonUsrKernelsTotalSamples", "hardwareBufferFull",
    ],
    "PCSamplingPCData": [
        "size", "cubinCrc", "pcOffset", "functionName", "stallReasonCount", "stallReason",
    ],
    "PCSamplingStallReason": ["pcSamplingStallReasonIndex", "samples"],
    "PCSamplingConfigurationInfo": ["attributeType", "attributeStatus", "attributeData"],
    "PCSamplingConfigurationInfoParams": [
        "size", "pPriv", "ctx", "numAttributes", "pPCSamplingConfigurationInfo",
    ],
    "PCSamplingEnableParams": ["size", "pPriv", "ctx"],
    "PCSamplingDisableParams": ["size", "pPriv", "ctx"],
    "PCSamplingGetDataParams": ["size", "pPriv", "ctx", "pcSamplingData"],
    "PCSamplingGetNumStallReasonsParams": ["size", "pPriv", "ctx", "numStallReasons"],
    "PCSamplingGetStallReasonsParams": [
        "size", "pPriv", "ctx", "numStallReasons", "stallReasonIndex", "stallReasons",
    ],
}
FIELDS |= SAMPLING
# Kinds whose struct without a number is another record: their numbered structs begin here.
FIRST_NUMBER = {"Memory": 2}


def newest(text, record):
    """Returns the name of the newest struct of a record in a header."""
    numbers = [int(n or 1) for n in re.findall(rf"}} CUpti_Activity{record}(\d*);", text)]
    number = max(n for n in numbers if n >= FIRST_NUMBER.get(record, 1))
    return f"CUpti_Activity{record}{number if number > 1 else ''}"


def has(text, struct, field):
    """Whether a struct of the header declares a field."""
    body = text[: text.index(f"}} {struct};")]
    body = body[body.rindex("typedef struct") :]
    return re.search(rf"\b{field};", body) is not None


def measure(include, more=()):
    """Returns {(record, field): offset} and {record: (struct, size)} of one version. Headers that its
    folder lacks are taken from the folders `more`."""
    headers = ("cupti_activity.h", "cupti_pcsampling.h")
    text = "".join((include / header).read_text() for header in headers)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    structs = {
        record: f"CUpti_{record}" if record in SAMPLING else newest(text, record)
        for record in FIELDS
    }
    lines = []
    for record, struct in structs.items():
        lines.append(f'printf("{record} - %zu\\n", sizeof({struct}));')
        for field in FIELDS[record]:
            if has(text, struct, field):
                lines.append(f'printf("{record} {field} %zu\\n", offsetof({struct}, {field}));')
    program = "#include <cupti.h>\n#include <cupti_pcsampling.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
    program += "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "o.c"), pathlib.Path(folder, "o")
        source.write_text(program)
        folders = [f"-I{folder}" for folder in (include, *more)]
        subprocess.run(["gcc", "-w", *folders, str(source), "-o", str(binary)], check=True)
        out = subprocess.run([str(binary)], stdout=subprocess.PIPE, text=True, check=True).stdout
    offsets, sizes = {}, {}
    for line in out.splitlines():
        record, field, number = line.split()
        if field == "-":
            sizes[record] = (structs[record].removeprefix("CUpti_Activity"), int(number))
        else:
            offsets[record, field] = int(number)
    return offsets, sizes


def main():
    includes = [pathlib.Path(argument) for argument in sys.argv[1:]]
    measured = [measure(include) for include in includes]
    print("# Made by scripts/bindgen.sh: where the newest record of each CUDA version keeps a field.")
    print("record", "field", *(include.name for include in includes))
    moved = []
    for record, fields in FIELDS.items():
        print(record, "-", *(f"{sizes[record][0]}:{sizes[record][1]}" for _, sizes in measured))
        for field in fields:
            found = [offsets.get((record, field)) for offsets, _ in measured]
            print(record, field, *("-" if offset is None else offset for offset in found))
            if len({offset for offset in found if offset is not None}) != 1:
                moved.append(f"{record}.{field}: {found}")
    for line in moved:
        print(f"moved or missing: {line}", file=sys.stderr)
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())

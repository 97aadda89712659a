#!/usr/bin/env python3
"""Tests tprof's NCCL plugin with a real libnccl: makes its loader of profiler plugins load the plugin, calls its
conversions between versions of the plugin interface, and checks what tprof recorded. No device is needed: NCCL's
internal functions are called by their addresses, so the library must have its symbol table, as NVIDIA's wheels have
(pip download nvidia-nccl-cu12).

    scripts/nccl-loader.py LIBNCCL...      (TPROF=path of tprof, else target/debug/tprof)

From NCCL 2.26 on, each version's conversion is driven; with older ones, only the loader.
"""
import csv
import ctypes
import os
import subprocess
import sys
import tempfile

INIT = "_Z22ncclProfilerPluginInitP8ncclComm"
GET = "_Z18getNcclProfiler_v{}Pv"
POINTER, INT, LONG, BYTE = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_ubyte
TEXTS = [ctypes.create_string_buffer(text) for text in
         (b"AllReduce", b"ncclFloat32", b"RING", b"LL128", b"Send", b"comm")]
ALL_REDUCE, FLOAT, RING, LL128, SEND, NAME = [ctypes.addressof(text) for text in TEXTS]


class Table(ctypes.Structure):
    """The table of functions that NCCL calls."""
    _fields_ = [(name, POINTER) for name in ("name", "init", "start", "stop", "state", "finalize")]


def functions(path):
    """Returns the addresses of the library's functions by mangled name."""
    ctypes.CDLL(path)
    with open("/proc/self/maps") as maps:
        base = next(int(line.split("-")[0], 16) for line in maps if os.path.realpath(path) in line)
    listed = subprocess.run(["nm", path], capture_output=True, text=True).stdout.splitlines()
    words = [line.split() for line in listed]
    return {word[2]: base + int(word[0], 16) for word in words if len(word) == 3}


def call(address, *arguments):
    kinds = [kind for kind, _ in arguments]
    return ctypes.CFUNCTYPE(INT, *kinds)(address)(*[value for _, value in arguments])


def report(known, version, newest, handle):
    """Reports a collective and a send through NCCL's own conversion to this version."""
    table = ctypes.CFUNCTYPE(ctypes.POINTER(Table), POINTER)(known[GET.format(version)])(handle)
    if not table:
        sys.exit(f"NCCL found no table of version {version}")
    context, mask = POINTER(), INT()
    at = (POINTER, ctypes.addressof(context)), (POINTER, ctypes.addressof(mask))
    sizes = [(INT, 1), (INT, 8), (INT, 3), (POINTER, None)]
    number = (LONG, 1000 + version)
    if newest >= 5:
        call(table.contents.init, at[0], number, at[1], (POINTER, NAME), *sizes)
    else:
        call(table.contents.init, *at, (POINTER, NAME), number, *sizes)
    table = table.contents

    def begin(kind, fields, parent):
        description = ctypes.create_string_buffer(256)
        (LONG if newest >= 5 else BYTE).from_buffer(description, 0).value = kind
        LONG.from_buffer(description, 8).value = parent
        INT.from_buffer(description, 16).value = 3
        for offset, of, value in fields:
            of.from_buffer(description, 24 + offset).value = value
        event = POINTER()
        call(table.start, (POINTER, context), (POINTER, ctypes.addressof(event)),
             (POINTER, ctypes.addressof(description)))
        return event.value or 0

    group, asked = begin(1, [], 0), 0
    if newest >= 5 and version >= 5:
        asked = begin(1 << 9, [(0, LONG, ALL_REDUCE), (8, LONG, 64 * version), (16, LONG, FLOAT),
                               (32, LONG, 7)], 0)
    of_group = [[(80, LONG, group)], [(40, LONG, group)]] if newest >= 5 else [[], []]
    begin(2, [(0, LONG, 40 + version), (8, LONG, ALL_REDUCE), (32, LONG, 64 * version),
              (48, LONG, FLOAT), (56, BYTE, 5), (64, LONG, RING), (72, LONG, LL128)] + of_group[0],
          asked if newest >= 5 else group)
    begin(4, [(0, LONG, SEND), (16, LONG, FLOAT), (24, LONG, 10 * version), (32, INT, 5),
              (36, BYTE, 3)] + of_group[1], 0 if newest >= 5 else group)


def drive(path):
    """Drives the versions inside a process under tprof, and prints them."""
    known = functions(path)
    # A zeroed buffer that is larger than any communicator: one rank, without a name.
    communicator = ctypes.create_string_buffer(64 << 20)
    call(known[INIT], (POINTER, ctypes.addressof(communicator)))
    versions = [version for version in range(1, 8) if GET.format(version) in known]
    handle = ctypes.CDLL(os.environ["NCCL_PROFILER_PLUGIN"])._handle
    for version in versions:
        if version <= 6:
            report(known, version, versions[-1], handle)
    print(*[version for version in versions if version <= 6])


def check(path):
    tprof = os.environ.get("TPROF", "target/debug/tprof")
    with tempfile.TemporaryDirectory() as folder:
        run, tables = f"{folder}/run", f"{folder}/csv"
        environment = {**os.environ, "NCCL_DEBUG": "INFO"}
        ran = subprocess.run([tprof, "run", "-q", "-o", run, "--activities", "gpu,comm", "--",
                              sys.executable, __file__, "--drive", path],
                             capture_output=True, text=True, env=environment)
        versions = [int(word) for word in ran.stdout.splitlines()[-1].split()] if ran.stdout else []
        loads = "libtprof_cupti.so" in ran.stdout + ran.stderr
        if ran.returncode or not loads:
            sys.exit(f"{path}: NCCL did not load the plugin\n{ran.stdout}{ran.stderr}")
        subprocess.run([tprof, "export", "--to", "csv", "-o", tables, run], check=True,
                       capture_output=True)
        rows = []
        if versions:
            with open(f"{tables}/collectives.csv") as file:
                rows = list(csv.DictReader(file))
    keys = ("name", "bytes", "sequence", "algorithm", "protocol", "channels", "peer", "communicator")
    found = [tuple(row[key] for key in keys) for row in rows]
    wanted = []
    for version in versions:
        number = str(1000 + version) if version >= 4 else ""
        wanted.append(("all_reduce", str(256 * version), str(40 + version), "RING", "LL128", "5", "",
                       number))
        channels = "3" if version >= 5 or version == 4 == versions[-1] else None
        wanted.append(("send", str(40 * version), "", "", "", channels, "5", number))
    for row, want in zip(found, wanted):
        if any(b is not None and a != b for a, b in zip(row, want)):
            sys.exit(f"{path}: recorded {row}, not {want}")
    if len(found) != len(wanted):
        sys.exit(f"{path}: recorded {len(found)} operations, not {len(wanted)}")
    print(f"{path}: loaded; conversions to versions {versions} are recorded as NCCL reported them")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive(sys.argv[2])
    else:
        for library in sys.argv[1:]:
            check(os.path.abspath(library))

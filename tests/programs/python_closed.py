"""Allocates, with and without Python's lock, where system calls are refused: by a filter
that kills for reading memory through the kernel, or by strict seccomp.

Proves: Python frames are read without system calls, or not at all.
"""

import ctypes
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
libc.syscall.argtypes = [ctypes.c_long] * 4


class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]


def filtered():
    steps = (Step * 4)(
        Step(0x20, 0, 0, 0),  # the number of the call
        Step(0x15, 0, 1, 310),  # process_vm_readv
        Step(0x06, 0, 0, 0x80000000),  # kills
        Step(0x06, 0, 0, 0x7FFF0000),  # allows
    )
    program = Program(4, steps)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.addressof(program), 0, 0) == 0


def victim_closed():
    return bytearray(50_017)  # line: closed


def victim_unlocked():
    return libc.malloc(51_017)  # line: unlocked


# These blocks are allocated again under strict seccomp without a system call, because the C library keeps their
# memory.
libc.mallopt(-1, 1 << 30)
room = [victim_closed() for _ in range(6)]
del room
if sys.argv[1] == "filter":
    filtered()
else:
    assert libc.prctl(22, 1, 0, 0, 0) == 0
kept = [victim_closed() for _ in range(3)]
if sys.argv[1] == "filter":
    victim_unlocked()
libc.syscall(60 if sys.argv[1] == "strict" else 231, 7, 0, 0)

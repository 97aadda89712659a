"""Ends while threads of it allocate without Python's lock, and with destructors that
allocate.

Proves: an interpreter that is being taken down is not read, or read safely.
"""

import ctypes
import threading

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


class Last:
    def __del__(self):
        bytearray(200_000)


def busy():
    # Sorts in the C library, which takes memory for it: long calls without the lock.
    numbers = (ctypes.c_int * 40_000)(*range(40_000))
    compare = ctypes.cast(libc.strcmp, ctypes.c_void_p)
    while True:
        libc.free(libc.malloc(100_000))
        libc.qsort(numbers, 40_000, 4, compare)


last = Last()
last.myself = last
for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
bytearray(200_000)

"""Ends while its threads allocate without Python's lock, and with destructors that
allocate.

Proves: an interpreter that is being finalized is not read, or is read safely.

The threads are in C before the end begins, and stay there. A thread that returned would
ask for the lock of an interpreter that may be gone. Then Python 3.10 and older crash
without tprof, too (take_gil in Python/ceval_gil.h reads the deleted state; 55 of
4,000 runs with eight at once on two processors).
"""

import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
THREADS = 4


class Last:
    def __del__(self):
        bytearray(200_000)


def busy():
    library.victim_allocate_for_ever()


last = Last()
last.myself = last
for _ in range(THREADS):
    threading.Thread(target=busy, daemon=True).start()
library.victim_wait_for(THREADS)
bytearray(200_000)

"""Allocates blocks of known sizes in known functions and lines, and ends without cleaning up.

Proves: each allocation is recorded with the Python function and line that made it. Every block
is kept in `kept` or dropped at once. `python_heap.py count`, which runs without tprof and with
`tracemalloc` on, prints what Python itself counted, by line.
"""

import ctypes
import json
import os
import sys
import threading

kept = []
libc = ctypes.CDLL(None)  # releases Python's lock during a call
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
held = ctypes.PyDLL(None)  # keeps Python's lock during a call
held.malloc.restype = ctypes.c_void_p
held.malloc.argtypes = [ctypes.c_size_t]


def victim_plain():
    for _ in range(7):
        kept.append(bytearray(300_017))  # line: plain


def victim_dropped():
    for _ in range(5):
        bytearray(310_017)  # line: dropped


class Victim:
    def __init__(self):
        self.block = bytearray(320_017)  # line: init

    @classmethod
    def make(cls):
        # The call is repeated often enough for the interpreter to specialize its code.
        return [cls() for _ in range(40)]


def victim_generator():
    for _ in range(3):
        yield bytearray(330_017)  # line: generator


def victim_recurses(depth):
    if depth == 0:
        kept.append(bytearray(340_017))  # line: recursion
        return
    victim_recurses(depth - 1)


def victim_compiled():
    # Code objects and their file names are freed, and new ones take their addresses.
    for i in range(30):
        source = "\n" * i + "kept.append(bytearray(350_017))"
        exec(compile(source, f"<made {i:02}>", "exec"), {"kept": kept})


def victim_unlocked():
    for _ in range(11):
        libc.malloc(360_017)  # line: unlocked


def victim_locked():
    for _ in range(12):
        held.malloc(370_017)  # line: locked


def victim_thread():
    for _ in range(20):
        kept.append(bytearray(380_017))  # line: thread
        libc.malloc(390_017)  # line: thread unlocked


def victim_key(item):
    kept.append(bytearray(400_017))  # line: key
    return item


def victim_sorts():
    sorted([3, 1, 2], key=victim_key)


def victim_ünïcode():
    kept.append(bytearray(410_017))  # line: unicode


def victim_child():
    kept.append(bytearray(420_017))  # line: child
    os._exit(0)


def print_counts():
    """Prints tracemalloc's number and bytes of the large blocks, by line."""
    import tracemalloc

    lines = {}
    for trace in tracemalloc.take_snapshot().traces:
        frame = trace.traceback[0]
        if trace.size >= 300_000 and frame.filename == __file__:
            count, size = lines.get(frame.lineno, (0, 0))
            lines[frame.lineno] = (count + 1, size + trace.size)
    print(json.dumps(lines), flush=True)


def main():
    victim_plain()
    victim_dropped()
    kept.append(Victim.make())
    kept.extend(victim_generator())
    victim_recurses(30)
    victim_compiled()
    victim_unlocked()
    victim_locked()
    threads = [threading.Thread(target=victim_thread) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    victim_sorts()
    victim_ünïcode()
    if "count" in sys.argv:
        return print_counts()
    if os.fork() == 0:
        victim_child()
    os.wait()


main()
os._exit(0)

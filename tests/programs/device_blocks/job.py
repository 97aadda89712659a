"""Takes blocks from the stand-in for PyTorch's allocator in a known way, which the first argument
names. Each way that is a mistake has its line marked HERE."""

import ctypes
import sys
import time

import tprof

WAY = sys.argv[1]
MIB = 1 << 20
c10 = ctypes.PyDLL("libc10.so", ctypes.RTLD_GLOBAL)
cuda = ctypes.PyDLL("libc10_cuda.so", ctypes.RTLD_GLOBAL)
cuda.take.restype = ctypes.c_void_p
cuda.take.argtypes = cuda.limit.argtypes = [ctypes.c_size_t]
cuda.give.argtypes = [ctypes.c_void_p]
take = cuda.take


def check(block, _, arguments):
    if block is None:
        raise MemoryError(f"no {arguments[0]} bytes")
    return block


take.errcheck = check


def give(blocks):
    for block in blocks:
        cuda.give(block)


def work(seconds=0.02):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def step(more=lambda at: None, steps=30):
    """Runs steps of a healthy job: a few activations that each step takes and gives back."""
    for at in range(steps):
        tprof.step()
        blocks = [take(4 * MIB) for _ in range(4)]
        work()
        more(at)
        give(blocks)


def sums():
    first = [take(size) for size in (1, 512, 513, MIB, 3 * MIB)]
    cuda.report_host()
    give(first[1:4])
    take(700 * 1024)
    give(first[:1])


def oom():
    cuda.limit(256 * MIB)
    held = [take(32 * MIB) for _ in range(5)]
    step(steps=5)
    for _ in range(9):
        held.append(take(32 * MIB))  # HERE oom


def caught():
    """Handles two failed requests, and waits until its standard input ends."""
    cuda.limit(256 * MIB)
    held = [take(32 * MIB) for _ in range(8)]
    for _ in range(2):
        try:
            held.append(take(32 * MIB))  # HERE caught
        except MemoryError:
            pass
    print("failed", flush=True)
    sys.stdin.read()


def leak():
    losses = []

    def keep(at):
        losses.append(take(24 * MIB))  # HERE leak

    step(keep)


def empty_cache():
    def empty(at):
        blocks = [take(64 * MIB)]
        give(blocks)
        cuda.empty_cache()  # HERE empty_cache
        work(0.001)

    step(empty)


def fragments():
    pieces = [take(8 * MIB) for _ in range(16)]
    give(pieces[::2])
    held = []
    for _ in range(3):
        tprof.step()
        work()
        held.append(take(9 * MIB))  # HERE fragments


def holder():
    table = take(400 * MIB)  # HERE holder
    step()
    give([table])


def calm():
    step()


globals()[WAY]()
cuda.print_stats()
c10.print_reports()

"""Takes blocks from the stand-in for PyTorch's allocator in a known way, which the first argument
names. Each way that is a mistake has its line marked HERE."""

import ctypes
import random
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


def mixed():
    """Takes and gives back blocks of many sizes in an order that is always the same, and writes the
    allocator's own list of them into the file that the second argument names."""
    chance, held = random.Random(43), []
    for number in range(400):
        held.append(take(int(2 ** chance.uniform(0, 25))))
        while len(held) > chance.randrange(1, 40):
            give([held.pop(chance.randrange(len(held)))])
        if number == 200:
            cuda.empty_cache()
    held.append(take(1))
    cuda.write_snapshot(sys.argv[2].encode())


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


def retries():
    """Takes blocks for which the allocator must first give back the segment that it has cached, on
    a device of 128 MiB."""
    table = take(64 * MIB)
    for size in (40, 48, 56):
        give([take(size * MIB)])  # HERE retries
    give([table])


def pieces():
    """Asks for less than is free, but for more than is free in one piece."""
    cuda.limit(128 * MIB)
    blocks = [take(128 * MIB)]
    give(blocks)
    blocks = [take(16 * MIB) for _ in range(8)]
    give(blocks[::2])
    take(32 * MIB)  # HERE pieces


def uneven():
    """Takes 16 MiB in each step and gives them back. One step takes twice as much, and two keep 8 MiB."""
    def more(at):
        if at == 6:
            give([take(16 * MIB)])
        if at in (8, 9):
            take(8 * MIB)

    step(more, steps=12)
    tprof.step()


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
    """Keeps every second piece of a segment. Each step asks for more than the one before it, so that
    nothing that is free is large enough, on a device of 192 MiB."""
    give([take(128 * MIB)])
    pieces = [take(8 * MIB) for _ in range(16)]
    give(pieces[::2])
    step(lambda at: give([take((20 + at) * MIB)]), steps=30)  # HERE fragments


class Operator:
    """Runs an operator of the stand-in for libtorch_cpu."""

    def __init__(self, torch, name):
        torch.begin_operator.restype = ctypes.c_void_p
        torch.end_operator.argtypes = [ctypes.c_void_p]
        self.torch, self.name = torch, name

    def __enter__(self):
        self.running = self.torch.begin_operator(self.name)

    def __exit__(self, *_):
        self.torch.end_operator(self.running)


def inputs():
    """Copies an input from the host in each step, and computes an output of twice its size."""
    torch = ctypes.CDLL("libtorch_cpu.so", ctypes.RTLD_GLOBAL)
    getattr(torch, "PyInit__C", None)  # Python looks for it when it imports PyTorch.
    copy = ctypes.CDLL("libcudart.so.12").cudaMemcpy
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    host = ctypes.create_string_buffer(4 * MIB)

    def forward(at):
        with Operator(torch, b"aten::to"):
            blocks = [take(4 * MIB)]
            copy(blocks[0], ctypes.addressof(host), 4 * MIB, 1)
        with Operator(torch, b"aten::linear"):
            blocks.append(take(8 * MIB))
        work(0.001)
        give(blocks)

    for at in range(10):
        tprof.step()
        forward(at)


def holder():
    table = take(400 * MIB)  # HERE holder
    step()
    give([table])


def calm():
    step()


globals()[WAY]()
cuda.print_stats()
c10.print_reports()

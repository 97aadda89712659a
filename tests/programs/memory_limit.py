"""Fills a memory cgroup, with its own memory or only with a file's page cache. With "killed" a child
fills it until the kernel kills that.

Usage: memory_limit.py heap|file|killed CGROUP SCRATCH
Prints the cgroup's own figures: its highest use, and its highest use without page cache.
"""

import os
import signal
import sys
import time

FULL = 0.97
MIB = 1 << 20


def read(name):
    with open(f"{group}/{name}") as file:
        return file.read()


def use():
    """Returns the charged bytes, and the charged bytes that are not page cache."""
    used = int(read(names[0]))
    stat = dict(line.split() for line in read("memory.stat").splitlines())
    return used, used - int(stat[names[2]]) + int(stat[names[3]])


way, group, scratch = sys.argv[1:]
try:
    names = ["memory.current", "memory.max", "file", "shmem"]
    read(names[0])
except FileNotFoundError:
    names = ["memory.usage_in_bytes", "memory.limit_in_bytes", "total_cache", "total_shmem"]
limit = int(read(names[1]))
highest = [0, 0]
kept = []


def note():
    for at, value in enumerate(use()):
        highest[at] = max(highest[at], value)


if way == "killed":
    child = os.fork()
    while child == 0:
        kept.append(bytearray(b"x" * MIB))
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
elif way == "heap":
    while use()[1] < FULL * limit:
        kept.append(bytearray(b"x" * MIB))
else:
    path = f"{scratch}/large"
    with open(path, "wb") as file:
        file.truncate(2 * limit)
    with open(path, "rb", buffering=0) as file:
        while file.read(MIB):
            pass
# The memory is held long enough to show in readings every 100 ms.
for _ in range(20):
    note()
    time.sleep(0.03)
print(f"expect limit={limit}")
print(f"expect used={highest[0]}")
print(f"expect held={highest[1]}", flush=True)

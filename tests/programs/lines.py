"""Spends CPU time in one line of a function, through the standard library, and waits in another.

Prints `cpu=SECONDS` of the hot function and `waited=SECONDS` of the other, by its own clocks.
"""

import copy
import time


# Each loop calls the clock seldom, because a busy machine often preempts the thread in that call, and
# the sampler then reads that line.
def hot(seconds):
    end = time.thread_time() + seconds
    total = 0
    while time.thread_time() < end:
        for _ in range(25):
            total += sum(list(range(50000)))  # line: hot
    return total


def through_library(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(10):
            copy.deepcopy([[i] for i in range(2000)])  # line: library


def idle():
    began = time.monotonic()
    for _ in range(3):
        time.sleep(0.15)  # line: idle
    return time.monotonic() - began


hot(0.6)
through_library(0.3)
print(f"waited={idle()}")

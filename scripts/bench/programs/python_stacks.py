"""Allocates and frees memory below FRAMES different Python functions, and prints the CPU time of a round, the least
of five loops.

    python_stacks.py FRAMES held|given-up ROUNDS

held: a bytearray, whose bytes are one malloc, with Python's lock held.
given-up: malloc and free through ctypes, which releases the lock.
"""

import ctypes
import sys
import time

frames, lock, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]


def held(rounds):
    for _ in range(rounds):
        bytearray(1000)


def given_up(rounds):
    malloc, free = libc.malloc, libc.free
    for _ in range(rounds):
        free(malloc(1000))


# <module> and the loop itself are two of the frames.
called = held if lock == "held" else given_up
for number in range(frames - 2):
    scope = {"called": called}
    body = f"def function_{number}(rounds):\n    a = {number}\n    b = a + rounds\n    return called(b - {number})\n"
    exec(compile(body, f"made_{number}.py", "exec"), scope)
    called = scope[f"function_{number}"]

least = None
for _ in range(5):
    began = time.thread_time_ns()
    called(rounds)
    took = (time.thread_time_ns() - began) / rounds
    least = took if least is None else min(least, took)
print(f"round_ns={least}")

"""Runs two threads that want Python's lock all the time, and one that waits for another lock.

Proves: waiting for Python's lock is distinguished from waiting for a lock of the
program.
"""

import threading
import time


def victim_spins(end):
    while time.monotonic() < end:
        pass


def main():
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=held.acquire, daemon=True).start()
    end = time.monotonic() + 1.5
    for _ in range(2):
        threading.Thread(target=victim_spins, args=(end,)).start()


main()

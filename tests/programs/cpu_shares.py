"""Spends known CPU time in known functions, in two threads and a child.

Proves: tprof samples Python's functions from outside the process, and native code below them.
"""

import os
import threading
import time
import zlib


def spin(seconds):
    end = time.thread_time() + seconds
    x = 0
    while time.thread_time() < end:
        for i in range(20000):
            x += i
    return x


def victim_interpreted():
    spin(0.5)


class Victim:
    def victim_native(self):
        data = os.urandom(1 << 20)
        end = time.thread_time() + 0.5
        while time.thread_time() < end:
            zlib.compress(data, 6)


def victim_sleeps():
    time.sleep(0.7)


def main():
    sleeper = threading.Thread(target=victim_sleeps)
    sleeper.start()
    victim_interpreted()
    Victim().victim_native()
    sleeper.join()
    if os.fork() == 0:
        victim_interpreted()
        os._exit(0)
    os.wait()


main()

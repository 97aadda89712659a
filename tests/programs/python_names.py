"""Names its threads and processes.

Proves: threads have the last name that Python gave them, and a forked worker has a name of its own
and not its parent's.
"""

import multiprocessing
import threading
import time


def victim_spins(cpu_s):
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


class Own(threading.Thread):
    def __init__(self):
        super().__init__(name="Zähler")
        self.more = 1

    def run(self):
        victim_spins(0.1)


def victim_starts_a_worker():
    worker = multiprocessing.get_context("fork").Process(
        target=victim_spins, args=(0.6,), name="reader of data"
    )
    worker.start()
    worker.join()


idle = threading.Event()
threads = [
    threading.Thread(target=victim_spins, args=(1.3,), name="before"),
    threading.Thread(target=victim_starts_a_worker, name="starts a worker"),
    threading.Thread(target=idle.wait, name="idler"),
    Own(),
]
# The attributes are in another order than usual, and the object has a dictionary of its own.
threads[0].first = vars(threads[0])["daemon_or_not"] = 1
for thread in threads:
    thread.start()
threads[0].name = "after"
for thread in threads:
    if thread.name != "idler":
        thread.join()
idle.set()

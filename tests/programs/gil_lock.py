"""The main thread holds Python's lock and waits for a mutex, whose holder waits for Python's lock."""

import ctypes
import threading

keeps_lock, gives_lock = ctypes.PyDLL(None), ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
is_held = threading.Event()


def worker():
    gives_lock.pthread_mutex_lock(mutex)
    is_held.set()
    count = 0
    while True:
        count += 1


def takes_mutex():
    keeps_lock.pthread_mutex_lock(mutex)  # HERE main


threading.Thread(target=worker, daemon=True).start()
is_held.wait()
print("ready", flush=True)
takes_mutex()

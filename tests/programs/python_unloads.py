"""Forks while another thread unloads a library; the child allocates.

Proves: a library that a thread of the parent was about to unload blocks nothing in the
child, which has no such thread.
"""

import ctypes
import os
import sys
import threading


def victim_child():
    for _ in range(9):
        bytearray(500_017)  # line: forked


library = ctypes.CDLL(sys.argv[1])
begun, permitted = os.pipe(), os.pipe()
ctypes.c_int.in_dll(library, "victim_begun").value = begun[1]
ctypes.c_int.in_dll(library, "victim_permitted").value = permitted[0]
# Replaces `_ctypes.dlclose`, which does not release Python's lock in every version.
dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]
unloads = threading.Thread(target=dlclose, args=[library._handle])
unloads.start()
os.read(begun[0], 1)
child = os.fork()
if child == 0:
    victim_child()
    os._exit(0)
_, status = os.waitpid(child, 0)
os.write(permitted[1], b"0")
unloads.join()
sys.exit(status)

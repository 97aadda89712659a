"""Sends a known number of bytes from one process to another over TCP on the loopback interface, in
steps.

Usage: network_bytes.py STEPS BYTES [FILE]
Before the first step, it sends packets of one byte until FILE exists, if one is named. At the end it
waits until FILE is gone.
Prints how many bytes the interface received in all steps, by the kernel's own count, and their time.
"""

import os
import socket
import sys
import time

import tprof

STEPS, BYTES = int(sys.argv[1]), int(sys.argv[2])


def received():
    with open("/proc/self/net/dev") as file:
        values = next(line for line in file if line.strip().startswith("lo:"))
    return int(values.split(":")[1].split()[0])


with socket.create_server(("127.0.0.1", 0)) as server:
    child = os.fork()
    if child == 0:
        with socket.create_connection(server.getsockname()) as receiver:
            for _ in range(STEPS):
                left = BYTES
                while left > 0:
                    left -= len(receiver.recv(min(left, 1 << 20)))
                receiver.send(b"k")
        os._exit(0)
    sender = server.accept()[0]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ticks:
    ticks.bind(("127.0.0.1", 0))
    while len(sys.argv) > 3 and not os.path.exists(sys.argv[3]):
        ticks.sendto(b"x", ticks.getsockname())
        time.sleep(0.01)
before, begun = received(), time.monotonic()
for step in range(STEPS):
    tprof.step(step)
    # Readings around the bytes, so that bytes spread between two of them stay in the steps.
    time.sleep(0.3)
    sender.sendall(bytes(BYTES))
    sender.recv(1)
    time.sleep(0.3)
sender.close()
os.waitpid(child, 0)
tprof.step(STEPS)
print("expect received=%d seconds=%f" % (received() - before, time.monotonic() - begun), flush=True)
# A namespace can't be read any more once its last process has ended.
while len(sys.argv) > 3 and os.path.exists(sys.argv[3]):
    time.sleep(0.01)

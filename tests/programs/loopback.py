"""Sends 8 MiB to itself over TCP in each of eight steps of half a second.

Usage: loopback.py
"""

import socket
import threading
import time

import tprof

STEPS, BYTES = 8, 8 << 20

with socket.create_server(("127.0.0.1", 0)) as server:
    sender = socket.create_connection(server.getsockname())
    receiver = server.accept()[0]


def receive():
    while receiver.recv(1 << 16):
        pass


threading.Thread(target=receive, daemon=True).start()
data = bytes(BYTES)
for step in range(STEPS):
    tprof.step(step)
    sender.sendall(data)
    time.sleep(0.5)
tprof.step(STEPS)
time.sleep(0.5)

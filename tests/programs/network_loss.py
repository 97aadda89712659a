"""Makes steps that send to themselves over TCP. In one step the receivers drop all that arrives for a
while, so that the kernel sends it again; with `none`, that step only waits.

Usage: network_loss.py drop|none
Prints how many segments the kernel sent again, by its own count for the network namespace.
"""

import ctypes
import socket
import struct
import sys
import time

import tprof

STEPS, SLOW, CONNECTIONS = 60, 30, 16
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27


def retransmitted():
    with open("/proc/net/snmp") as file:
        names, values = (line.split() for line in file if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


# The program of a socket's filter: BPF_RET | BPF_K with 0 bytes, which drops every packet.
instruction = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(instruction))

before = retransmitted()
pairs = []
with socket.create_server(("127.0.0.1", 0)) as server:
    for _ in range(CONNECTIONS):
        sender = socket.create_connection(server.getsockname())
        pairs.append((sender, server.accept()[0]))
for step in range(STEPS):
    tprof.step(step)
    if step == SLOW:
        if sys.argv[1] == "drop":
            for _, receiver in pairs:
                receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            for sender, _ in pairs:
                sender.send(b"x")
        time.sleep(3)
        if sys.argv[1] == "drop":
            for _, receiver in pairs:
                receiver.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    else:
        for sender, _ in pairs:
            sender.send(b"x")
    for _, receiver in pairs:
        if step != SLOW or sys.argv[1] == "drop":
            receiver.recv(1)
    time.sleep(0.1)
tprof.step(STEPS)
print("expect retransmitted=%d" % (retransmitted() - before))

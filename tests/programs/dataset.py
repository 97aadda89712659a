"""Writes and reads a data set in many ways, below the directory that it gets: small files, a shard (tar), a mapping, a
copy, and parts at offsets, also from file to file. Prints the bytes that it got."""

import mmap
import os
import shutil
import sys
import tarfile

home = sys.argv[1]
os.makedirs(f"{home}/small")
for at in range(50):
    with open(f"{home}/small/{at}", "wb") as file:
        file.write(bytes([at]) * (100 + 37 * at))
with tarfile.open(f"{home}/shard.tar", "w") as shard:
    shard.add(f"{home}/small", "small")

got = 0
for at in range(50):
    with open(f"{home}/small/{at}", "rb") as file:
        got += len(file.read())
with tarfile.open(f"{home}/shard.tar") as shard:
    for member in shard:
        file = shard.extractfile(member)
        got += len(file.read()) if file else 0
with open(f"{home}/shard.tar", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    got += mapped[0]

shutil.copyfile(f"{home}/shard.tar", f"{home}/copy.tar")
shard, parts = os.open(f"{home}/copy.tar", os.O_RDONLY), os.open(f"{home}/parts.bin", os.O_RDWR | os.O_CREAT)
got += len(os.pread(shard, 700, 100)) + os.preadv(shard, [bytearray(10), bytearray(5000)], 9)
got += os.pwrite(parts, b"x" * 33, 5) + os.writev(parts, [b"ab", b"cde"]) + os.pwritev(parts, [b"fghi"], 99)
got += os.sendfile(parts, shard, 1000, 3000) + os.copy_file_range(shard, parts, 2000)
os.fsync(parts)
print(got)

"""Makes empty libraries in place of NVIDIA's libraries that PyTorch links and a CPU never calls.

    stand_ins.py SITE_PACKAGES

Each library has the symbols that PyTorch's libraries need from it, with their versions.
"""

import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# PyTorch loads the driver if it exists, so it must be missing.
NEVER = {"libcuda.so.1"}
PREFIX = {"libcudnn.so.9": "cudnn", "libnccl.so.2": "nccl", "libcufile.so.0": "cuFile"}


def lines(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def main():
    site = Path(sys.argv[1])
    libraries = sorted((site / "torch/lib").glob("*.so*"))
    there = {file.name for file in libraries} | {file.name for file in (site / "nvidia").rglob("lib*.so*")}
    needed, defined, loose = set(), set(), set()
    by_version = collections.defaultdict(set)  # version -> symbols
    of_file = collections.defaultdict(set)  # library -> versions
    for library in libraries:
        for line in lines("readelf", "-dW", str(library)):
            if found := re.search(r"NEEDED.*\[(.*)\]", line):
                needed.add(found.group(1))
        for line in lines("nm", "-D", str(library)):
            *_, kind, symbol = line.split()
            name, _, version = symbol.replace("@@", "@").partition("@")
            if kind not in "Uw":
                defined.add(name)
            elif version:
                by_version[version].add(name)
            elif kind == "U":
                loose.add(name)
        file = None
        for line in lines("readelf", "-VW", str(library)):
            if found := re.search(r"File: (\S+)", line):
                file = found.group(1)
            elif file and (found := re.search(r"Name: (\S+)\s+Flags", line)):
                of_file[file].add(found.group(1))
    into = site / "nvidia/stand_ins/lib"
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name in sorted(needed - there - NEVER):
            if not re.match(r"lib(cu|nv|nccl)", name):
                continue
            versions = sorted(of_file[name])
            symbols = set().union(*(by_version[version] for version in versions))
            if not symbols:
                start = PREFIX.get(name, name[3:].split(".")[0].lower()[:7])
                symbols = {symbol for symbol in loose - defined if symbol.startswith(start)}
            source = Path(work, "s.c")
            source.write_text("".join(f"int {symbol}(void) {{ return 1; }}\n" for symbol in sorted(symbols)) or "int nothing;")
            command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(into / name), str(source), f"-Wl,-soname,{name}"]
            if versions:
                script = Path(work, "s.map")
                texts = (f"{version} {{ global: {' '.join(f'{s};' for s in sorted(by_version[version]))} }};" for version in versions)
                script.write_text("\n".join(texts) + "\n")
                command.append(f"-Wl,--version-script={script}")
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()

"""Makes libraries with the functions that PyTorch needs and the stand-ins for CUDA lack: stubs.py TORCH_LIB STAND_INS
OUT.

Each needed library that is missing becomes an empty one of its name. Each function that no library defines becomes a
function of libmissing.so, which returns a CUDA error (for CUPTI: success). Functions of the driver and of NVML that
PyTorch looks up by name are written to OUT/cuda.c and OUT/nvml.c, to be linked with the stand-ins' archives; all of
them succeed.
"""

import pathlib
import re
import subprocess
import sys

NOT_SUPPORTED = 801
LOOKED_UP = {"cuda": (r"cu[A-Z][a-z][A-Za-z0-9]{4,}(?:_v[0-9])?", "libcuda.so.1"),
             "nvml": (r"nvml[A-Z]\w+", "libnvidia-ml.so.1")}
OF_CUDA = re.compile(r"lib(cu|nv|nccl)")


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def names(library, which):
    found = (line.split()[-1] for line in lines("nm", "-D", which, str(library)))
    return {name.split("@")[0] for name in found}


def looked_up(torch, stand_ins, out):
    """Writes sources of the functions that PyTorch looks up in a library by name, and that the library's stand-in
    lacks."""
    texts = {text for path in torch.glob("lib*_cuda.so") for text in re.findall(rb"[\x20-\x7e]{4,}", path.read_bytes())}
    for file, (pattern, library) in LOOKED_UP.items():
        wanted = {text.decode() for text in texts if re.fullmatch(pattern.encode(), text)}
        wanted -= names(stand_ins / library, "--defined-only")
        lines = [f"int {name}(void) {{ return 0; }}" for name in sorted(wanted)]
        (out / f"{file}.c").write_text("\n".join([*lines, "const int fake_major = 13;", ""]))


def main():
    torch, stand_ins, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    there = {path.name: path for folder in (torch, stand_ins) for path in folder.glob("lib*.so*")}
    needed, wanted, defined = set(), set(), set()
    for path in there.values():
        defined |= names(path, "--defined-only")
    for path in torch.glob("lib*.so*"):
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", "\n".join(lines("readelf", "-dW", str(path)))))
        undefined = (line.split() for line in lines("nm", "-D", "--undefined-only", str(path)))
        # Symbols of the C and C++ libraries have one of these versions.
        wanted |= {n.split("@")[0] for kind, n in undefined if kind == "U" and not re.search("@(GLIBC|CXXABI|GCC|GOMP|GFORTRAN|OMP)", n)}
    missing = sorted(n for n in wanted - defined if re.match(r"cu|nv|nccl|__cuda", n))
    source = "".join(f"int {n}(void) {{ return {0 if n.startswith('cupti') else NOT_SUPPORTED}; }}\n" for n in missing)
    build = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-"]
    subprocess.run([*build, "-Wl,-soname,libmissing.so", "-o", str(out / "libmissing.so")], input=source, text=True, check=True)
    for name in needed - set(there):
        if OF_CUDA.match(name):
            link = [f"-Wl,-soname,{name}", "-L", str(out), "-Wl,--no-as-needed", "-lmissing", "-o", str(out / name)]
            subprocess.run([*build, *link], input="", text=True, check=True)
    looked_up(torch, stand_ins, out)
    print(len(missing), "functions are missing")


main()

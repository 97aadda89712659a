"""Fetches CUDA's headers from PyPI into a cache outside the repository.

`headers.py CACHE VERSION` prints the include folder of that CUDA version. The
wheels are NVIDIA's own; nothing of them is committed.
"""

import pathlib
import subprocess
import sys
import zipfile

# CUDA version: wheels that together hold cupti.h and all that it includes.
WHEELS = {
    "12.0": ["cuda-cupti-cu12==12.0.146", "cuda-runtime-cu12==12.0.146", "cuda-nvcc-cu12==12.0.140"],
    "12.4": ["cuda-cupti-cu12==12.4.127", "cuda-runtime-cu12==12.4.127", "cuda-nvcc-cu12==12.4.131"],
    "12.9": ["cuda-cupti-cu12==12.9.79", "cuda-runtime-cu12==12.9.79", "cuda-nvcc-cu12==12.9.86"],
    "13.0": ["cuda-cupti==13.0.85", "cuda-runtime==13.0.96", "cuda-crt==13.0.88"],
    "13.5": ["cuda-cupti==13.5.25", "cuda-runtime==13.5.37", "cuda-crt==13.5.37"],
}


def unpack(wheel, include):
    """Lays all that a wheel keeps under some `include/` into one folder."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            head, found, inside = name.partition("/include/")
            if not found or inside.endswith("/"):
                continue
            target = include / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def fetch(cache, version):
    """The include folder of a version, made on first use."""
    include = cache / version
    if (include / "done").exists():
        return include
    wheels = cache / f"wheels-{version}"
    for requirement in WHEELS[version]:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(wheels)]
        subprocess.run([*command, f"nvidia-{requirement}"], check=True)
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, include)
    (include / "done").touch()
    return include


if __name__ == "__main__":
    print(fetch(pathlib.Path(sys.argv[1]), sys.argv[2]))

"""Fetches headers of CUDA and NCCL from PyPI into a cache outside the repository.

`headers.py CACHE VERSION` prints the include folder of that CUDA version. The
wheels are NVIDIA's own; nothing of them is committed.
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

# Wheels of each CUDA version, by the headers in them. Before CUDA 13, the compiler's wheel has the
# headers that nvcc's code includes (`crt`).
WHEELS = {
    "12.0": {"cupti": "cuda-cupti-cu12==12.0.146", "runtime": "cuda-runtime-cu12==12.0.146",
             "crt": "cuda-nvcc-cu12==12.0.140", "cublas": "cublas-cu12==12.0.2.224"},
    "12.1": {"cupti": "cuda-cupti-cu12==12.1.105", "runtime": "cuda-runtime-cu12==12.1.105",
             "crt": "cuda-nvcc-cu12==12.1.105"},
    "12.2": {"cupti": "cuda-cupti-cu12==12.2.142", "runtime": "cuda-runtime-cu12==12.2.140",
             "crt": "cuda-nvcc-cu12==12.2.140"},
    "12.3": {"cupti": "cuda-cupti-cu12==12.3.101", "runtime": "cuda-runtime-cu12==12.3.101",
             "crt": "cuda-nvcc-cu12==12.3.107"},
    "12.4": {"cupti": "cuda-cupti-cu12==12.4.127", "runtime": "cuda-runtime-cu12==12.4.127",
             "crt": "cuda-nvcc-cu12==12.4.131"},
    "12.5": {"cupti": "cuda-cupti-cu12==12.5.82", "runtime": "cuda-runtime-cu12==12.5.82",
             "crt": "cuda-nvcc-cu12==12.5.82"},
    "12.6": {"cupti": "cuda-cupti-cu12==12.6.80", "runtime": "cuda-runtime-cu12==12.6.77",
             "crt": "cuda-nvcc-cu12==12.6.85"},
    "12.8": {"cupti": "cuda-cupti-cu12==12.8.90", "runtime": "cuda-runtime-cu12==12.8.90",
             "crt": "cuda-nvcc-cu12==12.8.93"},
    "12.9": {"cupti": "cuda-cupti-cu12==12.9.79", "runtime": "cuda-runtime-cu12==12.9.79",
             "crt": "cuda-nvcc-cu12==12.9.86", "cublas": "cublas-cu12==12.9.1.4"},
    "13.0": {"cupti": "cuda-cupti==13.0.85", "runtime": "cuda-runtime==13.0.96",
             "crt": "cuda-crt==13.0.88"},
    "13.1": {"cupti": "cuda-cupti==13.1.115", "runtime": "cuda-runtime==13.1.80",
             "crt": "cuda-crt==13.1.115"},
    "13.2": {"cupti": "cuda-cupti==13.2.86", "runtime": "cuda-runtime==13.2.86",
             "crt": "cuda-crt==13.2.86"},
    "13.3": {"cupti": "cuda-cupti==13.3.75", "runtime": "cuda-runtime==13.3.29",
             "crt": "cuda-crt==13.3.73"},
    "13.4": {"cupti": "cuda-cupti==13.4.92", "runtime": "cuda-runtime==13.4.92",
             "crt": "cuda-crt==13.4.92"},
    "13.5": {"cupti": "cuda-cupti==13.5.25", "runtime": "cuda-runtime==13.5.37",
             "crt": "cuda-crt==13.5.37", "cublas": "cublas==13.10.0.20"},
}
# NCCL's versions follow CUDA's only loosely.
NCCL = {
    "nccl-2.18": "nccl-cu12==2.18.3", "nccl-2.23": "nccl-cu12==2.23.4",
    "nccl-2.27": "nccl-cu12==2.27.7", "nccl-2.32": "nccl-cu13==2.32.3",
}
# The parts that the bindings are made from.
PARTS = ("cupti", "runtime", "crt")


def unpack(wheel, include):
    """Copies all files that a wheel has below any `include/` into one folder."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            head, found, inside = name.partition("/include/")
            if not found or inside.endswith("/"):
                continue
            target = include / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def fetch(cache, version, parts=PARTS):
    """Returns the include folder of a version with these parts. Each part is fetched on first use."""
    include = pathlib.Path(cache) / version
    wheels = {"nccl": NCCL[version]} if version in NCCL else WHEELS[version]
    for part, requirement in wheels.items():
        done = include / f".{part}"
        if version not in NCCL and part not in parts or done.exists():
            continue
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                       "--disable-pip-version-check", "--only-binary", ":all:", "-d", folder]
            subprocess.run([*command, f"nvidia-{requirement}"], check=True)
            for wheel in pathlib.Path(folder).glob("*.whl"):
                unpack(wheel, include)
        include.mkdir(parents=True, exist_ok=True)
        done.touch()
    return include


if __name__ == "__main__":
    print(fetch(pathlib.Path(sys.argv[1]), sys.argv[2]))

"""Reads facts of a machine before anything runs: devices, driver, limits, libraries."""

import glob
import json
import os
import platform
import re
import subprocess
import sys

import checks.older

# For each CUDA version of a driver, the newest PyTorch build that runs on it, newest first.
BUILDS = [((13, 0), "cu130"), ((12, 8), "cu128"), ((12, 6), "cu126"), ((12, 1), "cu121")]


def output(*command, limit_s=30):
    """Returns the output of a command, or None."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=limit_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def failing(*command, limit_s=30):
    """Returns the last line that a command printed if it did not end with 0, else None."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=limit_s, check=False)
    except OSError as error:
        return error.strerror
    except subprocess.TimeoutExpired:
        return f"it did not end within {limit_s} s"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return None if done.returncode == 0 else lines[-1] if lines else f"status {done.returncode}, and no message"


def contents(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def parameter(name):
    """Returns a parameter of NVIDIA's kernel module, as it is loaded."""
    found = re.search(rf"^{name}:\s*(.*)$", contents("/proc/driver/nvidia/params") or "", re.M)
    return found and found.group(1)


def query(field):
    text = output("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")
    return [line.strip() for line in text.splitlines()] if text else None


def cuda_of_driver():
    """Returns (major, minor) of the newest CUDA that the driver supports, or None."""
    found = re.search(r"CUDA Version\s*:\s*(\d+)\.(\d+)", output("nvidia-smi") or "")
    return found and (int(found.group(1)), int(found.group(2)))


def without_driver(folders):
    """Returns the reason why no device can be used, or None."""
    why = failing("nvidia-smi", "-L")
    if why is None or find("libcuda.so.1", folders):
        return None
    return f"nvidia-smi: {why}; and there is no libcuda.so.1"


def facts(tprof, folders):
    """Returns all facts of the machine; a fact that can't be determined is None."""
    names, cuda = query("name"), cuda_of_driver()
    libraries = {name: find(name, folders) for name in ("libcudart.so.12", "libcudart.so.13",
                                                        "libcupti.so.12", "libcupti.so.13")}
    driver = find("libcuda.so.1", folders)
    return {
        "edition": checks.older.EDITION,
        "gpu": names and names[0], "gpus": names, "driver": (query("driver_version") or [None])[0],
        "cuda_of_driver": cuda and f"{cuda[0]}.{cuda[1]}",
        "simulated": bool(driver) and b"tprof_fake_engine" in open(driver, "rb").read(),
        "mig": query("mig.mode.current"), "persistence": query("persistence_mode"),
        "compute_mode": query("compute_mode"),
        "mps": output("pidof", "nvidia-cuda-mps-control") is not None,
        "restricted_to_admins": parameter("RmProfilingAdminOnly"),
        "libraries": {name: path for name, path in libraries.items() if path},
        "tprof": (output(tprof, "--version") or "").strip() or None,
        "kernel": platform.release(), "glibc": " ".join(platform.libc_ver()), "python": sys.version.split()[0],
        "wsl": "microsoft" in platform.release().lower(), "cpus": os.cpu_count(),
        "container": os.path.exists("/.dockerenv") or bool(os.environ.get("container")),
        "variables": {name: os.environ[name] for name in sorted(os.environ)
                      if name.startswith(("CUDA_", "NCCL_", "PYTORCH_", "TORCH_", "FAKE_CU", "NVIDIA_"))},
    }


def find(name, folders):
    """Returns the path of a library in these folders, in the loader's cache, in toolkits or in wheels."""
    for folder in folders:
        for path in (os.path.join(folder, name), *glob.glob(f"{folder}/**/{name}", recursive=True)):
            if os.path.exists(path):
                return path
    listed = re.search(rf"\b{re.escape(name)}\b.*=> (\S+)", output("ldconfig", "-p") or "")
    if listed:
        return listed.group(1)
    places = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/extras/CUPTI/lib64", "/opt/conda/lib"]
    return next((path for place in places for path in sorted(glob.glob(f"{place}/{name}"), reverse=True)), None)


def builds(cuda):
    """Returns the PyTorch builds for this driver, the newest first; all of them if its CUDA version is unknown."""
    return [build for least, build in BUILDS if cuda is None or cuda >= least]


def has_torch(python):
    return output(python, "-c", "import torch", limit_s=120) is not None


def packages(python):
    """Returns {name: version} of the packages that are installed for a Python, with or without pip."""
    program = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}))"
    )
    text = output(python, "-c", program)
    return json.loads(text) if text else {}

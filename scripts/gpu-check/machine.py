"""What is read of a machine before anything runs: devices, driver, limits, libraries; and a
virtual environment with torch, where one is wanted."""

import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys

# The newest PyTorch builds that a driver of this CUDA version runs, newest first.
BUILDS = [((13, 0), "cu130"), ((12, 8), "cu128"), ((12, 6), "cu126"), ((12, 1), "cu121")]
INDEX = "https://download.pytorch.org/whl/"


def output(*command, limit_s=30):
    """What a command prints, or None."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=limit_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def contents(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def parameter(name):
    """A parameter of NVIDIA's kernel module, as it is loaded."""
    found = re.search(rf"^{name}:\s*(.*)$", contents("/proc/driver/nvidia/params") or "", re.M)
    return found and found.group(1)


def query(field):
    text = output("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")
    return [line.strip() for line in text.splitlines()] if text else None


def cuda_of_driver():
    """(major, minor) of the newest CUDA that the driver runs, or None."""
    found = re.search(r"CUDA Version\s*:\s*(\d+)\.(\d+)", output("nvidia-smi") or "")
    return found and (int(found.group(1)), int(found.group(2)))


def facts(tprof, folders):
    """All of them; None where it cannot be had."""
    names, cuda = query("name"), cuda_of_driver()
    libraries = {name: find(name, folders) for name in ("libcudart.so.12", "libcudart.so.13",
                                                        "libcupti.so.12", "libcupti.so.13")}
    driver = find("libcuda.so.1", folders)
    return {
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
    """A library in these folders, in the loader's cache, in toolkits and in wheels."""
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
    """PyTorch builds for this driver, the newest first; all of them where it is not known."""
    return [build for least, build in BUILDS if cuda is None or cuda >= least]


def has_torch(python):
    return output(python, "-c", "import torch", limit_s=120) is not None


def packages(python):
    """{name: version} of what is installed for a Python, with or without pip."""
    program = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}))"
    )
    text = output(python, "-c", program)
    return json.loads(text) if text else {}


def bootstrap(steps, folder, build):
    """A virtual environment with that build of torch: its Python, or None."""
    python = os.path.join(folder, "bin", "python")
    if os.path.exists(python) and has_torch(python):
        return python
    version = "==2.4.1" if build == "cu121" else ""
    if shutil.which("uv"):
        made = steps.run(f"venv {build}", ["uv", "venv", "--quiet", folder], 60)
        install = ["uv", "pip", "install", "--quiet", "--python", python]
    else:
        made = steps.run(f"venv {build}", [sys.executable, "-m", "venv", folder], 120)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not made:
        return None
    # Only of this index: PyPI's torch is newer, and for a newer driver.
    if steps.run(f"torch {build}", [*install, f"torch{version}", "numpy", "--index-url", INDEX + build], 480):
        return python
    newest = build == BUILDS[0][1]
    return python if newest and steps.run("torch of PyPI", [*install, "torch", "numpy"], 480) else None


def bootstrap_cuda(steps, folder, major, cuda):
    """NVIDIA's runtime and CUPTI from PyPI, for the programs without torch: their folder, or None.
    Of the driver's own minor version, which CUPTI must not be newer than."""
    minor = cuda[1] if cuda and cuda[0] == major else {12: 9}.get(major, 0)
    names = ["nvidia-cuda-runtime", "nvidia-cuda-cupti"]
    wanted = [f"{name}{'-cu12' if major == 12 else ''}=={major}.{minor}.*" for name in names]
    tool = ["uv", "pip"] if shutil.which("uv") else [sys.executable, "-m", "pip"]
    done = steps.run(f"CUDA {major} libraries", [*tool, "install", "--quiet", "--target", folder, *wanted], 120)
    return folder if done else None

"""Fetches what the check needs and the machine lacks: PyTorch in a virtual environment, and CUDA's runtime and CUPTI.

It tries uv, then the venv module, then pip into a folder.
"""

import os
import shutil
import sys

import machine

INDEX = "https://download.pytorch.org/whl/"
# Space for PyTorch's wheels with CUDA, and for their unpacked content.
ROOM_BYTES = 9 << 30
CUDA_BYTES = 300 << 20
# Without a network, pip would retry five times.
PIP = ("--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "30")
NETWORK = "whether this machine reaches pypi.org (HTTPS_PROXY, PIP_INDEX_URL); or --python PATH with a torch that is there"


def room(steps, name, folder, bytes_):
    """Whether the disk has room. If it doesn't, notes the step as skipped."""
    at = os.path.dirname(os.path.abspath(folder))
    os.makedirs(at, exist_ok=True)
    free = shutil.disk_usage(at).free
    if free < bytes_:
        steps.skip(name, f"{at} has {free >> 20} MiB free, and {bytes_ >> 20} MiB are needed", "--work DIR on a disk with more room")
    return free >= bytes_


def environment(steps, folder, build):
    """Returns a Python with packages of its own, and the words of the command that installs into it; or None."""
    python = os.path.join(folder, "bin", "python")
    if shutil.which("uv") and steps.run(f"venv {build}", ["uv", "venv", "--quiet", folder], 60):
        return python, ["uv", "pip", "install", "--quiet", "--python", python]
    if steps.run(f"venv {build}", [sys.executable, "-m", "venv", "--clear", folder], 120):
        return python, [python, "-m", "pip", "install", *PIP]
    # The last resort is pip. Debian's Python has neither ensurepip nor venv until python3-venv is installed.
    if machine.output(sys.executable, "-m", "pip", "--version") is None:
        steps.skip(f"torch {build}", f"{sys.executable} has no venv module and no pip: {steps.last_words()}",
                   "apt-get install python3-venv, or a uv in PATH, or --python PATH with a torch that is there")
        return None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "bin"))
    packages = os.path.join(folder, "packages")
    with open(python, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n')
    os.chmod(python, 0o755)
    return python, [sys.executable, "-m", "pip", "install", *PIP, "--target", packages]


def torch(steps, folder, build):
    """Returns a Python with that build of torch, or None."""
    python = os.path.join(folder, "bin", "python")
    if os.path.exists(python) and machine.has_torch(python):
        return python
    if not room(steps, f"torch {build}", folder, ROOM_BYTES):
        return None
    made = environment(steps, folder, build)
    if made is None:
        return None
    python, install = made
    version = "==2.4.1" if build == "cu121" else ""
    # The packages come only from this index: PyPI's torch is newer, and needs a newer driver.
    done = steps.run(f"torch {build}", [*install, f"torch{version}", "numpy", "--index-url", INDEX + build], 480)
    if not done and build == machine.BUILDS[0][1]:
        done = steps.run("torch of PyPI", [*install, "torch", "numpy"], 480)
    if not done:
        steps.skip("torch", f"{build} could not be fetched: {steps.last_words()}", NETWORK)
        return None
    # Also install the package that reads memory with NVML; without it, that check is left out.
    steps.run(f"NVML for {build}", [*install, "nvidia-ml-py"], 60)
    return python


def cuda(steps, folder, major, cuda_of_driver):
    """Installs NVIDIA's runtime and CUPTI from PyPI, for the programs without torch. Returns their folder, or None.
    They have the driver's own minor version, because CUPTI must not be newer than the driver."""
    name = f"CUDA {major} libraries"
    if not room(steps, name, folder, CUDA_BYTES):
        return None
    minor = cuda_of_driver[1] if cuda_of_driver and cuda_of_driver[0] == major else {12: 9}.get(major, 0)
    names = ["nvidia-cuda-runtime", "nvidia-cuda-cupti"]
    wanted = [f"{one}{'-cu12' if major == 12 else ''}=={major}.{minor}.*" for one in names]
    tool = ["uv", "pip", "install", "--quiet"] if shutil.which("uv") else [sys.executable, "-m", "pip", "install", *PIP]
    if steps.run(name, [*tool, "--target", folder, *wanted], 120):
        return folder
    steps.skip(f"{name} from PyPI", steps.last_words(), "--cuda DIR with a toolkit's folder; " + NETWORK)
    return None

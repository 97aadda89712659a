"""Runs the PyTorch programs, in the Python that was named or in those that bootstrap.py makes."""

import os

import bootstrap
import machine

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
# Approximate time to fetch a build of PyTorch and to check it.
NEXT_TORCH_S = 360
MODES = ("plain", "graph", "streams", "compile")
# For each stage of a Python: its description if the stage fails, the code that tests it, and advice.
STAGES = (
    ("does not start", "", "a path to a Python 3 that runs"),
    ("has no torch that loads", "import torch", "pip install torch in it, or --bootstrap"),
    ("has a torch without CUDA", "import torch; assert torch.version.cuda, 'torch.version.cuda is None'",
     "a CUDA build of torch, or --bootstrap"),
    ("finds no device", "import torch; torch.zeros(1).cuda()",
     "nvidia-smi; in a container --gpus all; an older --torch build if the driver is older"),
)


def unusable(python):
    """Returns (reason, what to try) for a Python that can't use a device, or None."""
    for why, program, remedy in STAGES:
        said = machine.failing(python, "-c", program, limit_s=180)
        if said is not None:
            return f"{python} {why}: {said}", remedy
    return None


class PyTorch:
    """Runs the programs. `check` runs the commands and has the paths of their results."""

    def __init__(self, check, args, cuda):
        self.check, self.args, self.cuda = check, args, cuda
        self.steps, self.path = check.steps, check.path

    def run(self, programs=True):
        """Runs the programs, unless only a Python is wanted. Returns the first Python that can use a device, or
        None."""
        first = None
        for name, python in self.pythons():
            failed = unusable(python)
            if failed:
                self.steps.skip("torch", *failed)
                continue
            first = first or python
            self.check.keep(f"{name if programs else 'recording'}/packages.json", machine.packages(python))
            if programs:
                self.programs(name, python)
        if not first and not any(one["name"] == "torch" for one in self.steps.list):
            why = "it could not be made" if self.args.bootstrap else "none was named, and none was made (--bootstrap)"
            self.steps.skip("torch", f"no Python with torch: {why}")
        return first

    def pythons(self):
        """Yields (name, Python with torch): the named one, or those that are made here, each after the one before has
        been checked."""
        if self.args.python:
            yield "torch-own", self.args.python
        if not self.args.bootstrap:
            return
        builds = machine.builds(self.cuda)
        wanted = {"": builds[:1], "all": builds}.get(self.args.torch, self.args.torch.split(","))
        for number, build in enumerate(wanted):
            if number and self.steps.left_s() < NEXT_TORCH_S:
                self.steps.skip(f"torch {build}", "too little is left of the time for the whole check (--limit)")
                continue
            python = bootstrap.torch(self.steps, os.path.join(self.args.work, f"venv-{build}"), build)
            if python:
                yield f"torch-{build}", python

    def program(self, name, python, *words):
        return [python, os.path.join(PROGRAMS, name), *words]

    def programs(self, name, python):
        at = lambda *parts: self.path(name, *parts)
        traced = self.check.traced
        traced(f"{name} takeover", f"{name}/takeover",
               self.program("takeover.py", python, at("takeover", "takeover.json"), str(self.args.after)), limit_s=180)
        for kind, settings in (("default", ""), ("segments", "expandable_segments:True"),
                               ("pools", "backend:cudaMallocAsync")):
            traced(f"{name} memory {kind}", f"{name}/memory-{kind}",
                   self.program("memory.py", python, at(f"memory-{kind}", "memory.json")),
                   {"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else None, 90)
        for kind, settings in (("default", ""), ("segments", "expandable_segments:True")):
            traced(f"{name} blocks {kind}", f"{name}/blocks-{kind}",
                   self.program("blocks.py", python, at(f"blocks-{kind}", "blocks.json")),
                   {"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else None, 90)
        traced(f"{name} units", f"{name}/units", self.program("units.py", python, at("units", "units.json"), "1" if self.args.quick else "3"), limit_s=90)
        traced(f"{name} metrics", f"{name}/metrics",
               self.program("metrics.py", python, at("metrics", "metrics.json"), "1" if self.args.quick else "3"),
               {"TPROF_GPU_METRICS": "500us"}, 90)
        traced(f"{name} loader", f"{name}/loader", self.program("loader.py", python, at("loader", "loader.json")), limit_s=90)
        for mode in self.args.torch_modes.split(","):
            words = ["--mode", mode, "--out"]
            self.steps.run(f"{name} {mode}, native", self.program("train.py", python, *words, at(f"train-{mode}", "native.json")), 120)
            traced(f"{name} {mode}, traced", f"{name}/train-{mode}",
                   self.program("train.py", python, *words, at(f"train-{mode}", "traced.json")), limit_s=120)
        traced(f"{name} rows", f"{name}/rows",
               self.program("train.py", python, "--steps", "2", "--out", at("rows", "traced.json")), limit_s=90, raw=True)
        devices = machine.query("name") or []
        for kind, settings in (("blocking", "0"), ("non-blocking", "1")) if len(devices) > 1 else ():
            traced(f"{name} collectives {kind}", f"{name}/collectives-{kind}",
                   self.program("collectives.py", python, at(f"collectives-{kind}", "collectives.json")),
                   {"TORCH_NCCL_USE_COMM_NONBLOCKING": settings}, 120)

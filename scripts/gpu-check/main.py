"""Runs the check on a machine with a GPU, packs the evidence, and judges it.

gpu-check.sh starts it. Steps are independent: if one fails or hangs, the others still run. A step writes its evidence
into a folder with its name; `judge.py` reads nothing else. However the check ends, there is an archive.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bootstrap
import known
import machine
import pytorch
import recording
import send
import tables
from step import Steps


class Check:
    """A run of the check."""

    def __init__(self, args):
        self.args, self.out, self.tprof = args, os.path.abspath(args.out), os.path.abspath(args.tprof)
        self.folders = [os.path.abspath(folder) for folder in args.cuda]
        self.facts = {}
        # A directory that existed before this check is not removed to free space.
        self.made_work = not os.path.exists(args.work)
        os.makedirs(self.out)
        self.steps = Steps(self.out, args.limit * 60)

    def path(self, *names):
        path = os.path.join(self.out, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def keep(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)

    def traced(self, name, folder, command, env=None, limit_s=60, raw=False, less_s=0, options=()):
        """Runs a command under tprof, and keeps the files that a judge reads."""
        run = self.path(folder, "run")
        env = dict(env or {})
        if raw:
            env["TPROF_CUPTI_RECORD"] = self.path(folder, "raw.cupti")
        whole = [self.tprof, "run", "--quiet", "--force", "--cuda-graphs", "node", *options, "-o", run, "--", *command]
        ended = self.steps.run(name, whole, limit_s, env, less_s)
        if os.path.isdir(run):
            tables.export(self.tprof, run, os.path.dirname(run))
            shutil.rmtree(run)
        return ended

    def fetch_cuda(self, cuda):
        major = cuda[0] if cuda else 12
        for one in sorted({12, major}):
            folder = bootstrap.cuda(self.steps, os.path.join(self.args.work, f"cuda-{one}"), one, cuda)
            self.folders += [folder] if folder else []

    def read_machine(self):
        self.facts = machine.facts(self.tprof, self.folders)
        self.keep("facts.json", self.facts)
        for name, command in (("nvidia-smi.txt", ["nvidia-smi", "-q"]), ("topology.txt", ["nvidia-smi", "topo", "-m"])):
            text = machine.output(*command)
            if text:
                with open(self.path(name), "w", encoding="utf-8") as file:
                    file.write(text)

    def doctor(self, env):
        for name, words in (("doctor.json", ["doctor", "--json"]), ("run-kernel.json", ["doctor", "--run-kernel", "--json"])):
            with open(self.path(name), "wb") as file:
                try:
                    subprocess.run([self.tprof, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **env}, timeout=60, check=False)
                except subprocess.TimeoutExpired:
                    self.steps.skip(name, "it did not end within 60 s")

    def run(self):
        cuda = machine.cuda_of_driver()
        missing = machine.without_driver(self.folders)
        if missing:
            self.steps.skip("devices", f"there is no NVIDIA driver here: {missing}",
                            "nvidia-smi on the host; in a container --gpus all; what needs no device runs, and the archive states it")
        if self.args.bootstrap:
            self.fetch_cuda(cuda)
        self.read_machine()
        environments = known.environments(self.steps, self.folders)
        self.doctor(next(iter(environments.values()), {}))
        all_parts, python = self.args.only is None, None
        if all_parts:
            known.Known(self, self.args.quick).run(environments)
        if missing and not self.args.python:
            self.steps.skip("torch", "there is no device for it to run on")
        else:
            python = pytorch.PyTorch(self, self.args, cuda).run(programs=all_parts)
        recording.Recording(self, self.args).run(python)


def parser():
    of = argparse.ArgumentParser(prog="gpu-check.sh", description=(
        "Checks tprof on this machine's NVIDIA GPU, in at most 20 minutes, and packs what it found."))
    of.add_argument("--bootstrap", action="store_true", help="fetch PyTorch and CUDA's libraries into --work")
    of.add_argument("--torch", default="", metavar="BUILDS", help=(
        "with --bootstrap: PyTorch builds as cu126,cu130, or all that this driver runs (default: the newest of them)"))
    of.add_argument("--torch-modes", default=",".join(pytorch.MODES), metavar="MODES", help=argparse.SUPPRESS)
    of.add_argument("--python", help="a Python that has torch, in place of --bootstrap")
    of.add_argument("--cuda", action="append", default=[], metavar="DIR", help="where CUDA's libraries are; repeatable")
    of.add_argument("--out", default="gpu-check", help="folder for what is gathered; must not exist (default: gpu-check)")
    of.add_argument("--work", default="gpu-check-work", help="folder for what is fetched (default: gpu-check-work)")
    of.add_argument("--limit", type=float, default=18, help="minutes for all steps together (default: 18)")
    of.add_argument("--after", type=float, default=30, help="seconds to run behind torch.profiler (default: 30)")
    of.add_argument("--only", choices=["recording"], help="this part alone, in all of --limit")
    of.add_argument("--rounds", type=int, default=recording.ROUNDS, help=(
        f"rounds of what recording costs, as many as --limit leaves time for (default: {recording.ROUNDS})"))
    of.add_argument("--quick", action="store_true", help="the smallest sizes, to see that the parts work")
    of.add_argument("--tprof", default=os.path.join(HERE, "..", "..", "tprof"), help=argparse.SUPPRESS)
    return of


def arguments():
    of = parser()
    args = of.parse_args()
    args.work = os.path.abspath(args.work)
    known_builds = [build for _, build in machine.BUILDS]
    unknown = [build for build in args.torch.split(",") if build not in ("", "all", *known_builds)]
    if unknown:
        of.error(f"--torch {unknown[0]}: no such build; try one of {', '.join(known_builds)}, or all")
    if args.torch and not args.bootstrap:
        of.error("--torch names what is fetched; add --bootstrap, or use --python PATH")
    if args.rounds < 1:
        of.error(f"--rounds {args.rounds}: it is 1 or more")
    if args.limit <= 0:
        of.error(f"--limit {args.limit}: it is in minutes, and more than 0")
    for folder in args.cuda:
        if not os.path.isdir(folder):
            of.error(f"--cuda {folder}: there is no such folder; it is one with libcudart.so or libcupti.so in it")
    if args.python and not shutil.which(args.python):
        of.error(f"--python {args.python}: there is no such program; it is a Python with torch")
    if os.path.exists(args.out):
        of.error(f"{args.out} is there already; move it away, or --out names another")
    why = machine.failing(args.tprof, "--version")
    if why is not None:
        of.error(f"{args.tprof} does not start: {why}; it is for x86-64 Linux, on a file system without noexec")
    return args


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    args = arguments()
    try:
        check = Check(args)
    except OSError as error:
        sys.exit(f"error: {args.out} cannot be made: {error.strerror}\n  try: a folder that you may write to, or --out DIR")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        check.run()
    except KeyboardInterrupt:
        send.cut_short(check, "it was interrupted")
    except OSError as error:
        send.cut_short(check, f"{error.filename or 'a file'} could not be written: {error.strerror}")
    # Packing takes a second and must not be interrupted.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not check.facts:
        check.facts = machine.facts(check.tprof, check.folders)
    return send.pack_and_judge(check, archive_name(check.facts))


def archive_name(facts):
    """Returns gpu-check-<GPU>-<driver>-<CUDA>."""
    gpu = "simulated" if facts["simulated"] else facts["gpu"] or "no-gpu"
    parts = [gpu, facts["driver"] or "no-driver", facts["cuda_of_driver"] or "no-cuda"]
    return "gpu-check-" + "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_") for part in parts)


if __name__ == "__main__":
    sys.exit(main())

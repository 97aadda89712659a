"""Runs the check on a machine with a GPU, packs what it gathered, and judges it.

Started by gpu-check.sh. Steps are independent: one that fails or hangs leaves the others. What a
step leaves lies in a folder of its name; `judge.py` reads nothing else.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import judge
import machine
import scrub
from evidence import Folder
from step import Steps

PROGRAMS = os.path.join(HERE, "programs")
ENDS = ("return", "exit", "_exit", "abort", "term", "kill", "fork")
# Tables that a judge reads; the rest has names of files and users.
TABLES = ("spans", "kernels", "copies", "synchronizations", "device_allocations", "marks", "losses", "collectives", "devices")
# Fetching a build of PyTorch and checking it take about as long.
NEXT_TORCH_S = 360
TORCH_MODES = ("plain", "graph", "streams", "compile")


class Size:
    """How much runs: whole, or `quick` to see that the parts work."""

    def __init__(self, quick):
        self.rest_ms = 1500 if quick else 2500
        self.rounds = 2 if quick else 5
        self.repeats = 2 if quick else 20
        self.rate = ["launches=200", "nodes=20", "replays=2"] if quick else ["launches=100000", "nodes=2000", "replays=50"]


class Check:
    """A run of the check."""

    def __init__(self, args):
        self.args, self.out = args, os.path.abspath(args.out)
        self.tprof = os.path.abspath(args.tprof)
        self.size = Size(args.quick)
        self.folders = [os.path.abspath(folder) for folder in args.cuda]
        os.makedirs(self.out)
        self.steps = Steps(self.out, args.limit * 60)

    def path(self, *names):
        path = os.path.join(self.out, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def keep(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)

    def traced(self, name, folder, command, env=None, limit_s=60, raw=False, less_s=0):
        """Runs under tprof, and keeps of the run what a judge reads."""
        run = self.path(folder, "run")
        env = dict(env or {})
        if raw:
            env["TPROF_CUPTI_RECORD"] = self.path(folder, "raw.cupti")
        whole = [self.tprof, "run", "--quiet", "--force", "--cuda-graphs", "node", "-o", run, "--", *command]
        ended = self.steps.run(name, whole, limit_s, env, less_s)
        if os.path.isdir(run):
            export(self.tprof, run, os.path.dirname(run))
            shutil.rmtree(run)
        return ended

    # --- programs of known truth

    def environments(self):
        """{program: environment} of those that can find their libraries; the others are skipped."""
        found = {}
        for program in sorted(name for name in os.listdir(HERE) if name.startswith("truth-")):
            major = int(re.search(r"\d+", program).group())
            places = {os.path.dirname(path) for name in (f"libcudart.so.{major}", f"libcupti.so.{major}")
                      if (path := machine.find(name, self.folders))}
            cudart = machine.find(f"libcudart.so.{major}", self.folders)
            if not cudart and "static" not in program:
                self.steps.skip(program, f"there is no libcudart.so.{major}")
                continue
            # The folder of the driver too, where it was named.
            driver = machine.find("libcuda.so.1", self.folders)
            places |= {os.path.dirname(driver)} if driver and self.folders else set()
            rest = os.environ.get("LD_LIBRARY_PATH", "")
            # Of several CUDA versions in the folders only this one.
            kept = [place for place in sorted(places) if not other_major(place, major)] or sorted(places)
            found[program] = {"LD_LIBRARY_PATH": ":".join([*kept, *filter(None, [rest])])}
        return found

    def truth(self, program, env):
        command = [os.path.join(HERE, program), "work"]
        native, traced = self.path(program, "native.json"), self.path(program, "traced.json")
        # What does not run without tprof is no finding of it.
        if self.steps.run(f"{program}, native", [*command, native], 60, env):
            self.traced(f"{program}, traced", program, [*command, traced], env, raw=True)

    def end(self, how, program, env):
        command = [os.path.join(HERE, program), f"end={how}"]
        self.steps.run(f"{how}, native", [*command, "rest=0", self.path(f"end-{how}", "native.json")], 30, env)
        rest_ms = self.size.rest_ms
        self.traced(f"{how}, traced", f"end-{how}", [*command, f"rest={rest_ms}", self.path(f"end-{how}", "traced.json")],
                    env, 40, less_s=rest_ms / 1000)

    def repeats(self, program, env):
        """Against what happens seldom: each by a limit, with stacks where it hangs."""
        for number in range(self.size.repeats):
            how = ENDS[number % len(ENDS)]
            command = [os.path.join(HERE, program), f"end={how}", "rest=0", self.path("repeats", "truth.json")]
            run = self.path("repeats", "run")
            self.steps.run(f"repeat {number} {how}", [self.tprof, "run", "--quiet", "--force", "-o", run, "--", *command],
                           30, env)
        shutil.rmtree(self.path("repeats", "run"), ignore_errors=True)

    def cost(self, program, env):
        command = [os.path.join(HERE, program), "rate", *self.size.rate]
        for number in range(self.size.rounds):
            self.steps.run(f"cost {number}, native", [*command, self.path("cost", f"native-{number}.json")], 60, env)
            self.traced(f"cost {number}, traced", "cost", [*command, self.path("cost", f"traced-{number}.json")], env, 90)
        # Rows of the last round would be most of the archive: only their sums are used.
        keep_overhead(self.path("cost", "tables.json.gz"))

    # --- PyTorch

    def pythons(self, cuda):
        """(name, Python with torch): the one that was named, or those that are made here, each when
        the one before has been checked."""
        if self.args.python:
            yield "torch-own", self.args.python
        if not self.args.bootstrap:
            return
        builds = machine.builds(cuda)
        wanted = {"": builds[:1], "all": builds}.get(self.args.torch, self.args.torch.split(","))
        for number, build in enumerate(wanted):
            if number and self.steps.left_s() < NEXT_TORCH_S:
                self.steps.skip(f"torch {build}", "too little is left of the time for the whole check (--limit)")
                continue
            python = machine.bootstrap(self.steps, os.path.join(self.args.work, f"venv-{build}"), build)
            if python:
                yield f"torch-{build}", python

    def program(self, name, python, *words):
        return [python, os.path.join(PROGRAMS, name), *words]

    def torch(self, name, python):
        at = lambda *parts: self.path(name, *parts)
        self.traced(f"{name} takeover", f"{name}/takeover",
                    self.program("takeover.py", python, at("takeover", "takeover.json"), str(self.args.after)), limit_s=180)
        for kind, settings in (("default", ""), ("segments", "expandable_segments:True"),
                               ("pools", "backend:cudaMallocAsync")):
            self.traced(f"{name} memory {kind}", f"{name}/memory-{kind}",
                        self.program("memory.py", python, at(f"memory-{kind}", "memory.json")),
                        {"PYTORCH_CUDA_ALLOC_CONF": settings} if settings else None, 90)
        self.traced(f"{name} loader", f"{name}/loader", self.program("loader.py", python, at("loader", "loader.json")), limit_s=90)
        for mode in TORCH_MODES:
            words = ["--mode", mode, "--out"]
            self.steps.run(f"{name} {mode}, native", self.program("train.py", python, *words, at(f"train-{mode}", "native.json")), 120)
            self.traced(f"{name} {mode}, traced", f"{name}/train-{mode}",
                        self.program("train.py", python, *words, at(f"train-{mode}", "traced.json")), limit_s=120)
        self.traced(f"{name} rows", f"{name}/rows",
                    self.program("train.py", python, "--steps", "2", "--out", at("rows", "traced.json")), limit_s=90, raw=True)
        devices = machine.query("name") or []
        for kind, settings in (("blocking", "0"), ("non-blocking", "1")) if len(devices) > 1 else ():
            self.traced(f"{name} collectives {kind}", f"{name}/collectives-{kind}",
                        self.program("collectives.py", python, at(f"collectives-{kind}", "collectives.json")),
                        {"TORCH_NCCL_USE_COMM_NONBLOCKING": settings}, 120)

    # --- the whole

    def run(self):
        cuda = machine.cuda_of_driver()
        if self.args.bootstrap:
            major = cuda[0] if cuda else 12
            for one in sorted({12, major}):
                folder = machine.bootstrap_cuda(self.steps, os.path.join(self.args.work, f"cuda-{one}"), one, cuda)
                self.folders += [folder] if folder else []
        facts = machine.facts(self.tprof, self.folders)
        self.keep("facts.json", facts)
        for name, command in (("nvidia-smi.txt", ["nvidia-smi", "-q"]), ("topology.txt", ["nvidia-smi", "topo", "-m"])):
            text = machine.output(*command)
            if text:
                with open(self.path(name), "w", encoding="utf-8") as file:
                    file.write(text)
        environments = self.environments()
        first = next(iter(environments.values()), {})
        for name, words in (("doctor.json", ["doctor", "--json"]), ("run-kernel.json", ["doctor", "--run-kernel", "--json"])):
            with open(self.path(name), "wb") as file:
                try:
                    subprocess.run([self.tprof, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **first}, timeout=60, check=False)
                except subprocess.TimeoutExpired:
                    self.steps.skip(name, "it did not end within 60 s")
        for program, env in environments.items():
            self.truth(program, env)
        usable = [name for name in environments if Folder(self.out).folder(name).has("traced.json")]
        if usable:
            # The newest that runs, with a runtime that the hooks find too.
            program = max(usable, key=lambda name: (name.count("-") == 1, name))
            for how in ENDS:
                self.end(how, program, environments[program])
            self.repeats(program, environments[program])
            self.cost(program, environments[program])
        else:
            self.steps.skip("ends", "no program of known truth runs here")
        ran = 0
        for name, python in self.pythons(cuda):
            if machine.output(python, "-c", "import torch; torch.zeros(1).cuda()", limit_s=120) is None:
                self.steps.skip("torch", f"the torch of {name} finds no device")
                continue
            ran += 1
            self.keep(f"{name}/packages.json", machine.packages(python))
            self.torch(name, python)
        if not ran and not any(one["name"] == "torch" for one in self.steps.list):
            why = "it could not be made" if self.args.bootstrap else "none was named, and none was made (--bootstrap)"
            self.steps.skip("torch", f"no Python with torch: {why}")
        return facts


def other_major(place, major):
    """Whether a folder has the runtime of another CUDA only."""
    has = lambda number: os.path.exists(os.path.join(place, f"libcudart.so.{number}"))
    return has(25 - major) and not has(major)


def export(tprof, run, folder):
    """run.json and the tables, without the command line and other names that no judge reads."""
    info = Folder(run).json("run.json")
    if info is None:
        return
    kept = {key: info.get(key) for key in ("version", "tprof", "start_ns", "end_ns", "finished", "completeness", "overhead",
                                           "asked_to_end")}
    with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
    tables = os.path.join(run, "all.json.gz")
    try:
        subprocess.run([tprof, "export", run, "--to", "json", "-o", tables], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=True)
    except subprocess.SubprocessError:
        return
    with gzip.open(tables, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    ranks = [{"tables": {name: rank["tables"][name] for name in TABLES if name in rank["tables"]}} for rank in whole["ranks"]]
    write_tables(os.path.join(folder, "tables.json.gz"), ranks)


def write_tables(path, ranks):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump({"ranks": ranks}, file, separators=(",", ":"))


def keep_overhead(path):
    """Of the spans only CUPTI's own overhead."""
    whole = Folder(os.path.dirname(path)).json(os.path.basename(path))
    if whole is None:
        return
    ranks = []
    for rank in whole["ranks"]:
        spans = rank["tables"]["spans"]
        at = spans["columns"].index("kind")
        ranks.append({"tables": {"spans": {**spans, "rows": [row for row in spans["rows"] if row[at] == "overhead"]}}})
    write_tables(path, ranks)


def archive_name(facts):
    """gpu-check-<GPU>-<driver>-<CUDA>"""
    gpu = "simulated" if facts["simulated"] else facts["gpu"] or "no-gpu"
    parts = [gpu, facts["driver"] or "no-driver", facts["cuda_of_driver"] or "no-cuda"]
    return "gpu-check-" + "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_") for part in parts)


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-check.sh", description=(
        "Checks tprof on this machine's NVIDIA GPU, in at most 20 minutes, and packs what it found."))
    parser.add_argument("--bootstrap", action="store_true", help="fetch PyTorch and CUDA's libraries into --work")
    parser.add_argument("--torch", default="", metavar="BUILDS", help=(
        "with --bootstrap: PyTorch builds as cu126,cu130, or all that this driver runs (default: the newest of them)"))
    parser.add_argument("--python", help="a Python that has torch, in place of --bootstrap")
    parser.add_argument("--cuda", action="append", default=[], metavar="DIR", help="where CUDA's libraries are; repeatable")
    parser.add_argument("--out", default="gpu-check", help="folder for what is gathered; must not exist (default: gpu-check)")
    parser.add_argument("--work", default="gpu-check-work", help="folder for what is fetched (default: gpu-check-work)")
    parser.add_argument("--limit", type=float, default=18, help="minutes for all steps together (default: 18)")
    parser.add_argument("--after", type=float, default=30, help="seconds to run behind torch.profiler (default: 30)")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, to see that the parts work")
    parser.add_argument("--tprof", default=os.path.join(HERE, "..", "..", "tprof"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.work = os.path.abspath(args.work)
    if os.path.exists(args.out):
        parser.error(f"{args.out} is there already; --out names another")
    if not os.access(args.tprof, os.X_OK):
        parser.error(f"there is no tprof at {args.tprof}; --tprof names one")
    return args


def main():
    args = arguments()
    check = Check(args)
    facts = check.run()
    archive = f"{os.path.dirname(check.out)}/{archive_name(facts)}.tar.gz"
    scrubber = scrub.Scrubber(check.out, [args.work, os.path.dirname(check.tprof), HERE])
    clean = scrub.pack(scrubber, check.out, archive)
    findings = judge.judge(clean)
    shutil.rmtree(clean)
    status = judge.report(findings)
    print(f"\n{archive}\nis what to send: names of hosts, users and folders are taken out; look into it before.")
    return status


if __name__ == "__main__":
    sys.exit(main())

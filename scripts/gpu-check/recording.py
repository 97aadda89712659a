"""Measures the cost of recording for a step whose duration is the host's. It runs rounds of a job without tprof, on the
floor (which measures the cost of CUPTI alone, kind by kind: floor.cpp), and under tprof as a whole and by part, in an
order that changes.

The floor records what tprof's agent asked CUPTI for in an earlier run, according to that run's journal. The job is the
transformer of eager_gpt.py if there is a Python with torch, and else as many copies within the device.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time

import known
import layouts
import machine
import raw
from checks.recording import ALL, BASE, FLOOR, NATIVE, NOTHING, PARTS, file_of

HERE = os.path.dirname(os.path.abspath(__file__))
JOB, LIBRARY = os.path.join(HERE, "programs", "stretches.py"), os.path.join(HERE, "floor.so")
ROUNDS, STEPS, WARM, WARM_EACH = 10, 25, 15, 3
LIMIT_S = 180
# NVIDIA's numbers of kernels and copies, which every profiler needs. The kinds with a row of their own and the kinds of
# calls follow.
LEAST = (10, 1, 2)
KINDS = {49: "memory", 17: "overhead", 38: "synchronisations", 5: "calls of the runtime", 4: "calls of the driver"}
CALLS = {5: "runtime", 4: "driver"}


def built(steps, work):
    """Returns the path of the floor: the package's, or one that is built here."""
    if os.path.exists(LIBRARY):
        return LIBRARY
    os.makedirs(work, exist_ok=True)
    path = os.path.join(work, "floor.so")
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    if compiler and subprocess.run([compiler, "-O1", "-std=c++17", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti", "-o", path,
                                    os.path.join(HERE, "floor.cpp"), "-lpthread", "-ldl"], check=False).returncode == 0:
        return path
    steps.skip("recording, floor", "the package has no floor.so, and no C++ compiler builds it here", "apt-get install g++")
    return None


def asked_for(journal):
    """Returns (kinds, calls) that the agent makes CUPTI record, as {kind of calls: the calls that are left out of it,
    or are all that is recorded of it}."""
    kinds, calls = [], {}
    for entry in journal:
        if entry.what == "enabled" and entry.two == 0:
            kinds = [kind for kind in kinds if kind != entry.one] + ([] if entry.three else [entry.one])
        elif entry.what == "chosen" and entry.three == 0:
            calls.setdefault(entry.one, set()).add(entry.two)
    # A call is left out of a kind that is enabled; if the kind isn't enabled, the call alone is recorded.
    return kinds, {kind: {"alone": kind not in kinds, "list": sorted(of)} for kind, of in calls.items() if kind in CALLS}


def stretches(kinds, calls):
    """Returns {name: what CUPTI records} for the floor."""
    least = [kind for kind in LEAST if kind in kinds]

    def chosen(more=(), of_calls=(), zeroed=False):
        named = {CALLS[kind]: calls[kind] for kind in of_calls if kind in calls}
        return {"kinds": least + [kind for kind in more if kind in kinds], "calls": named, "zeroed": zeroed}

    rest = [kind for kind in kinds if kind not in least]
    found = {NOTHING: {"kinds": [], "calls": {}, "zeroed": False}, BASE: chosen()}
    for kind, name in KINDS.items():
        if kind in kinds or kind in calls:
            found[f"{FLOOR}: and {name}"] = chosen([kind], [kind])
    found[f"{FLOOR}: and the other kinds"] = chosen([kind for kind in rest if kind not in KINDS])
    found[ALL] = chosen(rest, CALLS)
    found[f"{ALL}, zeroed by another thread"] = chosen(rest, CALLS, zeroed=True)
    found[f"{ALL}, and every call"] = {**chosen([*rest, *CALLS]), "kinds": least + sorted({*rest, *CALLS})}
    return found


def of_steps(process, stretch):
    """Returns {kind: (records, bytes)} of CUPTI's records that began while a stretch ran."""
    clock, sizes, found = raw.Clock(process), layouts.sizes_of(process.version), {}
    for buffer in process.buffers:
        for kind, record in buffer.records:
            time_of = next((getattr(record, name) for name in ("start", "timestamp") if hasattr(record, name)), 0)
            at = clock.monotonic(time_of) if time_of else None
            if at and stretch["began_ns"] <= at[0] <= stretch["ended_ns"]:
                count, size = found.get(layouts.STRUCTS[kind].__name__, (0, 0))
                found[layouts.STRUCTS[kind].__name__] = count + 1, size + sizes[kind]
    return found


class Recording:
    """Runs the rounds. `check` runs the commands and has the paths of their results."""

    def __init__(self, check, args):
        self.check, self.args, self.steps = check, args, check.steps
        self.at = lambda *names: check.path("recording", *names)
        self.size = (2, 2, 2, 1) if args.quick else (args.rounds, STEPS, WARM, WARM_EACH)
        self.random = random.Random(0)

    def run(self, python):
        """Runs everything, with a Python that has torch if it isn't None."""
        env, plan = {}, {"work": "eager", "device": "cuda"}
        if python is None:
            major = next((one for one in (13, 12) if machine.find(f"libcudart.so.{one}", self.check.folders)), None)
            if major is None:
                return self.steps.skip("recording", "there is neither a Python with torch nor a CUDA runtime", "--bootstrap, or --cuda DIR")
            python, env = sys.executable, known.environment(major, self.check.folders)
            env["FLOOR_CUPTI"] = machine.find(f"libcupti.so.{major}", self.check.folders) or ""
            plan = {"work": "copies", "device": "cuda", "cudart": machine.find(f"libcudart.so.{major}", self.check.folders)}
        rounds, steps, warm, warm_each = self.size
        self.python, self.env = python, env
        self.plan = {**plan, "steps": steps, "warm": warm, "warm_each": warm_each, "stretches": [{"name": NATIVE}]}
        if not self.once(NATIVE, "warm-up"):
            return self.steps.skip("recording", "the job does not run without tprof", self.steps.last_words())
        records, chosen = self.records()
        self.check.keep("recording/records.json", {"work": plan["work"], "steps": steps, "parts": records, "rounds": rounds})
        floor = built(self.steps, self.args.work) if chosen else None
        longest = 0
        for number in range(rounds):
            if number and self.steps.left_s() < longest * 1.2:
                return self.steps.skip("recording, the other rounds", f"{number} of {rounds} rounds ran: the time for the whole check is used up",
                                       "--only recording, a longer --limit")
            began = time.monotonic()
            names = [NATIVE, *PARTS, *([FLOOR] if floor else [])]
            for name in self.random.sample(names, len(names)):
                self.once(name, number, floor=(floor, chosen) if name == FLOOR else None)
            longest = max(longest, time.monotonic() - began)
        return None

    def once(self, name, number, floor=None, kept=None):
        """Runs the job once. Returns whether it ended well."""
        plan, env = dict(self.plan), dict(self.env)
        if floor:
            path, chosen = floor
            plan |= {"floor": path, "stretches": [{"name": one, "chosen": chosen[one]} for one in self.random.sample(list(chosen), len(chosen))]}
            env["CUDA_INJECTION64_PATH"] = path
        self.check.keep("recording/plan.json", plan)
        out = self.at(file_of(number, name))
        command, run = [self.python, JOB, self.at("plan.json"), out], self.at("run")
        if name in PARTS:
            command = [self.check.tprof, "run", "--quiet", "--force", "-o", run, *PARTS[name], "--", *command]
            env |= {"TPROF_CUPTI_RECORD": kept} if kept else {}
        ended = self.steps.run(f"recording {number}, {name}", command, LIMIT_S, env)
        shutil.rmtree(run, ignore_errors=True)
        return ended

    def records(self):
        """Returns {part: what CUPTI recorded in its steps}, from one untimed run of each, and what the floor must
        record."""
        found, chosen = {}, None
        for name in PARTS:
            kept = self.at("raw.cupti")
            if not self.once(name, "records", kept=kept):
                continue
            with open(self.at(file_of("records", name)), encoding="utf-8") as file:
                stretch = json.load(file)[0]
            processes = raw.read(kept).values() if os.path.exists(kept) else []
            process = max(processes, key=lambda one: len(one.buffers), default=None)
            found[name] = of_steps(process, stretch) if process else {}
            if process and not PARTS[name]:
                chosen = stretches(*asked_for(process.journal))
            if process:
                os.remove(kept)
        return found, chosen

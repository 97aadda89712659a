"""Runs the programs with a known truth: each part, each end, and the cost of recording."""

import os
import re
import shutil

import machine
import tables
from evidence import Folder

HERE = os.path.dirname(os.path.abspath(__file__))
ENDS = ("return", "exit", "_exit", "abort", "term", "kill", "fork")


class Size:
    """The amount of work: the whole, or with `quick` just enough to see that the parts work."""

    def __init__(self, quick):
        self.rest_ms = 1500 if quick else 2500
        self.rounds = 2 if quick else 5
        self.repeats = 2 if quick else 20
        self.stall_ms = 300 if quick else 2000
        self.rate = ["launches=200", "nodes=20", "replays=2"] if quick else ["launches=100000", "nodes=2000", "replays=50"]


def other_major(place, major):
    """Whether a folder has only the runtime of another CUDA version."""
    has = lambda number: os.path.exists(os.path.join(place, f"libcudart.so.{number}"))
    return has(25 - major) and not has(major)


def environment(major, folders):
    """Returns the environment in which a program finds the libraries of one CUDA."""
    places = {os.path.dirname(path) for name in (f"libcudart.so.{major}", f"libcupti.so.{major}")
              if (path := machine.find(name, folders))}
    # The search includes the driver's folder if one was named.
    driver = machine.find("libcuda.so.1", folders)
    places |= {os.path.dirname(driver)} if driver and folders else set()
    rest = os.environ.get("LD_LIBRARY_PATH", "")
    # If the folders hold several CUDA versions, keep only this one.
    kept = [place for place in sorted(places) if not other_major(place, major)] or sorted(places)
    return {"LD_LIBRARY_PATH": ":".join([*kept, *filter(None, [rest])])}


def environments(steps, folders):
    """Returns {program: environment} of the programs whose libraries are found; the others are noted as skipped."""
    found = {}
    for program in sorted(name for name in os.listdir(HERE) if name.startswith("truth-")):
        major = int(re.search(r"\d+", program).group())
        if not machine.find(f"libcudart.so.{major}", folders) and "static" not in program:
            steps.skip(program, f"there is no libcudart.so.{major}", "--bootstrap, or --cuda DIR with the folder that has it")
            continue
        found[program] = environment(major, folders)
    return found


class Known:
    """Runs the programs on this machine. `check` runs the commands and has the paths of their results."""

    def __init__(self, check, quick):
        self.check, self.steps, self.path, self.size = check, check.steps, check.path, Size(quick)

    def run(self, found):
        """Runs all programs in `found`, which can find their libraries."""
        for program, env in found.items():
            self.truth(program, env)
        usable = [name for name in found if Folder(self.check.out).folder(name).has("traced.json")]
        if not usable:
            self.steps.skip("ends", "no program of known truth runs here")
            return
        # Choose the newest program that runs, and prefer one with a shared runtime, which the hooks find, too.
        program = max(usable, key=lambda name: (name.count("-") == 1, name))
        for how in ENDS:
            self.end(how, program, found[program])
        self.repeats(program, found[program])
        self.cost(program, found[program])
        self.stalls(program, found[program])

    def truth(self, program, env):
        command = [os.path.join(HERE, program), "work"]
        native, traced = self.path(program, "native.json"), self.path(program, "traced.json")
        # If the program does not run without tprof, running it under tprof would prove nothing.
        if self.steps.run(f"{program}, native", [*command, native], 60, env):
            self.check.traced(f"{program}, traced", program, [*command, traced], env, raw=True)

    def end(self, how, program, env):
        command = [os.path.join(HERE, program), f"end={how}"]
        self.steps.run(f"{how}, native", [*command, "rest=0", self.path(f"end-{how}", "native.json")], 30, env)
        rest_ms = self.size.rest_ms
        self.check.traced(f"{how}, traced", f"end-{how}", [*command, f"rest={rest_ms}", self.path(f"end-{how}", "traced.json")],
                          env, 40, less_s=rest_ms / 1000)

    def repeats(self, program, env):
        """Repeats runs to catch rare failures: each has a time limit, and its stacks are kept if it hangs."""
        for number in range(self.size.repeats):
            how = ENDS[number % len(ENDS)]
            command = [os.path.join(HERE, program), f"end={how}", "rest=0", self.path("repeats", "truth.json")]
            run = self.path("repeats", "run")
            self.steps.run(f"repeat {number} {how}", [self.check.tprof, "run", "--quiet", "--force", "-o", run, "--", *command],
                           30, env)
        shutil.rmtree(self.path("repeats", "run"), ignore_errors=True)

    def cost(self, program, env):
        command = [os.path.join(HERE, program), "rate", *self.size.rate]
        for number in range(self.size.rounds):
            self.steps.run(f"cost {number}, native", [*command, self.path("cost", f"native-{number}.json")], 60, env)
            self.check.traced(f"cost {number}, traced", "cost", [*command, self.path("cost", f"traced-{number}.json")], env, 90)
        # Rows of the last round would fill most of the archive, and only their sums are used.
        tables.keep_overhead(self.path("cost", "tables.json.gz"))

    def stalls(self, program, env):
        """Samples the instructions of kernels of which it is known why their warps wait. A run without tprof and one
        without samples show what the samples cost."""
        command = [os.path.join(HERE, program), "stalls", f"stall_ms={self.size.stall_ms}"]
        for name, options in (("native", None), ("plain", ()), ("sampled", ("--gpu-stalls",))):
            truth = self.path("stalls" if name == "sampled" else f"stalls-{name}", f"{name}.json")
            if options is None:
                self.steps.run("stalls, native", [*command, truth], 60, env)
            else:
                self.check.traced(f"stalls, {name}", os.path.basename(os.path.dirname(truth)), [*command, truth], env, 60,
                                  options=options)

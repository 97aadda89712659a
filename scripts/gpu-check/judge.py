"""Judges what `gpu-check.sh` gathered in a directory and writes DIR/gpu-check.json.

Exits with 1 if a check failed. A check that could not be made is `null` and says why.
"""

import json
import os
import sys

TOLERANCE = 0.01


class Check:
    def __init__(self, folder):
        self.folder = folder
        self.checks = []

    def load(self, name):
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def say(self, name, passed, **facts):
        self.checks.append({"check": name, "passed": passed, **facts})


def kernels_of_report(report):
    """Count and time by name of `tprof report kernels --json`, kernels alone."""
    if not report:
        return None
    found = {}
    for row in report["tables"]["kernels"]:
        if row["class"] != "memory":
            found[row["name"]] = {"count": row["count"], "total_ns": row["total_ns"]}
    return found


def total(kernels, key):
    return sum(kernel[key] for kernel in kernels.values())


def close(one, other):
    return other > 0 and abs(one - other) <= TOLERANCE * other


def compare(check, ours, theirs):
    if ours is None or theirs is None:
        check.say("kernels agree with torch.profiler", None, why="one of the two runs did not end well")
        return
    count, expected = total(ours, "count"), total(theirs, "count")
    check.say("kernel count", close(count, expected), tprof=count, torch_profiler=expected)
    missing = sorted(set(theirs) - set(ours))[:20]
    extra = sorted(set(ours) - set(theirs))[:20]
    check.say("kernel names", not missing and not extra, missing=missing, extra=extra)
    time, expected = total(ours, "total_ns"), total(theirs, "total_ns")
    check.say("GPU time", close(time, expected), tprof_ns=time, torch_profiler_ns=expected)


def complete(check, name):
    run = check.load(f"{name}/run.json")
    if run is None:
        check.say(f"nothing lost: {name}", None, why="there is no run")
        return
    completeness = run["completeness"]
    # Stacks and samples of the host have nothing to do with the device.
    words = ("GPU", "CUDA", "launches", "NVTX")
    of_device = [loss for loss in completeness["losses"] if any(word in loss["what"] for word in words)]
    check.say(
        f"nothing lost: {name}",
        not of_device and not completeness["blind"],
        losses=completeness["losses"],
        blind=completeness["blind"],
    )


def one_kernel(check):
    """`tprof doctor --run-kernel`: what a program in Rust ran, against its recording."""
    doctor = check.load("run-kernel.json")
    if doctor is None:
        check.say("one kernel on each device", None, why="tprof doctor --run-kernel was not run")
        return
    for found in doctor["run_kernel"]:
        check.say("one kernel on each device", found["verdict"] == "ok", found=found["found"])


def ratio(check, name):
    native, traced = check.load(f"native-{name}.json"), check.load(f"traced-{name}.json")
    if not native or not traced:
        check.say(f"step time: {name}", None, why="one of the two runs did not end well")
        return
    value = traced["median_step_s"] / native["median_step_s"]
    # No limit is set: the figure is what this is for.
    check.say(f"step time: {name}", True, ratio=round(value, 4), native_s=native["median_step_s"])


def main():
    check = Check(sys.argv[1])
    modes = sys.argv[2].split(",")
    one_kernel(check)
    native = check.load("native-plain.json")
    ours = kernels_of_report(check.load("kernels-plain.json"))
    theirs = check.load("profiler.json")
    compare(check, ours, theirs)
    for mode in modes:
        complete(check, f"run-{mode}")
        ratio(check, mode)
        kernels = kernels_of_report(check.load(f"kernels-{mode}.json"))
        check.say(f"kernels are there: {mode}", bool(kernels), kernels=total(kernels or {}, "count"))
    killed = kernels_of_report(check.load("kernels-killed.json"))
    if ours and killed:
        count, expected = total(killed, "count"), total(ours, "count")
        check.say("a killed job keeps its kernels", close(count, expected), tprof=count, whole=expected)
    else:
        check.say("a killed job keeps its kernels", None, why="one of the two runs did not end well")
    within = check.load("profiler-within.json")
    if within is None or theirs is None:
        check.say("torch.profiler within tprof sees its kernels", None, why="a run did not end well")
    else:
        count, expected = total(within, "count"), total(theirs, "count")
        check.say("torch.profiler within tprof sees its kernels", close(count, expected), within=count, alone=expected)
    raw = os.path.join(check.folder, "raw.cupti")
    size = os.path.getsize(raw) if os.path.exists(raw) else 0
    check.say("raw CUPTI buffers", size > 0, bytes=size)
    result = {"format": 1, "device": native and native["device"], "torch": native and native["torch"]}
    result |= {"cuda": native and native["cuda"], "doctor": check.load("doctor.json"), "checks": check.checks}
    with open(os.path.join(check.folder, "gpu-check.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    for one in check.checks:
        word = {True: "ok", False: "FAILED", None: "not checked"}[one["passed"]]
        facts = {key: value for key, value in one.items() if key not in ("check", "passed")}
        print(f"{word:12}{one['check']}  {json.dumps(facts)[:160]}")
    sys.exit(any(one["passed"] is False for one in check.checks))


if __name__ == "__main__":
    main()

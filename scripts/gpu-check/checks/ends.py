"""Judges jobs that end in different ways (exit, signal, crash) while a kernel is running."""

import checks.truth

# Allowed extra time compared with the same end without tprof: it waits at most two seconds for the last records, and
# the collector writes files.
MORE_TIME_S = 10.0


def step(steps, name):
    return next((one for one in steps or [] if one["name"] == name), None)


def judge_end(folder, how, steps, findings):
    native, traced = step(steps, f"{how}, native"), step(steps, f"{how}, traced")
    truth, run = folder.json("native.json"), folder.json("run.json")
    why = checks.truth.failure(truth)
    if why or native is None:
        return findings.not_checked(f"end by {how}", why or "it was not run")
    if traced is None or traced["hung"]:
        return findings.add(f"end by {how}: as without tprof", False, why="it hung, or was not run", step=traced)
    same = traced["status"] == native["status"]
    longer = traced["seconds"] - native["seconds"]
    findings.add(f"end by {how}: as without tprof", same and not native["hung"], status=native["status"],
                 traced=traced["status"])
    findings.add(f"end by {how}: in time", longer <= MORE_TIME_S, longer_s=round(longer, 2))
    if run is None:
        return findings.add(f"end by {how}: kernels are kept", False, why="there is no run")
    part = next(part for part in truth["parts"] if part["part"] == "end")
    found = sum(row.name.startswith(part["kernel"]) for row in folder.table("kernels"))
    lost = sum(loss["count"] for loss in run["completeness"]["losses"])
    # Kernels that ended well before the job did must all be there; the one in flight must have a row or be counted as
    # lost.
    findings.add(f"end by {how}: kernels are kept", part["count"] <= found <= part["count"] + part["in_flight"],
                 found=found, ended=part["count"])
    check = f"end by {how}: the kernel in flight is recorded or counted"
    if truth["compiler"] != "nvcc":
        findings.not_checked(check, "this program launches by the driver: such launches are not counted (docs/limits.md)")
    else:
        findings.add(check, found + lost >= part["count"] + part["in_flight"], found=found, lost=lost)
    return None


def judge(bundle, findings):
    steps = bundle.json("steps.json")
    for name in bundle.folders("end-"):
        judge_end(bundle.folder(name), name.removeprefix("end-"), steps, findings)
    repeats = [one for one in steps or [] if one["name"].startswith("repeat")]
    hung = [f"{one['name']}: {one['stacks']}" for one in repeats if one["hung"]]
    findings.compare("repeats end", hung, len(repeats))

"""Reports facts of the machine, without which no other finding can be interpreted."""

WANTED = ("gpu", "driver", "tprof", "kernel")


def judge(bundle, findings):
    facts = bundle.json("facts.json")
    if facts is None:
        return findings.add("facts of the machine", False, why="facts.json is missing")
    missing = [key for key in WANTED if not facts.get(key)]
    if facts.get("gpu") is None and facts.get("simulated"):
        findings.not_checked("facts of the machine", "the devices are simulated")
    else:
        findings.add("facts of the machine", not missing, missing=missing, gpu=facts.get("gpu"))
    doctor = bundle.json("run-kernel.json")
    if doctor is None:
        return findings.not_checked("one kernel on each device", "tprof doctor --run-kernel was not run")
    for one in doctor["run_kernel"]:
        if one["found"].startswith("skipped"):
            findings.not_checked("one kernel on each device", one["found"])
        else:
            findings.add("one kernel on each device", one["verdict"] == "ok", found=one["found"])
    return None

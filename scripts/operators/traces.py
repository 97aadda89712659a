"""Reads traces of torch.profiler's format."""

import gzip
import json


def events(path):
    """Returns the operators and ranges within the range "job" of the process that has it: torch.profiler's trace lacks
    those of workers."""
    with (gzip.open if str(path).endswith("gz") else open)(path) as file:
        found = json.load(file)["traceEvents"]
    found = [event for event in found if event.get("cat") in ("cpu_op", "user_annotation")]
    job = next(event for event in found if event["name"] == "job")
    begin, end = float(job["ts"]), float(job["ts"]) + float(job["dur"])
    return [event for event in found if event["pid"] == job["pid"] and begin <= float(event["ts"]) <= end]

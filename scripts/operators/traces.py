"""Reads traces of torch.profiler's format."""

import gzip
import json


def events(path):
    """Operators and ranges of the process with the range "job", within it: a worker's are not in torch.profiler's trace."""
    with (gzip.open if str(path).endswith("gz") else open)(path) as file:
        found = json.load(file)["traceEvents"]
    found = [event for event in found if event.get("cat") in ("cpu_op", "user_annotation")]
    job = next(event for event in found if event["name"] == "job")
    begin, end = float(job["ts"]), float(job["ts"]) + float(job["dur"])
    return [event for event in found if event["pid"] == job["pid"] and begin <= float(event["ts"]) <= end]

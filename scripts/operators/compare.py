"""Compares the operators and ranges of two traces: names with counts, and sizes with counts.

usage: compare.py TPROF_TRACE TORCH_TRACE    exit status 1 where names or sizes differ
"""

import gzip
import json
import sys
from collections import Counter


def read(path):
    """Of the process with the range "job", what lies in it: a worker's are not in torch.profiler's trace."""
    with (gzip.open if path.endswith("gz") else open)(path) as file:
        events = json.load(file)["traceEvents"]
    events = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
    job = next(event for event in events if event["name"] == "job")
    begin, end = float(job["ts"]), float(job["ts"]) + float(job["dur"])
    events = [event for event in events if event["pid"] == job["pid"] and begin <= float(event["ts"]) <= end]
    names = Counter((event["cat"], event["name"]) for event in events)
    dims = Counter((event["name"], json.dumps(event.get("args", {}).get("Input Dims", []))) for event in events)
    return names, dims, sum(float(event["dur"]) for event in events if event["cat"] == "cpu_op")


def main():
    differ = 0
    one, other = read(sys.argv[1]), read(sys.argv[2])
    for what, ours, theirs in zip(("names", "sizes"), one, other):
        wrong = {key: (ours[key], theirs[key]) for key in ours | theirs if ours[key] != theirs[key]}
        differ += len(wrong)
        print(f"{what}: {sum(ours.values())} by tprof, {sum(theirs.values())} by torch.profiler, {len(wrong)} differ")
        for key, counts in sorted(wrong.items(), key=str)[:10]:
            print(f"  {key}: {counts[0]} by tprof, {counts[1]} by torch.profiler")
    print(f"durations: {one[2] / 1e3:.1f} ms by tprof, {other[2] / 1e3:.1f} ms by torch.profiler ({one[2] / other[2]:.2f})")
    sys.exit(1 if differ else 0)


main()

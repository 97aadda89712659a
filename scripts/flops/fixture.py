"""Makes a small trace of a job, with the counts of torch.utils.flop_counter, for tests/it/flops.rs.

usage: fixture.py COUNTS TRACE OUT      as scripts/flops/jobs.py wrote the first two, into OUT.json.gz and OUT.counts.json

    for job in $(python scripts/flops/jobs.py names); do
        python scripts/flops/jobs.py $job count /tmp/counts; python scripts/flops/jobs.py $job profile /tmp/trace
        python scripts/flops/fixture.py /tmp/counts /tmp/trace tests/flops/$job
    done

It keeps the trace's operators, with their sizes, values and numbers.
"""

import gzip
import json
import sys

KEPT = ("Input Dims", "Input type", "Concrete Inputs", "Sequence number", "Fwd thread id")


def main():
    counts, trace, out = sys.argv[1:]
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    kept = []
    threads = {}
    first = min(event["ts"] for event in events if event.get("cat") == "cpu_op")
    for event in events:
        if event.get("cat") != "cpu_op":
            continue
        args = {key: value for key, value in event["args"].items() if key in KEPT}
        thread = threads.setdefault(event["tid"], 100 + len(threads))
        times = {"ts": round(event["ts"] - first + 10, 3), "dur": event["dur"]}
        kept.append({"ph": "X", "cat": "cpu_op", "name": event["name"], "pid": 100, "tid": thread, **times, "args": args})
    text = json.dumps({"schemaVersion": 1, "traceEvents": kept}, separators=(",", ":"))
    with open(f"{out}.json.gz", "wb") as file:
        # Without a time stamp, the file has the same bytes each time.
        file.write(gzip.compress(text.encode(), 9, mtime=0))
    with open(counts) as file, open(f"{out}.counts.json", "w") as to:
        json.dump(json.load(file), to, indent=1, sort_keys=True)
        to.write("\n")


main()

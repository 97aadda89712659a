"""Compares the operators and ranges of two traces: names with counts, and sizes with counts.

usage: compare.py TPROF_TRACE TORCH_TRACE    exit status 1 where names or sizes differ
"""

import gzip
import json
import sys
from collections import Counter


def read(path):
    """Of the process with the most operators: a worker's are not in torch.profiler's trace."""
    with (gzip.open if path.endswith("gz") else open)(path) as file:
        events = json.load(file)["traceEvents"]
    events = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
    main, _ = Counter(event["pid"] for event in events).most_common(1)[0]
    events = [event for event in events if event["pid"] == main]
    names = Counter((event["cat"], event["name"]) for event in events)
    dims = [(event["name"], tensors(event.get("args", {}).get("Input Dims", []))) for event in events]
    return names, Counter(dims)


def tensors(dims):
    """Sizes as text; lists of tensors are left out, which tprof does not read."""
    return json.dumps([[] if any(isinstance(size, list) for size in one) else one for one in dims])


def main():
    differ = 0
    for what, one, other in zip(("names", "sizes"), read(sys.argv[1]), read(sys.argv[2])):
        wrong = {key: (one[key], other[key]) for key in one | other if one[key] != other[key]}
        differ += len(wrong)
        print(f"{what}: {sum(one.values())} by tprof, {sum(other.values())} by torch.profiler, {len(wrong)} differ")
        for key, counts in sorted(wrong.items(), key=str)[:10]:
            print(f"  {key}: {counts[0]} by tprof, {counts[1]} by torch.profiler")
    sys.exit(1 if differ else 0)


main()

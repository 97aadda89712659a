"""Compares the operators and ranges of two traces: names with counts, sizes with counts, and types with counts.

usage: compare.py TPROF_TRACE TORCH_TRACE    exit status 1 if they differ

torch.profiler of PyTorch 2.1 leaves out two things, which are removed from tprof's side too, and counted: operators in
the threads of gloo (whose ranges it has), and sizes of lists of tensors.
"""

import json
import sys
from collections import Counter

from traces import events


def gloo_threads(found):
    return {event["tid"] for event in found if event["name"].startswith("gloo:")}


def operators_of(found, threads):
    return sum(event["cat"] == "cpu_op" and event["tid"] in threads for event in found)


def dims(event):
    return event.get("args", {}).get("Input Dims", [])


def is_list(sizes):
    return any(isinstance(each, list) for each in sizes)


def types(event):
    """Returns the types of tensors only: tprof has no types for lists of numbers, and in PyTorch 2.15 none for
    booleans."""
    return [of if of not in ("Scalar", "ScalarList") else "" for of in event.get("args", {}).get("Input type", [])]


def without_lists(event):
    return [[] if is_list(sizes) else sizes for sizes in dims(event)]


def main():
    ours, theirs = (events(path) for path in sys.argv[1:3])
    threads = gloo_threads(ours)
    left_out = operators_of(ours, threads)
    if left_out > 0 and operators_of(theirs, gloo_threads(theirs)) == 0:
        ours = [event for event in ours if not (event["cat"] == "cpu_op" and event["tid"] in threads)]
        print(f"left out: {left_out} operators by tprof in threads of gloo, of which torch.profiler has ranges only")
    read = dims
    lists = sum(is_list(sizes) for event in ours for sizes in dims(event))
    if lists > 0 and not any(is_list(sizes) for event in theirs for sizes in dims(event)):
        read = without_lists
        print(f"left out: sizes of {lists} lists of tensors by tprof, of which torch.profiler has none")
    differ = 0
    for what, key in {
        "names": lambda event: (event["cat"], event["name"]),
        "sizes": lambda event: (event["name"], json.dumps(read(event))),
        "types": lambda event: (event["name"], json.dumps(types(event))),
    }.items():
        one, other = Counter(map(key, ours)), Counter(map(key, theirs))
        wrong = {each: (one[each], other[each]) for each in one | other if one[each] != other[each]}
        differ += len(wrong)
        print(f"{what}: {one.total()} by tprof, {other.total()} by torch.profiler, {len(wrong)} differ")
        for each, counts in sorted(wrong.items(), key=str)[:10]:
            print(f"  {each}: {counts[0]} by tprof, {counts[1]} by torch.profiler")
    sys.exit(1 if differ else 0)


main()

"""Measures functions, reads a run, and queries the run that records it. Its output is the same without tprof."""

import json
import pickle
import sys

import tprof

FAIL = "without an error"


def measure():
    calls = []
    a = tprof.run(sum, range(20_000), warmup=0)
    b = tprof.run(lambda n: calls.append(n), 3, warmup=2, iterations=7, name="half", sync=lambda: sum(range(10)))
    print(len(a), len(b), len(calls), a.result == sum(range(20_000)), min(b.wall_ns) > 0)
    print(a.min_ns <= a.quantile_ns(0.25) <= a.median_ns <= a.max_ns, a.stdev_ns is not None)
    low, high = a.interval_ns()
    print(a.min_ns <= low <= high <= a.max_ns, tprof.run(len, "x", iterations=1).interval_ns())
    same = tprof.compare(a, a)
    print(same.speedup, same.is_significant, tprof.compare(a, b).is_significant)
    for call in (
        lambda: tprof.run(len, "x", iterations=0),
        lambda: tprof.run(len, "x", warmup=-1),
        lambda: tprof.compare(a, 3),
        lambda: tprof.run(lambda: 1 // 0),
        lambda: a.quantile_ns(2),
        lambda: tprof.load("no such run"),
    ):
        try:
            call()
        except (ValueError, TypeError, ZeroDivisionError, FileNotFoundError) as error:
            print(type(error).__name__, error if "run at" not in str(error) else "")
        else:
            print(FAIL)


def load(path):
    run = tprof.load(path)
    rows = {row["name"]: row["runs"] for row in run.table("spans")}
    assert rows["sum"] == 20 and rows["half"] == 7, rows
    assert run.report("memory")["kind"] == "memory" and run.report("memory") is run.report("memory")
    # The results of UnifiedProfiler, in the form that docs/python.md has.
    spans, name = run.table("spans"), "sum"
    (total_ms,) = [row["total_ns"] / 1e6 for row in spans if row["name"] == name]
    summary, bottlenecks = run.report()["ranks"], [(row["what"], row["try"]) for row in run.findings()]
    assert total_ms > 0 and summary[0]["host_memory"] and isinstance(bottlenecks, list)
    assert run.table("kernels", "kernels") == []
    assert run.tables("summary") == {}
    assert all("headline" in row for row in run.findings())
    for call, words in (
        (lambda: run.report("nosuch"), "unknown report kind"),
        (lambda: run.table("spans", "nosuch"), "it has spans"),
    ):
        try:
            call()
        except (tprof.TprofError, KeyError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(FAIL)


def snapshot(path):
    kept = bytearray(50_000_000)
    made = tprof.snapshot(path)
    if made is None:
        print(made)
        return
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == made
    assert any(value >= len(kept) for value in numbers(made)), made
    tprof.snapshot(path + ".pickle")
    with open(path + ".pickle", "rb") as file:
        (segment,) = pickle.load(file)["segments"]
    largest = max(segment["blocks"], key=lambda block: block["size"])
    assert largest["size"] >= len(kept) and largest["frames"][0]["name"], largest
    assert segment["total_size"] == sum(block["size"] for block in segment["blocks"]), segment
    print("held")


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for one in value for number in numbers(one)]
    return [value] if isinstance(value, int) else []


{"measure": measure, "load": load, "snapshot": snapshot}[sys.argv[1]](*sys.argv[2:])

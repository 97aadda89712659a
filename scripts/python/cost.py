"""Measures the cost of the module: nanoseconds per call, as the median over blocks of a thousand calls with pauses
between them."""

import sys
import time

begin = time.perf_counter_ns()
import tprof

IMPORT_MS = (time.perf_counter_ns() - begin) / 1e6
CALLS = [None] * 1000
RANGE = tprof.range("range")


def block(call):
    start = time.perf_counter_ns()
    for _ in CALLS:
        call()
    middle = time.perf_counter_ns()
    for _ in CALLS:
        pass
    return (2 * middle - start - time.perf_counter_ns()) / len(CALLS)


def cost(call):
    blocks = []
    for _ in range(60):
        blocks.append(block(call))
        time.sleep(0.005)
    return sorted(blocks)[len(blocks) // 2]


def with_range():
    with RANGE:
        pass


def nothing():
    pass


decorated = tprof.range("decorated")(nothing)
empty = cost(nothing)
print(
    "%d.%d %s: import %.1f ms; step %.0f ns, with range %.0f, decorated %.0f"
    % (
        *sys.version_info[:2],
        "under tprof" if tprof.is_recording() else "without",
        IMPORT_MS,
        cost(tprof.step),
        cost(with_range) - empty,
        cost(decorated) - empty,
    )
)

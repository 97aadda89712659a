"""Shows the cost of views over ranks, embedded and on one and three executors of Spark, as a table and a picture.

CPU seconds are those of the process, or of all executors and of the server that plans for them. Each query runs twice,
and only the second run counts, because in the first run on a new executor Java still compiles its code.
"""

import os
import sys
import time
from pathlib import Path

from compare import cluster
from spark import Spark

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import plot
from measure import Run, busy_seconds

VIEWS = ("kernel_stats", "breakdown", "stragglers", "comm_overlap")
RANKS = (64, 256, 1024)
EXECUTORS = (1, 3)


def embedded(made, dataset, view):
    runs = [Run([made.sql, dataset, f"SELECT * FROM {view}", "--format", "csv", "-o", "{folder}/out"], timeout=900) for _ in range(2)]
    if runs[-1].status != 0:
        raise RuntimeError(runs[-1].output)
    return runs[-1].cpu, runs[-1].wall, runs[-1].others


def on_spark(spark, ask, view):
    for _ in range(2):
        began, cpu, busy = time.monotonic(), spark.cpu(), busy_seconds()
        ask(f"SELECT * FROM {view}")
        wall, cpu = time.monotonic() - began, spark.cpu() - cpu
    return cpu, wall, max(0.0, (busy_seconds() - busy - cpu) / wall)


def measure(made, picture):
    """Prints a table of CPU and wall seconds and of the cores that others used meanwhile."""
    points = {}
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    print(f"{os.cpu_count()} cores, {model}, load {os.getloadavg()[0]:.1f}")
    print("| view | engine | ranks | CPU s | wall s | cores of others |\n|---|---|---|---|---|---|")

    def note(engine, view, ranks, found):
        cpu, wall, others = found
        points.setdefault(engine, {}).setdefault(view, []).append((ranks, cpu))
        print(f"| `{view}` | {engine} | {ranks:,} | {cpu:.2f} | {wall:.2f} | {others:.1f} |", flush=True)

    for ranks in RANKS:
        for view in VIEWS:
            note("embedded", view, ranks, embedded(made, made.ranks(ranks), view))
    for executors in EXECUTORS:
        name = f"Spark, {executors} executor{'s' * (executors > 1)}"
        with Spark(made.folder / f"spark-{executors}", executors) as spark:
            for ranks in RANKS:
                ask = cluster(made.sql, spark.connect, made.ranks(ranks))
                for view in VIEWS:
                    note(name, view, ranks, on_spark(spark, ask, view))
    if picture:
        plot.write(picture, [(f"ranks ({engine})", list(lines.items())) for engine, lines in points.items()])

"""Measures how the cost of an import and of reports grows: over three decades of events in one rank, over three decades
of ranks, and for every kind of report on ten million events."""

import re
import shutil
import subprocess

import plot
import table
from imports import maker
from measure import Run

# Rows in one synthetic step; see tests/src/synthetic.rs.
ROWS_A_STEP = 134
EVENTS = (10_000, 100_000, 1_000_000, 10_000_000)
RANKS = (1, 10, 100, 1_000)
# Largest duration in seconds of a report on the most events.
REPORT_S = 2
# The measures to draw.
BY_EVENTS = ("import", "all", "findings", "critical-path", "operators", "breakdown", "steps")
BY_RANKS = ("all", "summary", "operators", "breakdown")


def kinds(tprof):
    """Returns every kind of report that the help lists."""
    text = subprocess.run([tprof, "report", "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z-]+)  ", text[text.index("Kinds:") :], re.M)


def least(argv, rounds):
    """Returns the run that took least CPU time."""
    runs = [Run(argv, timeout=600) for _ in range(rounds)]
    failed = [run for run in runs if run.status != 0]
    if failed:
        raise RuntimeError(f"{argv} failed: {failed[0].output}")
    return min(runs, key=lambda run: run.cpu)


def count(number):
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)


def point(bench, what, size, run):
    figures = {"what": what, "size": size, "cpu_s": run.cpu, "wall_s": run.wall, "peak_mib": run.peak_kib / 1024, "others": run.others}
    bench.scale.append(figures)
    return figures


def by_events(bench, make, folder):
    """Measures runs of one rank. Keeps the smallest run for the measurements over ranks."""
    most = EVENTS[-2] if bench.quick else EVENTS[-1]
    for size in (size for size in EVENTS if size <= most):
        trace, run = folder / f"{size}.json", folder / f"events-{size}"
        subprocess.run([make, "kineto", str(size // ROWS_A_STEP + 1), trace], check=True)
        imported = least([bench.tprof, "import", trace, "--quiet", "-o", "{folder}/run"], 3 if size <= 1_000_000 else 1)
        point(bench, "import", size, imported)
        subprocess.run([bench.tprof, "import", trace, "--quiet", "-o", run], check=True)
        trace.unlink()
        for kind in [*kinds(bench.tprof), "all"] if size == most else BY_EVENTS[1:]:
            found = point(bench, kind, size, least([bench.tprof, "report", kind, run], 3))
            if size == most:
                target = None if kind == "all" else REPORT_S
                basis = "wall, disturbed" if found["others"] > table.DISTURBED else "wall"
                bench.row(f"report {kind}, {count(size)} events: wall", found["wall_s"], "s", target, basis=basis)
                bench.row("  CPU", found["cpu_s"], "s", None, basis="cpu")
        if size != EVENTS[0]:
            shutil.rmtree(run)
    bench.row(f"  peak memory of all kinds, {count(most)} events", found["peak_mib"], "MiB", None)


def by_ranks(bench, make, folder):
    source = folder / f"events-{EVENTS[0]}"
    most = RANKS[-2] if bench.quick else RANKS[-1]
    for size in (size for size in RANKS if size <= most):
        run = folder / f"ranks-{size}"
        subprocess.run([make, "ranks", source, str(size), run], check=True)
        for kind in BY_RANKS:
            found = point(bench, f"{kind} of ranks", size, least([bench.tprof, "report", kind, run], 3 if size < 1_000 else 1))
            if size == most:
                bench.row(f"report {kind}, {size} ranks of {count(EVENTS[0])} events: CPU", found["cpu_s"], "s", None, basis="cpu")
                bench.row("  peak memory", found["peak_mib"], "MiB", None)
        shutil.rmtree(run)


def growth(bench, what):
    """Returns the factor by which the cost grew over the last decade: 10 is linear."""
    costs = [point["cpu_s"] for point in bench.scale if point["what"] == what]
    return costs[-1] / max(costs[-2], 1e-3)


def measure(bench, root, folder):
    make = maker(root)
    by_events(bench, make, folder)
    by_ranks(bench, make, folder)
    for what in ("import", "all", "all of ranks", "summary of ranks"):
        bench.row(f"{what}: CPU over the last decade", growth(bench, what), "times", None, basis="cpu")
    if bench.args.plot:
        panels = [("events in one rank", BY_EVENTS, ""), ("ranks of 10,000 events", BY_RANKS, " of ranks")]
        plot.write(bench.args.plot, [(title, lines(bench, names, suffix)) for title, names, suffix in panels])


def lines(bench, names, suffix):
    """Returns the name and the points of each line."""
    return [(name, [(at["size"], at["cpu_s"]) for at in bench.scale if at["what"] == name + suffix]) for name in names]

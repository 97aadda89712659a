"""Compares the rows of every view on the embedded engine and on the cluster: they must be equal to the nanosecond."""

import json
import re
import subprocess
import time
from collections import Counter

# Tables with a row per event; for more than ROWS rows, ranks are compared by counts and sums.
LONG = ("device_time", "idle_gaps", "launch_delays", "meetings", "memory_curve")
RANKS = 256


def asked(sql, dataset, query, *options):
    """Returns the rows of `tprof sql --format json` without unknown values, and the seconds that it took."""
    began = time.monotonic()
    words = [str(sql), "--format", "json", *map(str, options), str(dataset), query]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    rows = json.loads(done.stdout or "[]")
    return [{key: value for key, value in row.items() if value is not None} for row in rows], time.monotonic() - began


def cluster(sql, port, dataset):
    """Returns a function that answers queries by the Spark Connect server of a cluster."""
    return lambda query: asked(sql, dataset, query, "--remote", f"sc://127.0.0.1:{port}")[0]


def counted(rows):
    """Returns the rows as a multiset, so that their order doesn't matter."""
    return Counter(frozenset(row.items()) for row in rows)


def difference(here, there):
    """Describes the difference between two results; None if they are equal."""
    here, there = counted(here), counted(there)
    if here == there:
        return None
    lines = [f"embedded {sum(here.values())} rows, cluster {sum(there.values())}"]
    for name, rows in (("embedded", here - there), ("cluster", there - here)):
        lines += [f"  only {name}: {dict(sorted(row))}" for row in list(rows)[:3]]
    return "\n".join(lines)


def views(sql):
    """Returns the texts of the views that come with tprof, and their names."""
    text = subprocess.run([str(sql), "--views"], capture_output=True, text=True, check=True).stdout
    return text, re.findall(r"(?m)^CREATE VIEW (\w+)", text)


def query_of(sql, dataset, view, ranks):
    if view not in LONG or ranks <= RANKS:
        return f"SELECT * FROM {view}"
    columns, _ = asked(sql, dataset, f"DESCRIBE {view}")
    sums = [f"sum({row['column_name']}) AS {row['column_name']}" for row in columns if row["column_name"].endswith(("_ns", "bytes"))]
    return f"SELECT run, rank, count(*) AS rows_, {', '.join(sums)} FROM {view} GROUP BY run, rank"


def compare(sql, ask, dataset, ranks):
    """Prints a line for each view. Returns the names of the views that differ, and of those without rows. `ask` sends a
    query to the cluster."""
    wrong, empty = [], []
    for view in views(sql)[1]:
        query = query_of(sql, dataset, view, ranks)
        here, _ = asked(sql, dataset, query)
        began = time.monotonic()
        try:
            problem = difference(here, ask(query))
        except Exception as error:  # Whatever a client raises, the view did not run.
            problem = str(error)[:2000]
        seconds = time.monotonic() - began
        print(f"{'ok' if problem is None else 'WRONG'}  {dataset.name}  {view}: {len(here)} rows, {seconds:.1f} s", flush=True)
        if problem is not None:
            print(problem, flush=True)
            wrong.append(view)
        if not here:
            empty.append(view)
    return wrong, empty

"""Keeps run.json and the tables of a run, without command lines and other names."""

import gzip
import json
import os
import subprocess

import checks.metrics
import checks.units
from evidence import Folder

# Tables that a judge reads; the others contain names of files and users.
TABLES = ("spans", "kernels", "copies", "synchronizations", "device_allocations", "marks", "losses", "collectives", "devices",
          "kernel_stalls")
# The counters that are compared: bytes held by stream-ordered pools, and what a device's units do.
POOL_HELD = "gpu_pool_held_bytes"
COUNTERS = (POOL_HELD, *checks.units.COUNTERS, *checks.metrics.COUNTERS)
OF_RUN = ("version", "tprof", "start_ns", "end_ns", "finished", "completeness", "overhead", "asked_to_end")


def export(tprof, run, folder):
    """Writes the files of a run that a judge reads into a folder."""
    info = Folder(run).json("run.json")
    if info is None:
        return
    kept = {key: info.get(key) for key in OF_RUN}
    with open(os.path.join(folder, "run.json"), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
    tables = os.path.join(run, "all.json.gz")
    try:
        subprocess.run([tprof, "export", run, "--to", "json", "-o", tables], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=True)
    except subprocess.SubprocessError:
        return
    with gzip.open(tables, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    ranks = [{"tables": {name: rank["tables"][name] for name in TABLES if name in rank["tables"]}} for rank in whole["ranks"]]
    for rank, all_tables in zip(ranks, whole["ranks"]):
        counters = all_tables["tables"].get("counters", {"columns": ["name"], "rows": []})
        at = counters["columns"].index("name")
        rank["tables"]["counters"] = {**counters, "rows": [row for row in counters["rows"] if row[at] in COUNTERS]}
    write(os.path.join(folder, "tables.json.gz"), ranks)


def write(path, ranks):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump({"ranks": ranks}, file, separators=(",", ":"))


def keep_overhead(path):
    """Keeps only the spans of CUPTI's own overhead."""
    whole = Folder(os.path.dirname(path)).json(os.path.basename(path))
    if whole is None:
        return
    ranks = []
    for rank in whole["ranks"]:
        spans = rank["tables"]["spans"]
        at = spans["columns"].index("kind")
        ranks.append({"tables": {"spans": {**spans, "rows": [row for row in spans["rows"] if row[at] == "overhead"]}}})
    write(path, ranks)

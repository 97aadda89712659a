"""Compares operations, bytes and rates of operators in AMD's TraceLens reports with tprof's for the same sizes.

usage: tracelens.py TPROF TABLE.csv…       exit status 1 if one differs by more than 1 % without a known reason

A table is one of GEMM.csv, CONV_fwd.csv, SDPA_fwd.csv. TraceLens writes these, and has some beside the traces of its
tests (https://github.com/AMD-AGI/TraceLens, tests/traces; its package is not on PyPI, where `tracelens` is another
program). Each row becomes an operator with the row's sizes, types and values, and a kernel of the row's mean time, in a
trace that tprof reads.

Known reasons: TraceLens adds an operation for each element of addmm's result, for the bias; and it halves causal
attention, of which tprof counts (n + 1) / 2n.
"""

import ast
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 0.01


def trace(rows):
    """Returns a trace with each row as an operator, its launch and its kernel, a second apart."""
    events = []
    for at, row in enumerate(rows):
        start, time = at * 1e6, float(row["Kernel Time (µs)_mean"])
        args = {"Input Dims": ast.literal_eval(row["Input Dims_first"]), "Input type": ast.literal_eval(row["Input type_first"])}
        args["Concrete Inputs"] = ast.literal_eval(row["Concrete Inputs_first"])
        common = {"ph": "X", "pid": 1, "tid": 1}
        events.append(common | {"cat": "cpu_op", "name": row["name"], "ts": start, "dur": 50, "args": args})
        launch = {"correlation": at + 1}
        events.append(common | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 5, "dur": 5, "args": launch})
        place = {"pid": 0, "tid": 7, "args": launch | {"device": 0, "stream": 7}}
        events.append(common | place | {"cat": "kernel", "name": "kernel", "ts": start + 100, "dur": time})
    return {"traceEvents": events}


def by_tprof(tprof, rows):
    with tempfile.TemporaryDirectory() as scratch:
        file, run = Path(scratch) / "rows.json", Path(scratch) / "run"
        file.write_text(json.dumps(trace(rows)))
        subprocess.run([tprof, "import", "-q", file, "-o", run], check=True, stdout=subprocess.DEVNULL)
        text = subprocess.run([tprof, "report", "flops", "--json", run], check=True, stdout=subprocess.PIPE).stdout
    found = {}
    for row in json.loads(text)["tables"]["operators"]:
        key = (row["operator"], json.loads(row["input_shapes"]), json.loads(row["input_types"]), json.loads(row["input_values"]))
        each = {what: row[what] / row["runs"] if row[what] is not None else None for what in ("needed_flops", "bytes")}
        found[json.dumps(key)] = each | {"rate": row["flops_per_s"]}
    return found


def wanted(row):
    """Returns the operations, bytes and operations per second in TraceLens's row, and the reason if the operations
    differ."""
    flops, sizes = float(row["GFLOPS_first"]) * 1e9, ast.literal_eval(row["Input Dims_first"])
    why = ""
    if row["name"] in ("aten::addmm", "aten::baddbmm"):
        flops, why = flops - sizes[1][-2] * sizes[2][-1] * (sizes[1][0] if len(sizes[1]) == 3 else 1), "the bias"
    if row.get("param: causal") == "True":
        queries = int(row["param: N_Q"])
        flops, why = flops * (queries + 1) / queries, "the diagonal of the causal mask"
    moved = row["Data Moved (MB)_first"]
    return flops, float(moved) * 2**20 if moved else None, flops / float(row["Kernel Time (µs)_mean"]) * 1e6, why


def main():
    tprof, *tables = sys.argv[1:]
    csv.field_size_limit(2**24)
    wrong = 0
    for path in tables:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        found, off, reasons = by_tprof(tprof, rows), [0.0, 0.0, 0.0], set()
        for row in rows:
            key = [row["name"], *(ast.literal_eval(row[f"{what}_first"]) for what in ("Input Dims", "Input type", "Concrete Inputs"))]
            ours, (flops, moved, rate, why) = found.get(json.dumps(key)), wanted(row)
            reasons |= {why} - {""}
            if ours is None:
                wrong += 1
                print(f"  {row['name']} {row['Input Dims_first']}: no count by tprof")
                continue
            pairs = ((ours["needed_flops"], flops), (ours["bytes"], moved), (ours["rate"], rate))
            ratios = [abs(a / b - 1) if a is not None and b else 0.0 for a, b in pairs]
            off = [max(pair) for pair in zip(off, ratios)]
            if max(ratios) > MOST:
                wrong += 1
                print(f"  {row['name']} {row['Input Dims_first']}: {pairs}")
        taken = f"; without {', '.join(sorted(reasons))}" if reasons else ""
        print(f"{path}: {len(rows)} rows; operations, bytes, rates differ by at most {', '.join(f'{one:.2%}' for one in off)}{taken}")
    return 1 if wrong else 0


sys.exit(main())

"""Compares the operations of matrix products in other people's traces: torch.utils.flop_counter's formulas, and `tprof
report flops`.

usage: traces.py TPROF TRACE…       needs a Python with PyTorch; exit status 1 if they differ

Compares the runs and operations of each operator, by the sizes of its inputs, for which torch has a formula (mm, addmm,
bmm, baddbmm, attention). Both sides leave out operators within another operator that has a formula.
"""

import collections
import gzip
import json
import subprocess
import sys
import tempfile

from torch.utils import flop_counter as torch

ATTENTION = ("efficient_attention", "flash_attention", "cudnn_attention", "flash_attention_for_cpu")
FORMULAS = {
    "mm": lambda dims: torch.mm_flop(*dims[:2]),
    "addmm": lambda dims: torch.addmm_flop(*dims[:3]),
    "bmm": lambda dims: torch.bmm_flop(*dims[:2]),
    "baddbmm": lambda dims: torch.baddbmm_flop(*dims[:3]),
}
FORMULAS |= {f"_scaled_dot_product_{kind}": lambda dims: torch.sdpa_flop_count(*dims[:3]) for kind in ATTENTION}
FORMULAS |= {f"_scaled_dot_product_{kind}_backward": lambda dims: torch.sdpa_backward_flop_count(*dims[:4]) for kind in ATTENTION}


def by_torch(path):
    with (gzip.open if path.endswith("gz") else open)(path) as file:
        events = json.load(file)["traceEvents"]
    found = collections.Counter()
    for event in events:
        name = event.get("name", "").removeprefix("aten::")
        dims = event.get("args", {}).get("Input Dims")
        if event.get("cat") in ("cpu_op", "Operator") and name in FORMULAS and dims and any(dims):
            found[name, json.dumps(dims, separators=(",", ":")), FORMULAS[name](dims)] += 1
    return found


def by_tprof(tprof, path):
    with tempfile.TemporaryDirectory() as scratch:
        run = f"{scratch}/run"
        subprocess.run([tprof, "import", "-q", path, "-o", run], check=True, stdout=subprocess.DEVNULL)
        text = subprocess.run([tprof, "report", "flops", "--json", run], check=True, stdout=subprocess.PIPE).stdout
    found = collections.Counter()
    for row in json.loads(text)["tables"]["operators"]:
        name = row["operator"].removeprefix("aten::")
        if name in FORMULAS:
            found[name, row["input_shapes"], row["flops_per_run"]] += row["runs"]
    return found


def main():
    tprof, *traces = sys.argv[1:]
    wrong = False
    for path in traces:
        one, other = by_torch(path), by_tprof(tprof, path)
        differ = {key: (one[key], other[key]) for key in one | other if one[key] != other[key]}
        wrong |= bool(differ)
        flops = sum(flops * runs for (*_, flops), runs in one.items())
        print(f"{path}: {len(one)} shapes, {one.total()} runs, {flops:,} operations, {len(differ)} differ")
        for key, runs in list(differ.items())[:10]:
            print(f"  {key}: {runs[0]} by torch, {runs[1]} by tprof")
    return 1 if wrong else 0


sys.exit(main())

"""Compares operations by operator: torch.utils.flop_counter's and those of `tprof report flops --json`.

usage: compare.py COUNTS REPORT [RECOMPUTED]

They must be equal for each operator that torch counts. Operations that only tprof counts are listed. With RECOMPUTED,
this many of the needed operations must belong to forward passes that are done again.
"""

import collections
import json
import sys

# Inner operators of a convolution, which depend on the build.
INNER = {"mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
         "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d", "cudnn_convolution", "cudnn_convolution_transpose",
         "_convolution", "conv1d", "conv2d", "conv3d", "_conv_depthwise2d"}


def main():
    counts, report, *recomputed = sys.argv[1:]
    torch = {name.removeprefix("aten."): flops for name, flops in json.load(open(counts)).items()}
    tables = json.load(open(report))["tables"]
    tprof, products, again = collections.Counter(), collections.Counter(), 0
    for row in tables["operators"]:
        name = row["operator"].removeprefix("aten::")
        name = "convolution" if name in INNER else name
        tprof[name] += row["flops"]
        if row["family"] in ("gemm", "convolution", "attention"):
            products[name] += row["flops"]
    wrong = False
    for name, flops in sorted(torch.items()):
        same = tprof[name] == flops
        wrong |= not same
        print(f"  {name}: {flops:,}" + ("" if same else f", tprof {tprof[name]:,}: differ"))
    for name in sorted(products.keys() - torch.keys()):
        print(f"  beyond torch's counter: {name}: {products[name]:,}")
    again = sum(row["recomputed_flops"] for row in tables["ranks"])
    if recomputed:
        print(f"  recomputed: {again:,}")
        wrong |= again != int(recomputed[0])
    elif again:
        print(f"  recomputed: {again:,}, where nothing is")
        wrong = True
    for row in tables["uncounted"]:
        if row["operator"].startswith("aten::"):
            print(f"  no count: {row['operator']} ({row['runs']}): {row['why']}")
    return 1 if wrong or not torch else 0


sys.exit(main())

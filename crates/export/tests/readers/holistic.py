"""Runs Holistic Trace Analysis on Kineto traces and prints what it reports as JSON:
python holistic.py TRACE...   (one per rank, in order)

The result of each analysis is a list of rows, or the text of its error.
"""

import json
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import pandas
from hta.trace_analysis import TraceAnalysis


def rows(answer):
    if isinstance(answer, pandas.DataFrame):
        return json.loads(answer.to_json(orient="split"))
    if isinstance(answer, (tuple, list)):
        return [rows(one) for one in answer]
    if isinstance(answer, dict):
        return {str(key): rows(one) for key, one in answer.items()}
    return answer if isinstance(answer, (int, float, str, type(None))) else str(answer)


files = dict(enumerate(sys.argv[1:]))
analysis = TraceAnalysis(trace_files=files)
ranks = list(files)
wanted = {
    "temporal_breakdown": lambda: analysis.get_temporal_breakdown(visualize=False),
    "idle_time": lambda: analysis.get_idle_time_breakdown(ranks=ranks, visualize=False),
    "kernel_breakdown": lambda: analysis.get_gpu_kernel_breakdown(visualize=False),
    "overlap": lambda: analysis.get_comm_comp_overlap(visualize=False),
    "launches": lambda: analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False),
    "bandwidth": lambda: analysis.get_memory_bw_summary(ranks=ranks),
    "queue_length": lambda: analysis.get_queue_length_summary(ranks=ranks),
}
read = {"rows": {str(rank): len(analysis.t.get_trace(rank)) for rank in ranks}}
for name, ask in wanted.items():
    try:
        read[name] = rows(ask())
    except Exception as error:  # HTA fails in many ways on traces that lack something.
        read[name] = f"{type(error).__name__}: {error}"
print(json.dumps(read))

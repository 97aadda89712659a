"""Compares what Holistic Trace Analysis and TensorBoard's PyTorch plugin read from a run and from torch.profiler's
trace.

usage: PYTHON readers.py TPROF_TRACE TORCH_TRACE    exit status 1 if they read something else

PYTHON has the readers (scripts/test-readers.sh). The calls of each operator, by name and with sizes and types, must be
equal, except types of numbers: tprof has none for lists of numbers, and in PyTorch 2.15 none for booleans. Events
before the range "job" are in the run and not in the trace, so they are removed from the run first; nothing else is
changed.
"""

import gzip
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from traces import events

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def cut(path, to):
    """Writes the trace with only the operators and ranges of the job."""
    with (gzip.open if path.endswith("gz") else open)(path) as file:
        trace = json.load(file)
    kept = {json.dumps(event, sort_keys=True) for event in events(path)}
    operators = ("cpu_op", "user_annotation")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") not in operators or json.dumps(event, sort_keys=True) in kept]
    with gzip.open(to, "wt") as file:
        json.dump(trace, file)


def by_hta(path):
    """Returns the calls by name, and by name, sizes and types."""
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    chosen = ParserConfig([*ParserConfig.get_minimum_args(), *ParserConfig.ARGS_INPUT_SHAPE])
    _, table, symbols = parse_trace_dataframe(str(path), chosen)
    names = symbols.get_sym_table()
    rows = table[table["cat"].map(lambda category: names[category] == "cpu_op")]
    calls = [names[name] for name in rows["name"]]
    inputs = zip(calls, map(str, rows["input_dims"]), (str(types).replace("ScalarList", "").replace("Scalar", "") for types in rows["input_type"]))
    return Counter(calls), Counter(inputs)


def by_plugin(path):
    """Returns the same from the plugin's view of operators, which has no types."""
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler import RunLoader

    run = RunLoader("run", str(path.parent), io.Cache()).load()
    profile = next(profile for profile in run.profiles.values() if profile.operation_table_by_name)
    tables = profile.operation_table_by_name["data"], profile.operation_table_by_name_input["data"]
    by_name = Counter({row["name"]: row["calls"] for row in tables[0]})
    return by_name, Counter({(row["name"], row["input_shape"]): row["calls"] for row in tables[1]})


def main():
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, trace in zip(("tprof", "torch"), sys.argv[1:3]):
            paths.append(Path(folder) / name / "rank-0.pt.trace.json.gz")
            paths[-1].parent.mkdir()
            cut(trace, paths[-1])
        for reader, read in ("Holistic Trace Analysis", by_hta), ("TensorBoard's plugin", by_plugin):
            for what, ours, theirs in zip(("names", "sizes"), *map(read, paths)):
                wrong = {key for key in ours | theirs if ours[key] != theirs[key]}
                differ += len(wrong)
                print(f"{reader}, {what}: {ours.total()} calls of tprof's, {theirs.total()} of torch.profiler's, {len(wrong)} differ")
                for key in sorted(wrong, key=str)[:10]:
                    print(f"  {key}: {ours[key]} and {theirs[key]}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()

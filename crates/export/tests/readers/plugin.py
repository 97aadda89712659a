"""Loads a log directory with TensorBoard's PyTorch profiler plugin and prints
what it would show, as JSON: python plugin.py DIRECTORY
"""

import json
import logging
import sys

from torch_tb_profiler import io
from torch_tb_profiler.profiler import RunLoader


def main():
    logging.disable(logging.CRITICAL)
    run = RunLoader("run", sys.argv[1], io.Cache()).load()
    read = {}
    for (worker, _), profile in run.profiles.items():
        if not hasattr(profile, "kernel_table"):
            continue  # This is the view over all workers.
        table = profile.kernel_table["data"]
        columns = [column["name"] for column in table["columns"]]
        calls, total = columns.index("Calls"), columns.index("Total Duration (us)")
        read[worker] = {
            "kernels": sum(row[calls] for row in table["rows"]),
            "kernel_us": sum(row[total] for row in table["rows"]),
            "names": sorted({row[0] for row in table["rows"]}),
            "views": [view.display_name for view in profile.views],
        }
    print(json.dumps(read))


if __name__ == "__main__":
    main()

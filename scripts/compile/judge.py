"""Checks that a report of `job.py` has the breaks and recompilations that the job's source causes.

    judge.py cold|warm|steps JOB REPORT
"""

import json
import sys
from pathlib import Path


def line_of(source, text):
    return next(number for number, line in enumerate(source, 1) if text in line)


def compiled(which, source, tables):
    breaks = [row["line"] for row in tables["graph_breaks"]]
    again = [row["function"] for row in tables["recompiles"]]
    rank = tables["compile_ranks"][0]
    checks = {
        "graph breaks": (sorted(breaks), [line_of(source, "the first break"), line_of(source, "the second break")]),
        "recompilations": (again, ["recompiles"] * 3 + ["forward"]),
        "compilations": (rank["compilations"], 9),
        "damaged lines": (rank["damaged_lines"], 0),
        "unknown events": ([row["event"] for row in tables["compile_events"] if row["use"] == "unknown"], []),
    }
    # If this PyTorch logs its look-ups.
    if rank["cache_hits"] is not None:
        checks["hits"] = (rank["cache_hits"] > 0, which == "warm")
    return checks


def main():
    which, job, report = sys.argv[1:]
    source = Path(job).read_text().splitlines()
    tables = json.loads(Path(report).read_text())["tables"]
    if which == "steps":
        # The first step, and the step with the other batch size.
        marked = ["compiles" in row["remark"] for row in tables["steps"]]
        checks = {"steps with compilations": (sum(marked) >= 1 and not all(marked), True)}
    else:
        checks = compiled(which, source, tables)
    wrong = {what: found for what, found in checks.items() if found[0] != found[1]}
    for what, (is_, must) in wrong.items():
        print(f"{which}: {what}: {is_}, not {must}", file=sys.stderr)
    if not wrong:
        print(f"{which}: {', '.join(checks)}: as the job's source")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

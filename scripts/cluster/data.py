"""Makes the data that is queried: an archive of public traces and a recorded program, and a data set of synthetic ranks.

Files are small, with a few ranks each, so that a scan has many tasks.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ("dlrm_8rank_v100", "graphs_a100", "nccl_a100", "alexnet_cp", "diff_test_v100", "large_v100", "sampled_2rank_of_128")
# Number of steps of a synthetic rank, which has 10,050 rows of events.
STEPS = 75
FILES = 64
# Runs on a core for some tenths of a second, so that the sampler takes samples.
PROGRAM = "def squares(n): return sum(i * i for i in range(n))\nfor _ in range(8): squares(600_000)"


class Made:
    """Makes data with built programs, in one directory."""

    def __init__(self, folder, tprof, sql, make):
        self.folder, self.tprof, self.sql, self.make = Path(folder), tprof, sql, make

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    @cache
    def public(self):
        """Returns an archive with all tables of the public traces that are present, of a recorded program, and of ranks
        that differ."""
        data = Path(os.environ.get("TPROF_SHARED_DATA", ROOT / "../shared/data")) / "kineto"
        runs = []
        for name in PUBLIC:
            if not (data / name).is_dir():
                print(f"left out: {data / name} is not there")
                continue
            self.run(self.tprof, "import", "--quiet", data / name, "-o", self.folder / name)
            runs.append(self.folder / name)
        traces, differing = self.folder / "traces", self.folder / "differing"
        traces.mkdir()
        for rank in range(5):
            self.run(self.make, "kineto", 20, traces / f"rank-{rank}.json", rank, 5)
        self.run(self.tprof, "import", "--quiet", traces, "-o", differing)
        recorded = self.folder / "recorded"
        self.run(self.tprof, "run", "--quiet", "-o", recorded, "--", sys.executable, "-c", PROGRAM)
        archive = self.folder / "archive"
        self.run(self.sql, "archive", *runs, differing, recorded, "--to", archive, "--raw", "all")
        return archive

    @cache
    def ranks(self, count, a_file=None):
        """Returns a data set of `count` ranks. Each file of a table holds `a_file` ranks, by default a 64th of them."""
        a_file = a_file or max(1, count // FILES)
        dataset = self.folder / f"ranks-{count}-{a_file}"
        self.run(self.tprof, "export", "--to", "parquet", f"--compact={a_file}", "-o", dataset, self.run_of(count))
        return dataset

    @cache
    def run_of(self, count):
        """Returns a run of `count` ranks, which are copies of one."""
        one, run = (self.folder / f"{name}-{count}" for name in ("one", "run"))
        trace = self.folder / f"one-{count}.json"
        self.run(self.make, "kineto", STEPS, trace)
        self.run(self.tprof, "import", "--quiet", trace, "-o", one)
        self.run(self.make, "ranks", one, count, run)
        return run

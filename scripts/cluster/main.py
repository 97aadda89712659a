"""Runs the steps of scripts/test-cluster.sh, each on a cluster of its own. The exit status is 1 if a fact does not
hold."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import growth
import sizes
from compare import cluster, compare, views
from data import Made
from kills import kills
from spark import Spark

STEPS = ("views", "kills", "daft", "growth", "sizes")
EXECUTORS = 3
# Number of ranks of the data set in which executors are killed. The queries of kills.py fit that number. The other two
# are numbers of ranks to join, so that a query takes long.
KILL_RANKS, JOINED, FEW_JOINED = 64, 10, 4


def on_spark(made, options):
    """Runs the steps `views` and `kills` on one cluster. Returns the number of facts that do not hold."""
    wrong, empty = 0, set(views(made.sql)[1])
    with Spark(made.folder / "spark", options.executors) as spark:
        print(f"Spark with {options.executors} executors on 127.0.0.1:{spark.connect}", flush=True)
        if "views" in options.steps:
            for dataset, ranks in ((made.public(), 0), (made.ranks(options.ranks), options.ranks)):
                differ, without = compare(made.sql, cluster(made.sql, spark.connect, dataset), dataset, ranks)
                wrong, empty = wrong + len(differ), empty & set(without)
            # A view without rows would agree with anything, so it counts as a fault.
            if empty:
                print(f"WRONG  no data has rows for {', '.join(sorted(empty))}")
                wrong += len(empty)
        if "kills" in options.steps:
            dataset = made.ranks(KILL_RANKS)
            joined, victims = (FEW_JOINED if options.few else JOINED), [False] * options.times + [True] * (not options.few)
            wrong += kills(spark, cluster(made.sql, spark.connect, dataset), made.sql, dataset, joined, victims)
    return wrong


def on_daft(made, options):
    """Runs the step `daft` in a Python that has Daft."""
    script = Path(__file__).with_name("daft_ray.py")
    datasets = [made.public(), made.ranks(options.ranks)]
    words = [os.environ["TPROF_TEST_DAFT"], "-B", script, made.sql, *datasets]
    return subprocess.run([str(word) for word in words], cwd=made.folder).returncode


def main():
    parser = argparse.ArgumentParser(prog="test-cluster.sh")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"{', '.join(STEPS)} [default: views kills]")
    parser.add_argument("--ranks", type=int, default=64, help="ranks of the synthetic data set [default: 64]")
    parser.add_argument("--times", type=int, default=3, help="kills of one executor in each kind of stage [default: 3]")
    parser.add_argument("--executors", type=int, default=EXECUTORS, help=f"of the steps views and kills [default: {EXECUTORS}]")
    parser.add_argument("--few", action="store_true", help="kills: shorter queries, and never all executors at once")
    parser.add_argument("--plot", help="with growth: SVG to write")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"there is no step {', '.join(sorted(unknown))}")
    options.steps = options.steps or ["views", "kills"]
    # The cluster must be stopped in this case, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="tprof-cluster-"))
    made = Made(folder, *(Path(os.environ[f"TPROF_TEST_{name}"]).resolve() for name in ("BIN", "SQL", "MAKE")))
    wrong = 0
    try:
        if {"views", "kills"} & set(options.steps):
            wrong += on_spark(made, options)
        if "daft" in options.steps:
            wrong += on_daft(made, options)
        if "growth" in options.steps:
            growth.measure(made, options.plot)
        if "sizes" in options.steps:
            sizes.measure(made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("all facts hold" if not wrong else f"{wrong} facts do not hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

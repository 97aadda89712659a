"""Checks that the run of a job of `job.py` has everything that it must: `judge.py TRAINER RUN`."""

import sys

import tprof

TRAINER, RUN = sys.argv[1:3]
SPANS = {
    "transformers": {"epoch 0": 1, "epoch 1": 1, "validation": 3, "checkpoint": 2},
    # The second validation is Lightning's check before training.
    "lightning": {"epoch 0": 1, "epoch 1": 1, "validation": 3},
    "accelerate": {"epoch 0": 1, "epoch 1": 1},
}[TRAINER]
COUNTERS = {
    "transformers": {"batch_size": 8, "loss": None, "learning_rate": None, "eval_loss": None},
    "lightning": {"batch_size": 4},
    "accelerate": {"loss": None},
}[TRAINER]

run = tprof.load(RUN)
found = {row["name"]: row["runs"] for row in run.table("spans", "spans")}
assert {name: found.get(name) for name in SPANS} == SPANS, found
counters = {row["counter"]: row for row in run.table("counters", "counters")}
for name, last in COUNTERS.items():
    assert name in counters, sorted(counters)
    assert last is None or counters[name]["last"] == last, counters[name]
steps = run.table("steps", "step_times")
print(TRAINER, found, sorted(name for name in COUNTERS), "steps", [(row["source"], row["steps"]) for row in steps])

#!/bin/sh
# Checks tprof's callbacks in real trainers (scripts/trainers/job.py): a job must print the same with and without
# tprof, and the run must have its epochs, validations, checkpoints, batch sizes and logged values.
#
#     scripts/trainers-check.sh TPROF PYTHON
#
# PYTHON has torch, transformers, accelerate and lightning: too much for continuous integration. Last run with
# transformers 5.23.0, accelerate 1.15.0, lightning 2.6.6, torch 2.15.0, Python 3.11.
set -eu
tprof=$(realpath "$1"); python=$(realpath -s "$2")
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PYTHONPATH="$PWD/python" PYTHONDONTWRITEBYTECODE=1 TPROF_BIN="$tprof" CUDA_VISIBLE_DEVICES=
for trainer in transformers lightning accelerate; do
    "$python" scripts/trainers/job.py "$trainer" "$out/native" 2>/dev/null | tail -n 1 >"$out/native.txt"
    "$tprof" run -q --force -o "$out/run" -- "$python" scripts/trainers/job.py "$trainer" "$out/$trainer" \
        2>/dev/null | tail -n 1 >"$out/traced.txt"
    cmp "$out/native.txt" "$out/traced.txt"
    rm -rf "$out/native"
    "$python" scripts/trainers/judge.py "$trainer" "$out/run"
done

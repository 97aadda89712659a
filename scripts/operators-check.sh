#!/bin/sh
# Operators, ranges and sizes that tprof records of PyTorch, against torch.profiler's of another run of the same
# seed: names, counts and sizes must be equal. By hand: it needs a Python with PyTorch, which no script installs.
#
#   scripts/operators-check.sh PYTHON [TPROF] [JOB…]      jobs of scripts/operators/jobs.py; default: all
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo 'usage: scripts/operators-check.sh PYTHON [TPROF] [JOB…]' >&2; exit 2; }
python=$1
tprof=$(realpath "${2:-target/debug/tprof}")
[ $# -lt 2 ] && shift || shift 2
[ $# -gt 0 ] || set -- mlp conv transformer loader accumulation autocast optimizers
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=
for job in "$@"; do
    "$tprof" run -q --operators shapes --mem off -o "$work/$job" -- "$python" scripts/operators/jobs.py "$job" 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    "$tprof" export --to chrome -o "$work/$job.chrome" "$work/$job" >/dev/null 2>&1
    "$python" scripts/operators/jobs.py "$job" "$work/$job.json" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    echo "$job"
    python3 scripts/operators/compare.py "$work/$job.chrome/rank-0.trace.json.gz" "$work/$job.json" || failed="$failed $job"
done
[ -z "$failed" ] || { echo "differ:$failed" >&2; exit 1; }

#!/bin/sh
# Compares the operations of models, forwards and backwards. The operations that `tprof report flops` computes from
# sizes must equal those that torch.utils.flop_counter counts for the same model, operator by operator. The sizes come
# from a run of tprof's own (--operators shapes) and from a trace of torch.profiler (record_shapes).
# Run it by hand: it needs a Python with PyTorch, which no script installs.
#
#   scripts/flops-check.sh PYTHON [TPROF] [JOB…]      jobs of scripts/flops/jobs.py; default: all
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo 'usage: scripts/flops-check.sh PYTHON [TPROF] [JOB…]' >&2; exit 2; }
python=$1
tprof=$(realpath "${2:-target/debug/tprof}")
[ $# -lt 2 ] && shift || shift 2
jobs=scripts/flops/jobs.py
# shellcheck disable=SC2046  # one word for each job
[ $# -gt 0 ] || set -- $("$python" $jobs names)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=

# compare WHAT RUN: compares the report of a run with the counter's figures
compare() {
    echo "$job, $1"
    again=
    # Each of the two steps runs the two checkpointed blocks again. A block has products of 8 x 16 x 32 and of 8 x 32 x
    # 16, and one operation per element for its function.
    [ "$job" != recomputed ] || again=$((2 * 2 * (2 * 2 * 8 * 16 * 32 + 8 * 32)))
    "$tprof" report flops "$2" --json >"$work/report.json" &&
        # shellcheck disable=SC2086  # nothing, or a number
        python3 scripts/flops/compare.py "$work/$job.counts" "$work/report.json" $again || failed="$failed $job"
}

for job in "$@"; do
    # Counts that tprof.flops predicts for a step without running it.
    PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}" TPROF_BIN="$tprof" \
        "$python" $jobs "$job" ahead "$work/$job.ahead" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    "$python" $jobs "$job" count "$work/$job.counts" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    "$tprof" run -q --operators shapes --mem off -o "$work/$job" -- "$python" $jobs "$job" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    compare 'tprof run' "$work/$job"
    cmp "$work/$job.counts" "$work/$job.ahead" || failed="$failed $job (tprof.flops)"
    "$python" $jobs "$job" profile "$work/$job.json" >/dev/null 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    "$tprof" import -q -o "$work/$job.imported" "$work/$job.json" >/dev/null
    compare 'torch.profiler' "$work/$job.imported"
done
[ -z "$failed" ] || { echo "differ:$failed" >&2; exit 1; }

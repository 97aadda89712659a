#!/bin/sh
# Runs training jobs under tprof. Compares their operators, ranges and sizes with those of torch.profiler in another
# run with the same seed (names, counts and sizes must be equal); the final weights, and what torch.compile compiled,
# with those of a run without either profiler; and the records of torch.profiler beside tprof with those without. Then
# it compares the durations of larger operators in one run in which both record (scripts/operators/durations.py).
# It also compares the data that other tools read from an export, if scripts/test-readers.sh installed them.
# Run it by hand: it needs a Python with PyTorch, which no script installs.
#
#   scripts/operators-check.sh PYTHON [TPROF] [JOB…]      jobs of scripts/operators/jobs.py; default: all
#   DURATIONS=0 scripts/operators-check.sh …              without durations
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo 'usage: scripts/operators-check.sh PYTHON [TPROF] [JOB…]' >&2; exit 2; }
python=$1
tprof=$(realpath "${2:-target/debug/tprof}")
[ $# -lt 2 ] && shift || shift 2
[ $# -gt 0 ] || set -- mlp conv transformer loader accumulation autocast optimizers lists scaler compiled ddp
readers=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}/python/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=

# run LOG TRACE COMMAND…: runs the job by COMMAND, with torch.profiler's trace if TRACE is not empty
run() {
    log=$1 trace=$2
    shift 2
    launch=$python
    [ "$job" != ddp ] || launch="$python -m torch.distributed.run --standalone --nproc-per-node 2"
    # shellcheck disable=SC2086  # several words
    "$@" $launch scripts/operators/jobs.py "$job" ${trace:+"$trace"} >"$log" 2>"$log.errors" || { cat "$log.errors" >&2; return 1; }
    grep -E '^(weights|compiled) ' "$log" | sort >"$log.results" || true
}

# same WHAT FILE FILE
same() {
    if cmp -s "$2" "$3"; then echo "$1: equal"; else
        echo "$1: differ"; diff "$2" "$3" || true
        failed="$failed $job"
    fi
}

# compare WHAT TRACE TRACE
compare() {
    echo "$1"
    python3 scripts/operators/compare.py "$2" "$3" || failed="$failed $job"
}

for job in "$@"; do
    echo "== $job"
    at=$work/$job
    record() { "$tprof" run -q --operators shapes --mem off -o "$recorded" -- "$@"; }
    if ! { run "$at.plain" '' env && run "$at.reference" "$at.RANK.reference.json" env &&
        recorded=$at.run run "$at.tprof" '' record && recorded=$at.both run "$at.beside" "$at.RANK.beside.json" record; }; then
        failed="$failed $job"
        continue
    fi
    same 'weights with and without tprof' "$at.plain.results" "$at.tprof.results"
    same 'weights with and without tprof and torch.profiler' "$at.plain.results" "$at.beside.results"
    "$tprof" export --to chrome -o "$at.chrome" "$at.run" >/dev/null 2>&1
    ranks=0
    [ "$job" != ddp ] || ranks='0 1'
    for rank in $ranks; do
        # While torch.profiler records, torch.compile makes additional ranges, and gives its functions an additional
        # input.
        [ "$job" = compiled ] ||
            compare "tprof and torch.profiler, rank $rank" "$at.chrome/rank-$rank.trace.json.gz" "$at.$rank.reference.json"
        compare "torch.profiler beside tprof and without, rank $rank" "$at.$rank.beside.json" "$at.$rank.reference.json"
    done
    if [ "$job" = mlp ] && [ -x "$readers" ]; then
        "$readers" scripts/operators/readers.py "$at.chrome/rank-0.trace.json.gz" "$at.0.reference.json" || failed="$failed readers"
    fi
    case $job in lists | compiled) continue ;; esac
    [ "${DURATIONS:-1}" = 0 ] || python3 scripts/operators/durations.py "$python" "$tprof" "$job" || failed="$failed $job"
done
[ -z "$failed" ] || { echo "differ:$failed" >&2; exit 1; }

#!/bin/sh
# Finds tests that fail only sometimes: runs the process tests several times beside other work, and lists each test
# that failed, with how often. Such a test is a defect, of tprof or of the test; it is found, not repeated until it
# passes.
#
#     scripts/flaky.sh                       # 20 runs, beside 6 busy programs
#     scripts/flaky.sh RUNS BUSY [FILTER]…   # only tests whose names contain a FILTER
#
# The output of each run is kept in target/flaky. Needs a built release; TPROF_TEST_BIN names another program.
set -eu
cd "$(dirname "$0")/.."
runs=${1:-20}
busy=${2:-6}
shift $(($# < 2 ? $# : 2))
target=${CARGO_TARGET_DIR:-$PWD/target}
export TPROF_TEST_BIN="${TPROF_TEST_BIN:-$target/release/tprof}"
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) + 1))}"
cargo test --workspace --test it --locked --no-run
out=$target/flaky
rm -rf "$out"
mkdir -p "$out"

# Busy programs that end with this script, however it ends.
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done' EXIT
trap 'exit 130' INT TERM
while [ "$busy" -gt 0 ]; do
    sh -c 'while kill -0 "$1" 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done' busy $$ &
    pids="$pids $!"
    busy=$((busy - 1))
done

run=1
while [ "$run" -le "$runs" ]; do
    at=$(date +%s)
    result=passed
    cargo test --workspace --test it --locked --no-fail-fast -- "$@" >"$out/$run.txt" 2>&1 || result=FAILED
    echo "run $run of $runs: $result, $(($(date +%s) - at)) s"
    run=$((run + 1))
done

failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$out"/*.txt | sort | uniq -c | sort -rn)
if [ -n "$failed" ]; then
    printf 'failed, of %s runs:\n%s\n' "$runs" "$failed"
    exit 1
fi
if grep -L '^test result: ok' "$out"/*.txt | grep -q .; then
    printf 'error: a run ended without a result\n  try: the last lines of its file in %s\n' "$out" >&2
    exit 1
fi
echo "no test failed in $runs runs"

#!/bin/sh
# Runs the fuzz targets, one after another: scripts/fuzz.sh [SECONDS] [TARGET…]
# By default each runs for 60 s. Prints a line for each: executions, coverage, and what was found.
# Needs a nightly compiler, but not `cargo-fuzz`. What the fuzzer keeps is in fuzz/target/corpus, and
# inputs that it found are in fuzz/target/found. FUZZ_FLAGS are passed on to libFuzzer.
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
'' | *[!0-9]*) seconds=60 ;;
*)
    seconds=$1
    shift
    ;;
esac
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tprof-fuzz$')

triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
# The flags of `cargo fuzz build`: counters of edges and comparisons for libFuzzer, and AddressSanitizer.
instruments='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0'
RUSTFLAGS="$instruments -Zsanitizer=address -Cllvm-args=-sanitizer-coverage-stack-depth -Ccodegen-units=1" \
    cargo +nightly build --manifest-path fuzz/Cargo.toml --release --locked --target "$triple" \
    $(printf -- '--bin %s ' "$@")

# Most targets write small files.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_odr_violation=0}"
found_any=0
for name; do
    kept=fuzz/target/corpus/$name found=fuzz/target/found/$name log=fuzz/target/$name.log
    mkdir -p "$kept" "$found"
    seeds=fuzz/corpus/$name
    [ "$name" != import ] || seeds=crates/import/tests/corpus
    [ "$name" != flight_recorder ] || seeds=crates/import/tests/flight_recorder
    [ -d "$seeds" ] || seeds=
    status=0
    # shellcheck disable=SC2086 # without seeds there is no word, and flags are several
    "fuzz/target/$triple/release/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$found/" ${FUZZ_FLAGS:-} "$kept" $seeds >"$log" 2>&1 || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    result='nothing found'
    if [ $status -ne 0 ]; then
        found_any=1
        result="FOUND something: $log, $found"
    fi
    echo "$name: ${executions:-?} executions in $seconds s, ${coverage:-?} edges covered, $result"
done
exit $found_any

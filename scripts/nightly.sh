#!/bin/sh
# The checks that take too long for every change: models, Miri, and a minute of each fuzz target. Runs
# all of them even if some fail, and lists the results at the end.
#
#     scripts/nightly.sh             # 60 s of each fuzz target
#     scripts/nightly.sh SECONDS
#
# Needs what scripts/miri.sh and scripts/fuzz.sh need.
set -u
cd "$(dirname "$0")/.."
results=
failed=0

check() {
    name=$1
    shift
    echo "== $name"
    began=$(date +%s)
    if "$@"; then
        result=ok
    else
        result=FAILED
        failed=1
    fi
    results="$results$name: $result, $(($(date +%s) - began)) s
"
}

check models scripts/loom.sh
for crate in $(sed -n 's/^run \([a-z]*\).*/\1/p' scripts/miri.sh); do
    check "Miri, $crate" scripts/miri.sh "$crate"
done
for target in $(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^tprof-fuzz$'); do
    check "fuzzing, $target" scripts/fuzz.sh "${1:-60}" "$target"
done
echo "== results"
printf %s "$results"
exit $failed

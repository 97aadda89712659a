#!/bin/sh
# The checks that take too long for every change: models, Miri, a minute of each fuzz target, what the linked crates
# are, the oldest Rust, and everything that is published, installed in clean roots. Runs all of them even if some fail,
# and lists the results at the end.
#
#     scripts/nightly.sh             # 60 s of each fuzz target
#     scripts/nightly.sh SECONDS
#
# Needs what scripts/miri.sh, scripts/fuzz.sh and scripts/release/roots.sh need.
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
check crates scripts/deny.sh
check 'the oldest Rust' scripts/oldest-rust.sh
made=$(mktemp -d)
check release scripts/release.sh dist "$made"
check 'clean roots' scripts/release/roots.sh "$made"
rm -rf "$made"
echo "== results"
printf %s "$results"
exit $failed

#!/bin/sh
# Builds tprof and profiles a real Python program with it, end to end:
# examples/clicks.py, which grows. The run is left in
# target/clicks.
#
#   scripts/demo.sh               the program as it is
#   scripts/demo.sh --keep id     its arguments: here, with the growth repaired
set -eu
cd "$(dirname "$0")/.."
command -v python3 >/dev/null 2>&1 || {
    printf 'error: there is no python3\n  try: apt-get install python3, as root\n' >&2
    exit 1
}
scripts/setup.sh

# The interpreter itself: python3 may be a version manager's shell script, whose
# own processes would be recorded as well.
python=$(python3 -c 'import sys; print(sys.executable)')
target=${CARGO_TARGET_DIR:-target}
tprof=$target/release/tprof
"$tprof" run --output "$target/clicks" --force -- "$python" examples/clicks.py "$@"
"$tprof" report memory "$target/clicks" --top 3

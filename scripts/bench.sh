#!/bin/sh
# Measures the cost of tprof beside a native run, a floor (the least that a recorder can
# cost) and heaptrack, and compares it with its targets. Takes about ten minutes; see
# docs/overhead.md.
#
#   scripts/bench.sh [--quick] [--json FILE] [--only NAME]... [--write-docs] [--tprof PATH]
#                    [--torch-python PATH]
#
# Builds the release binary first, unless --tprof names one.
set -eu
here=$(dirname "$0")

case " $* " in
*' --tprof'* | *' --help '* | *' -h '*) ;;
*) (cd "$here/.." && cargo build --release --locked --quiet) ;;
esac
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/bench/bench.py" "$@"

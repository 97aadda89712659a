#!/bin/sh
# Measures what tprof costs, beside native, a floor and heaptrack, and compares
# it with what it should cost. About ten minutes; see docs/overhead.md.
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

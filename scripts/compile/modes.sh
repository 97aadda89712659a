#!/bin/sh
# A training command under each mode of torch.compile, one process and one run each, for `tprof compare`.
# The program reads the mode: torch.compile(model, mode=os.environ["TORCH_COMPILE_MODE"]), or none for `eager`.
#
#   scripts/compile/modes.sh DIR COMMAND…        runs DIR/eager, DIR/default, DIR/reduce-overhead, DIR/max-autotune
#   MODES='default max-autotune' scripts/compile/modes.sh DIR COMMAND…
set -eu
[ $# -ge 2 ] || { echo 'usage: scripts/compile/modes.sh DIR COMMAND…' >&2; exit 2; }
dir=$1
shift
set -- "${TPROF:-tprof}" run -q --operators names --compile -- "$@"
runs=
for mode in ${MODES:-eager default reduce-overhead max-autotune}; do
    TPROF_OUTPUT=$dir/$mode TORCH_COMPILE_MODE=$mode "$@"
    runs="$runs $dir/$mode"
done
# shellcheck disable=SC2086  # several runs
exec "$1" compare $runs

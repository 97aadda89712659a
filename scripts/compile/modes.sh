#!/bin/sh
# Runs a training command under each mode of torch.compile, with one process and one run for each, for `tprof
# compare`. The program reads the mode: torch.compile(model, mode=os.environ["TORCH_COMPILE_MODE"]). For `eager` it
# doesn't compile.
#
#   scripts/compile/modes.sh DIR COMMAND…        runs DIR/eager, DIR/default, DIR/reduce-overhead, DIR/max-autotune
#   MODES='default max-autotune' scripts/compile/modes.sh DIR COMMAND…
set -eu
[ $# -ge 2 ] || { echo 'usage: scripts/compile/modes.sh DIR COMMAND…' >&2; exit 2; }
dir=$1 tprof=${TPROF:-tprof} modes=${MODES:-eager default reduce-overhead max-autotune}
shift
for mode in $modes; do
    # A run next to an older one would get another name, and the older one would be compared.
    [ ! -e "$dir/$mode" ] || { echo "$dir/$mode exists: remove it, or name another directory" >&2; exit 2; }
done
for mode in $modes; do
    TPROF_OUTPUT=$dir/$mode TORCH_COMPILE_MODE=$mode "$tprof" run -q --operators names --compile -- "$@"
done
set --
for mode in $modes; do
    set -- "$@" "$dir/$mode"
done
exec "$tprof" compare "$@"

#!/bin/sh
# A job that torch.compile compiles, with breaks and recompilations that are known, under `tprof run --compile`: the
# report must have exactly these, of the job's own lines; a job with TORCH_TRACE of its own keeps it; and a second run
# finds in PyTorch's caches what the first one compiled.
# By hand: it installs PyTorch (1.5 GB) once for each version, into a cache, and Inductor needs g++.
#
#   scripts/compile-check.sh [TPROF] [VERSION…]      versions of PyTorch; default: 2.15.0
#   KEEP_LOGS=DIR scripts/compile-check.sh …         also copies the logs, compressed, as the tests store them
set -eu
cd "$(dirname "$0")/.."
tprof=$(realpath "${1:-target/release/tprof}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 2.15.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tprof-compile
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp scripts/compile/job.py "$work/job.py"
failed=

for version in "$@"; do
    echo "== PyTorch $version"
    scripts/compile/install.sh "$cache/$version" "$version"
    site=$("$cache/$version/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    LD_LIBRARY_PATH=$(find "$site/nvidia" -name lib -type d 2>/dev/null | tr '\n' ':')
    TORCHINDUCTOR_CACHE_DIR=$work/cache-$version
    export LD_LIBRARY_PATH TORCHINDUCTOR_CACHE_DIR
    job="$cache/$version/bin/python $work/job.py 4"
    # shellcheck disable=SC2086  # several words
    "$tprof" run -q --compile --operators names --mem off -o "$work/cold-$version" -- $job 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    # shellcheck disable=SC2086
    TORCH_TRACE=$work/own-$version "$tprof" run -q --compile --mem off -o "$work/warm-$version" -- $job 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    for run in cold warm; do
        "$tprof" report compile "$work/$run-$version" --json >"$work/$run.json"
        python3 scripts/compile/judge.py "$run" "$work/job.py" "$work/$run.json" || failed="$failed $version:$run"
    done
    "$tprof" report steps "$work/cold-$version" --json >"$work/steps.json"
    python3 scripts/compile/judge.py steps "$work/job.py" "$work/steps.json" || failed="$failed $version:steps"
    [ -n "$(find "$work/own-$version" -name '*.log')" ] || failed="$failed $version:own"
    if [ -n "${KEEP_LOGS:-}" ]; then
        log=$(find "$work/own-$version" -name '*.log' | head -n 1)
        zstd -q -19 --long=27 -f "$log" -o "$KEEP_LOGS/torch-${version%.*}.log.zst"
    fi
done
[ -z "$failed" ] || { echo "wrong:$failed" >&2; exit 1; }

#!/bin/sh
# Runs a job with known graph breaks and recompilations of torch.compile under `tprof run --compile`. The report must
# have exactly these, at the job's own lines. If the job sets TORCH_TRACE itself, tprof must leave it alone. A second
# run must find in PyTorch's caches what the first one compiled.
# It installs PyTorch (1.5 GB) once for each version, into a cache; Inductor needs g++.
#
#   scripts/compile-check.sh [TPROF] [VERSION…]      versions of PyTorch; default: 2.15.0
#   scripts/compile-check.sh --if-possible [TPROF]   the default; prints that it skips where PyTorch is not there, and
#                                                    in CI cannot be installed in five minutes, or where the job does
#                                                    not run without tprof either
#   scripts/compile-check.sh --install               only installs the default version
#   KEEP_LOGS=DIR scripts/compile-check.sh …         also copies the logs, compressed, as the tests store them
set -eu
cd "$(dirname "$0")/.."
newest=2.15.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tprof-compile
[ "${1:-}" != --install ] || exec scripts/compile/install.sh "$cache/$newest" "$newest"
if_possible=
[ "${1:-}" != --if-possible ] || { if_possible=1; shift; }
tprof=$(realpath "${1:-target/release/tprof}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- $newest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp scripts/compile/job.py "$work/job.py"
failed=

# Only for --if-possible: whether a version is installed, or can be installed.
is_there() {
    [ -e "$cache/$1/ok" ] && return
    [ -n "${CI:-}" ] && timeout 300 scripts/compile/install.sh "$cache/$1" "$1"
}

if [ -n "$if_possible" ] && ! is_there "$1"; then
    echo "skipped: there is no PyTorch $1 (scripts/compile-check.sh installs it)"
    exit 0
fi
for version in "$@"; do
    echo "== PyTorch $version"
    scripts/compile/install.sh "$cache/$version" "$version"
    site=$("$cache/$version/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    LD_LIBRARY_PATH=$(find "$site/nvidia" -name lib -type d 2>/dev/null | tr '\n' ':')
    TORCHINDUCTOR_CACHE_DIR=$work/cache-$version
    export LD_LIBRARY_PATH TORCHINDUCTOR_CACHE_DIR
    job="$cache/$version/bin/python $work/job.py 4"
    # shellcheck disable=SC2086  # several words
    if ! timeout 300 "$tprof" run -q --compile --operators names --mem off -o "$work/cold-$version" -- $job 2>"$work/errors"; then
        # Whether it is tprof's fault. The job takes half a minute, so this is asked only now.
        if [ -n "$if_possible" ] && ! TORCHINDUCTOR_CACHE_DIR=$work/alone timeout 300 $job >"$work/alone.log" 2>&1; then
            echo "skipped: the job does not run here without tprof either: $(tail -n 1 "$work/alone.log")"
            exit 0
        fi
        cat "$work/errors" >&2
        exit 1
    fi
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

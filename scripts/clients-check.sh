#!/bin/sh
# NVIDIA's cupti-python, a second client of CUPTI, on the stand-ins for CUDA: what it records must be the same
# with tprof and without, and tprof must record all.
# By hand, with network: it downloads 45 MB once, and needs Python 3.10 with pip, and gcc.
#
#   scripts/clients-check.sh [TPROF]      a built program; else `cargo build -p tprof` makes one
#
# CLIENTS_CACHE names the cache (~/.cache/tprof/clients).
set -eu
cd "$(dirname "$0")/.."
version=13.4.0
cache=${CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/clients}/$version
[ $# -gt 0 ] || cargo build --quiet -p tprof
tprof=${1:-target/debug/tprof}
if [ ! -d "$cache" ]; then
    mkdir -p "$(dirname "$cache")"
    # Without CUPTI itself, for which the stand-in is there.
    python3 -m pip install --quiet --no-deps --target "$cache.new" "cupti-python==$version" \
        cuda-bindings==13.5.0 cuda-pathfinder==1.9.0 pyelftools==0.33 numpy
    mv "$cache.new" "$cache"
fi
sh tests/fake-cuda/build.sh "$PWD/target/stand-ins"
stand_ins=$PWD/target/stand-ins/13
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -shared -fPIC -O1 -o "$work/work.so" scripts/kineto/work.c "$stand_ins/libcudart.so.13"

# job NAME WORD…: runs the job, by way of these words.
job() {
    name=$1
    shift
    mkdir "$work/log-$name"
    PYTHONPATH=$cache LD_LIBRARY_PATH=$stand_ins FAKE_CUDA_LOG=$work/log-$name \
        "$@" python3 scripts/clients/cupti_python.py "$work/work.so" >"$work/out-$name" 2>"$work/err-$name" ||
        { cat "$work/err-$name"; exit 1; }
    ! grep -h '"complaint"' "$work/log-$name"/*
}
for faults in '' lost late; do
    rm -rf "$work"/*-without "$work"/*-beside
    export FAKE_CUPTI_FAULTS="$faults"
    job without env
    job beside "$tprof" run --quiet --activities gpu -o "$work/run-beside" --
    diff "$work/out-without" "$work/out-beside"
    grep -q "'CONCURRENT_KERNEL', 5.*, 0 at wrong times" "$work/out-beside" || { cat "$work/out-beside"; exit 1; }
    ran=$(cat "$work"/log-beside/* | grep -c '"what":"kernel"')
    recorded=$("$tprof" report kernels --json "$work/run-beside" |
        python3 -c 'import json, sys; print(sum(k["count"] for k in json.load(sys.stdin)["tables"]["kernels"] if k["class"] == "compute"))')
    [ "$recorded" = "$ran" ] || { echo "tprof recorded $recorded of $ran kernels"; exit 1; }
    echo "cupti-python $version, stand-ins ${faults:+($faults) }of CUDA 13: the same $(grep -c session "$work/out-beside") sessions, and $ran kernels"
done

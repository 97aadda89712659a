#!/bin/sh
# Runs real Kineto (PyTorch's own binary with CUDA, from PyPI) on the stand-ins for CUDA.
# torch.profiler must record the same with tprof and without, and tprof must record everything.
# Run it by hand, with a network: it downloads 540 MB once, and needs Python 3 with pip, gcc and 2 GB
# of disk.
#
#   scripts/kineto-check.sh [TPROF]      a built program; else `cargo build -p tprof-cli` makes one
#
# KINETO_CACHE names the cache (~/.cache/tprof/kineto), TORCH the version (2.15.0).
set -eu
cd "$(dirname "$0")/.."
version=${TORCH:-2.15.0}
cache=$(sh scripts/kineto/fetch.sh)
[ $# -gt 0 ] || cargo build --quiet -p tprof-cli
tprof=${1:-target/debug/tprof}
needed=$(readelf -dW "$cache/torch/lib/libtorch_cpu.so" | sed -n 's/.*\[libcupti\.so\.\(1[23]\)\].*/\1/p')
sh tests/fake-cuda/build.sh "$PWD/target/stand-ins"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stand_ins=$PWD/target/stand-ins/$needed
python3 scripts/kineto/stubs.py "$cache/torch/lib" "$stand_ins" "$work/stubs"
gcc -shared -fPIC -O1 -o "$work/work.so" scripts/kineto/work.c "$stand_ins/libcudart.so.$needed"

# job NAME WORD…: runs the job under the command that the words name.
job() {
    name=$1
    shift
    mkdir "$work/log-$name"
    PYTHONPATH=$cache LD_LIBRARY_PATH=$work/stubs:$stand_ins FAKE_CUDA_LOG=$work/log-$name \
        "$@" python3 scripts/kineto/job.py "$work/work.so" "$work/traces-$name" \
        >"$work/out-$name" 2>"$work/err-$name" || { cat "$work/err-$name"; exit 1; }
    grep '^trace-' "$work/out-$name" >"$work/result-$name"
    ! grep -h '"complaint"' "$work/log-$name"/*
}
for faults in '' orphans lost late; do
    rm -rf "$work"/*-without "$work"/*-beside "$work/all-beside.json"
    export FAKE_CUPTI_FAULTS="$faults"
    job without env
    job beside "$tprof" run --quiet --activities gpu -o "$work/run-beside" --
    diff "$work/result-without" "$work/result-beside"
    ran=$(cat "$work"/log-beside/* | grep -c '"what":"kernel"')
    # Exports all kernels, because a report only has those of the steps.
    "$tprof" export "$work/run-beside" --to json -o "$work/all-beside.json" >/dev/null
    recorded=$(python3 -c 'import json, sys; print(sum(len(rank["tables"]["kernels"]["rows"]) for rank in json.load(open(sys.argv[1]))["ranks"]))' \
        "$work/all-beside.json")
    [ "$recorded" = "$ran" ] || { echo "tprof recorded $recorded of $ran kernels"; exit 1; }
    echo "torch $version, stand-ins ${faults:+($faults) }of CUDA $needed: the same $(wc -l <"$work/result-without") traces, and $ran kernels"
done

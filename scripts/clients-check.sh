#!/bin/sh
# Tests the released binaries of other clients of CUPTI, on the stand-ins for CUDA: NVIDIA's cupti-python, and Triton's
# Proton. Each must record the same with tprof and without, and tprof must record everything.
# Run it by hand, with a network: it downloads 45 and 250 MB once, and needs Python 3.10 to 3.14 with pip, and gcc.
#
#   scripts/clients-check.sh [TPROF]      a built program; else `cargo build -p tprof-cli` makes one
#
# CLIENTS_CACHE names the cache (~/.cache/tprof/clients).
set -eu
cd "$(dirname "$0")/.."
cupti_python=13.4.0 triton=3.9.0
cache=${CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/clients}
[ $# -gt 0 ] || cargo build --quiet -p tprof-cli
tprof=${1:-target/debug/tprof}
mkdir -p "$cache"
if [ ! -d "$cache/$cupti_python" ]; then
    # `--no-deps` leaves out CUPTI itself, because the stand-in takes its place.
    python3 -m pip install --quiet --no-deps --target "$cache/$cupti_python.new" "cupti-python==$cupti_python" \
        cuda-bindings==13.5.0 cuda-pathfinder==1.9.0 pyelftools==0.33 numpy
    mv "$cache/$cupti_python.new" "$cache/$cupti_python"
fi
if [ ! -d "$cache/proton-$triton" ]; then
    # Only Proton's library is kept, because the rest of Triton takes half a gigabyte.
    new=$cache/proton-$triton.new
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$new" "triton==$triton"
    python3 -c 'import sys, zipfile
folder, wheel = sys.argv[1:]
with zipfile.ZipFile(wheel) as file, open(f"{folder}/libproton.so", "wb") as library:
    library.write(file.read("triton/_C/libproton.so"))' "$new" "$new"/*.whl
    rm "$new"/*.whl
    mv "$new" "$cache/proton-$triton"
fi
sh tests/fake-cuda/build.sh "$PWD/target/stand-ins"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# job NAME WORD…: runs the client under the command that the words name.
job() {
    name=$1
    shift
    rm -rf "$work/log-$name" "$work/out"
    mkdir "$work/log-$name" "$work/out"
    PYTHONPATH=$library LD_LIBRARY_PATH=$stand_ins FAKE_CUDA_LOG=$work/log-$name TRITON_CUPTI_LIB_PATH=$work \
        "$@" python3 "scripts/clients/$client.py" "$work/work.so" "$work/out" >"$work/out-$name" 2>"$work/err-$name" ||
        { cat "$work/err-$name"; exit 1; }
    ! grep -h '"complaint"' "$work/log-$name"/*
}

# check CLIENT MAJOR LIBRARY WANTED MISSING: checks a client from the folder LIBRARY on the stand-ins for CUDA MAJOR. Its
# output must contain WANTED, and tprof may miss up to MISSING kernels.
check() {
    client=$1 major=$2 library=$3 wanted=$4 missing=$5
    stand_ins=$PWD/target/stand-ins/$major
    gcc -shared -fPIC -O1 -o "$work/work.so" scripts/kineto/work.c "$stand_ins/libcudart.so.$major"
    ln -sf "$stand_ins/libcupti.so.$major" "$work/libcupti.so"
    for faults in '' lost late; do
        export FAKE_CUPTI_FAULTS="$faults"
        job without env
        rm -rf "$work/run"
        job beside "$tprof" run --quiet --activities gpu -o "$work/run" --
        diff "$work/out-without" "$work/out-beside"
        grep -q "$wanted" "$work/out-beside" || { cat "$work/out-beside"; exit 1; }
        ran=$(cat "$work"/log-beside/* | grep -c '"what":"kernel"')
        recorded=$("$tprof" report kernels --json "$work/run" |
            python3 -c 'import json, sys; print(sum(k["count"] for k in json.load(sys.stdin)["tables"]["kernels"] if k["class"] == "compute"))')
        [ "$recorded" -le "$ran" ] && [ "$recorded" -ge $((ran - missing)) ] || { echo "tprof recorded $recorded of $ran kernels"; exit 1; }
        echo "$client, stand-ins ${faults:+($faults) }of CUDA $major: the same $(grep -c session "$work/out-beside") sessions, and $recorded of $ran kernels"
    done
}
check cupti_python 13 "$cache/$cupti_python" "'CONCURRENT_KERNEL', 5.*, 0 at wrong times" 0
# Proton detaches CUPTI after each of its sessions, so the two kernels that follow fall into a gap that the run names.
for major in 12 13; do
    check proton $major "$cache/proton-$triton" "'first', 0, \[('_Z4gemmPKfS0_Pfiii', 3, .*Pfiii', 5" 6
done

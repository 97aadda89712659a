#!/bin/sh
# Builds the programs of examples/rust-frameworks, each as its framework's users write it and with three lines of
# the crate `tprof`, runs both under tprof, and checks the content of the reports.
# Run it by hand, with a network: candle and burn have hundreds of crates, libtorch and ONNX Runtime come from
# PyPI (600 MB, once). It needs Python 3 with pip, g++ and 6 GB of disk, and takes an hour on two busy cores.
#
#   scripts/frameworks-check.sh [TPROF [FRAMEWORK…]]    a built program; else `cargo build --release -p tprof-cli`
#
# FRAMEWORKS_TARGET is their build directory (~/.cache/tprof/frameworks/target).
set -eu
cd "$(dirname "$0")/.."
root=$PWD
[ $# -gt 0 ] || cargo build --release --locked --quiet -p tprof-cli
tprof=$(realpath "${1:-target/release/tprof}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- candle burn tch ort
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tprof/frameworks
target=${FRAMEWORKS_TARGET:-$cache/target}
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# wheel DIR PACKAGE…: installs packages without their dependencies.
wheel() {
    [ -d "$1" ] && return
    folder=$1
    shift
    rm -rf "$folder.new"
    python3 -m pip install --quiet --no-deps --target "$folder.new" "$@"
    mv "$folder.new" "$folder"
}

# Installs the CPU part of PyTorch as LIBTORCH. PyTorch's wheel is for CUDA, and its CPU part needs two of CUDA's
# libraries.
libtorch() {
    torch=$(TORCH=2.13.0 sh scripts/kineto/fetch.sh)/torch
    wheel "$cache/cuda" "nvidia-cuda-cupti==13.0.*" "nvidia-cuda-runtime==13.0.*"
    mkdir -p "$cache/libtorch/lib"
    ln -sfn "$torch/include" "$cache/libtorch/include"
    for library in libc10.so libtorch_cpu.so libgomp.so.1; do
        ln -sf "$torch/lib/$library" "$cache/libtorch/lib/"
    done
    ln -sf "$torch/lib/libtorch_cpu.so" "$cache/libtorch/lib/libtorch.so"
    ln -sf "$cache"/cuda/nvidia/cu13/lib/libcudart.so.* "$cache"/cuda/nvidia/cu13/lib/libcupti.so.* "$cache/libtorch/lib/"
    export LIBTORCH="$cache/libtorch" LD_LIBRARY_PATH="$cache/libtorch/lib"
}

onnxruntime() {
    wheel "$cache/onnxruntime" onnxruntime==1.32.0
    ORT_DYLIB_PATH=$(echo "$cache"/onnxruntime/onnxruntime/capi/libonnxruntime.so.*)
    export ORT_DYLIB_PATH
}

failed=
for framework; do
    [ "$framework" != tch ] || libtorch
    [ "$framework" != ort ] || onnxruntime
    for lines in without with; do
        features=
        [ $lines = without ] || features="--features spans"
        # shellcheck disable=SC2086 # two words, or none
        cargo build --release --locked --quiet --manifest-path "examples/rust-frameworks/$framework/Cargo.toml" \
            --target-dir "$target/$framework" $features
        cp "$target/$framework/release/$framework-example" "$work/$framework-$lines"
        "$tprof" run --mem exact -o "$work/$framework-$lines.run" -- "$work/$framework-$lines" >"$work/output" 2>&1 ||
            { cat "$work/output" >&2; exit 1; }
    done
    python3 scripts/frameworks/judge.py "$tprof" "$root/examples/rust-frameworks" "$framework" \
        "$work/$framework-without.run" "$work/$framework-with.run" || failed=1
done
[ -z "$failed" ]

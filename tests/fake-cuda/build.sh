#!/bin/sh
# Links the stand-ins for CUDA's libraries into DIR, under the real ones' names
# and with their symbol versions, and the programs that the tests run on them:
#   DIR/12/libcudart.so.12, DIR/13/libcudart.so.13, libcupti, libnccl, libcublas,
#     libcublasLt, libcuda, libnvidia-ml (no-gpm: without GPM; no-pm: CUPTI without PM sampling); major.o, for programs with libfake_cudart.a inside
#   DIR/train-12, DIR/train-13, DIR/comms-12, DIR/comms-13, DIR/hang-12, DIR/hang-13, DIR/gemms-12, DIR/gemms-13,
#   DIR/memory-12, DIR/memory-13, DIR/replay-12, DIR/replay-13, DIR/profiled-12, DIR/profiled-13, DIR/subscribed-12, DIR/subscribed-13
# `build.sh DIR`. A simulation: see src/lib.rs. Each file is moved into place when it is whole, because the tests of
# another process may be running it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out/12" "$out/13"
cargo build --quiet --release --locked -p tprof-fake-cuda --examples \
    --manifest-path "$here/Cargo.toml" --target-dir "$out/target"
libs=$out/target/release/examples
# What is linked already is older than this file.
made=$out/made
[ ! -e "$made" ] || [ -n "$(find "$here" "$libs" -type f ! -name "*.d" -newer "$made" | head -n 1)" ] || exit 0
touch "$made.$$"
system='-lpthread -ldl -lm -lrt -lgcc_s -lc'

# link FILE ARCHIVE MAJOR VERSION PATTERNS OTHER…: the archive as a shared library
# that exports PATTERNS alone.
link() {
    file=$1 archive=$2 major=$3 version=$4 patterns=$5
    shift 5
    work=$(mktemp -d "$out/link.XXXXXX")
    printf 'const int fake_major = %s;\n' "$major" >"$work/major.c"
    printf '%s { global: %s local: *; };\n' "$version" "$patterns" >"$work/map"
    gcc -shared -fPIC -o "$work/library" "$work/major.c" \
        -Wl,--whole-archive "$libs/$archive" -Wl,--no-whole-archive \
        -Wl,-soname,"$(basename "$file")" -Wl,--version-script="$work/map" -Wl,--gc-sections -Wl,--strip-debug \
        "$@" $system
    mv "$work/library" "$file"
    rm -r "$work"
}

# program FILE SOURCE…: compiles a program.
program() {
    file=$1
    shift
    gcc -O1 -g -Wall -Wextra -o "$file.$$" "$@"
    mv "$file.$$" "$file"
}

for major in 12 13; do
    to=$out/$major
    link "$to/libcuda.so.1" libfake_cuda.a "$major" '' 'cu*; tprof_fake_engine;'
    link "$to/libcudart.so.$major" libfake_cudart.a "$major" "libcudart.so.$major" 'cuda*; __cuda*;'
    link "$to/libcupti.so.$major" libfake_cupti.a "$major" "libcupti.so.$major" 'cupti*; tprof_fake_kinds;'
    # Defines the version for programs that link libfake_cudart.a.
    printf 'const int fake_major = %s;\n' "$major" | gcc -c -x c -o "$to/major.o.$$" - && mv "$to/major.o.$$" "$to/major.o"
    # As CUPTI before 12.6 has it: without PM sampling.
    mkdir -p "$out/no-pm"
    link "$out/no-pm/libcupti.so.$major" libfake_cupti.a "$major" "libcupti.so.$major" 'cupti[A-OQ-Z]*; tprof_fake_kinds;'
    link "$to/libnccl.so.2" libfake_nccl.a "$major" '' 'nccl*;' "$to/libcudart.so.$major"
    link "$to/libnvidia-ml.so.1" libfake_nvml.a "$major" '' 'nvml*;'
    # As drivers before R520 have it: without the functions `nvmlGpm…`.
    mkdir -p "$out/no-gpm"
    link "$out/no-gpm/libnvidia-ml.so.1" libfake_nvml.a "$major" '' 'nvml[A-FH-Z]*;'
    link "$to/libcublasLt.so.$major" libfake_cublaslt.a "$major" "libcublasLt.so.$major" 'cublasLt*;'
    link "$to/libcublas.so.$major" libfake_cublas.a "$major" "libcublas.so.$major" 'cublas*;' "$to/libcublasLt.so.$major"
    # A library that contains the runtime and exports none of its functions.
    link "$to/libworkspace.so" libfake_cudart.a "$major" '' 'workspace_*;' -O1 "$here/workspace.c"
    program "$out/memory-$major" "$here/memory.c" \
        "$to/libcudart.so.$major" "$to/libcuda.so.1" "$to/libworkspace.so" -lpthread -Wl,-rpath-link,"$to"
    program "$out/train-$major" -DMAJOR="$major" "$here/train.c" \
        "$to/libcudart.so.$major" "$to/libnccl.so.2" -lpthread -ldl -Wl,-rpath-link,"$to"
    program "$out/comms-$major" "$here/comms.c" \
        "$to/libcudart.so.$major" "$to/libnccl.so.2" -Wl,-rpath-link,"$to"
    program "$out/hang-$major" "$here/hang.c" \
        "$to/libcudart.so.$major" "$to/libnccl.so.2" -Wl,-rpath-link,"$to"
    program "$out/gemms-$major" "$here/gemms.c" \
        "$to/libcudart.so.$major" "$to/libcublas.so.$major" "$to/libcublasLt.so.$major" -Wl,-rpath-link,"$to"
    program "$out/replay-$major" "$here/replay.c" "$to/libcudart.so.$major" -ldl -Wl,-rpath-link,"$to"
    program "$out/profiled-$major" -rdynamic "$here/profiled.c" \
        "$to/libcudart.so.$major" "$to/libcupti.so.$major" -ldl -lpthread -Wl,-rpath-link,"$to"
    program "$out/subscribed-$major" "$here/subscribed.c" \
        "$to/libcudart.so.$major" "$to/libcupti.so.$major" -ldl -Wl,-rpath-link,"$to"
done
mv "$made.$$" "$made"

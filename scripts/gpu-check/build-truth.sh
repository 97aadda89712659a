#!/bin/sh
# Builds the programs that run on a GPU, with a known truth (truth.cu), and the floor, into DIR: `build-truth.sh DIR
# [NVCC]`.
#   truth-12          made by a C++ compiler; the driver makes the kernels from PTX; uses libcudart.so.12
#   truth-13, -static, -threads   made by nvcc 13: with libcudart.so.13, with the runtime inside, and
#                     with a default stream for each thread; only if NVCC is given
#   floor.so          measures the cost of CUPTI alone (floor.cpp); a library that the driver loads
# No program needs CUDA to be built: each is linked with a library that has only the names. `CXX` links; release.sh
# passes zig, which makes programs for old glibc. `TRUTH_ARCH` is the GPU architecture that nvcc compiles for, in place
# of all of them; `TRUTH_STATIC` names the runtime's files that -static contains.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1 nvcc=${2:-}
cxx=${CXX:-c++}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
system='-lpthread -ldl -lrt -lm'

# names OBJECT MAJOR: builds a library with the runtime's name that has the functions which the object needs.
names() {
    nm --undefined-only "$1" | awk '$2 ~ /^_?_?cuda/ { print "int " $2 "(void) { return 0; }" }' >"$work/names.c"
    cc -shared -fPIC -w -fno-builtin -o "$work/libcudart.so.$2" "$work/names.c" -Wl,-soname,"libcudart.so.$2"
}

# Symbols are resolved at their first call, because some may be missing: -z lazy.
link() {
    # shellcheck disable=SC2086
    $cxx -o "$out/$1" "$2" $3 -Wl,-z,lazy $system
}

host='-O1 -g -fno-exceptions -fno-rtti'
# shellcheck disable=SC2086
$cxx $host -std=c++17 -Wall -Wextra -x c++ -c "$here/truth.cu" -o "$work/12.o"
$cxx -O1 -fno-exceptions -fno-rtti -std=c++17 -Wall -Wextra -shared -fPIC -o "$out/floor.so" "$here/floor.cpp" $system
names "$work/12.o" 12
link truth-12 "$work/12.o" "$work/libcudart.so.12"

[ -n "$nvcc" ] || exit 0
lib=$(dirname "$nvcc")/../lib
compile() {
    to=$1
    shift
    "$nvcc" -std=c++17 -O1 -arch="${TRUTH_ARCH:-all-major}" -Xcompiler -fno-exceptions "$@" -c "$here/truth.cu" -o "$work/$to"
}
compile 13.o
names "$work/13.o" 13
link truth-13 "$work/13.o" "$work/libcudart.so.13"
link truth-13-static "$work/13.o" "${TRUTH_STATIC:-$lib/libcudart_static.a}"
compile threads.o -DPER_THREAD --default-stream per-thread
names "$work/threads.o" 13
link truth-13-threads "$work/threads.o" "$work/libcudart.so.13"

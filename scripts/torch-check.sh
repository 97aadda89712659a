#!/bin/sh
# Runs the PyTorch programs of scripts/gpu-check, in real PyTorch with CUDA from PyPI, on the stand-ins for CUDA.
# They must run to their end under tprof, and the judge must find everything that tprof should record. Nothing is
# computed, so the results of forked workers are not judged; torch.compile needs a device, and is left out. Run
# it by hand, with a network: it downloads 540 MB once, and needs Python 3 with pip, gcc and 2 GB of disk, and
# scripts/test-cuda.sh for the runtime's header.
#
#   scripts/torch-check.sh [TPROF]      a built program; else `cargo build -p tprof-cli` makes one
#
# KINETO_CACHE names the cache, which scripts/kineto-check.sh shares.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
[ $# -gt 0 ] || cargo build --quiet -p tprof-cli
tprof=$(realpath "${1:-target/debug/tprof}")
cache=$(sh scripts/kineto/fetch.sh)
python3 -c 'import numpy' 2>/dev/null || PYTHONPATH=$cache python3 -c 'import numpy' 2>/dev/null ||
    python3 -m pip install --quiet --target "$cache" numpy
include=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}/cuda/nvidia/cu13/include
[ -d "$include" ] || { echo "error: there is no $include; scripts/test-cuda.sh makes it" >&2; exit 1; }
sh tests/fake-cuda/build.sh "$root/target/stand-ins"
stand_ins=$root/target/stand-ins
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 scripts/kineto/stubs.py "$cache/torch/lib" "$stand_ins/13" "$work/libs"
# whole NAME ARCHIVE SOURCE: builds a stand-in that also has the functions that PyTorch looks up in that library.
whole() {
    gcc -shared -fPIC -w -o "$work/libs/$1" "$work/libs/$3" -Wl,--whole-archive \
        "$stand_ins/target/release/examples/$2" -Wl,--no-whole-archive -Wl,-soname,"$1" -lpthread -ldl -lm -lrt -lgcc_s -lc
}
whole libcuda.so.1 libfake_cuda.a cuda.c
whole libnvidia-ml.so.1 libfake_nvml.a nvml.c
gcc -shared -fPIC -O1 -Wall -Wextra -Wno-unused-parameter -fvisibility=hidden -I "$include" \
    -o "$work/device.so" scripts/kineto/device.c
cat >"$work/python" <<END
#!/bin/sh
PYTHONPATH=$cache LD_PRELOAD=\${LD_PRELOAD:+\$LD_PRELOAD:}$work/device.so \\
    LD_LIBRARY_PATH=$work/libs:$stand_ins/13\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec $(command -v python3) "\$@"
END
chmod +x "$work/python"
cd "$work"
"$root/scripts/gpu-check.sh" --quick --after 2 --python "$work/python" --tprof "$tprof" --cuda "$stand_ins/13" \
    --torch-modes plain,graph,streams --out "$work/out" || { cp "$work"/gpu-check-*.tar.gz "$root/target"; exit 1; }

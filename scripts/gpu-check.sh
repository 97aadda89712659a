#!/bin/sh
# What no stand-in can prove: tprof beside torch.profiler on a machine with an NVIDIA
# GPU. Needs the built binary and a Python with torch, and less than five minutes.
#
#   scripts/gpu-check.sh [-t TPROF] [-p PYTHON] [-o DIR] [-d cuda|cpu]
#
# Writes DIR/gpu-check.json (to be committed under docs/gpu/ with the device's name) and
# DIR/raw.cupti, CUPTI's own buffers of two steps. `-d cpu` runs what it can without a
# GPU, to see that the parts work; no check of a device can pass there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tprof=$here/../target/release/tprof python=python3 out=gpu-check device=cuda
while getopts t:p:o:d: option; do
    case $option in
    t) tprof=$OPTARG ;;
    p) python=$OPTARG ;;
    o) out=$OPTARG ;;
    d) device=$OPTARG ;;
    *)
        sed -n '5p' "$0" >&2
        exit 2
        ;;
    esac
done
[ -x "$tprof" ] || {
    printf 'error: there is no tprof at %s\n  try: scripts/setup.sh, or -t PATH\n' "$tprof" >&2
    exit 1
}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# Needs neither Python nor torch: a program in Rust runs a kernel on each device, recorded.
if [ "$device" = cuda ]; then
    printf '== one kernel on each device\n' >&2
    "$tprof" doctor --run-kernel --json >"$out/run-kernel.json" ||
        printf '== failed: see %s\n' "$out/run-kernel.json" >&2
fi
"$python" -c 'import torch' 2>/dev/null || {
    printf 'error: %s has no torch\n  try: -p with the Python of a venv that has it\n' "$python" >&2
    exit 1
}
if [ "$device" = cuda ] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    printf 'error: torch sees no GPU here\n  try: nvidia-smi; or -d cpu, which proves little\n' >&2
    exit 1
fi
train() { "$python" "$here/gpu-check/train.py" --device "$device" --steps $steps "$@"; }
traced() {
    run=$1
    shift
    "$tprof" run --quiet --force -o "$out/$run" -- \
        "$python" "$here/gpu-check/train.py" --device "$device" --steps $steps "$@"
}
report() { "$tprof" report kernels "$out/$1" --json >"$out/$2" || rm -f "$out/$2"; }
# What one part finds no way to do must not hide what the others find.
step() {
    printf '== %s\n' "$1" >&2
    shift
    "$@" || printf '== failed: %s\n' "$*" >&2
}

modes=plain,graph,streams,compile steps=30
[ "$device" = cuda ] || modes=plain steps=2
doctor() { "$tprof" doctor --json >"$out/doctor.json"; }
step doctor doctor
for mode in $(echo "$modes" | tr , ' '); do
    step "$mode, alone" train --mode "$mode" --out "$out/native-$mode.json"
    step "$mode, under tprof" traced "run-$mode" --mode "$mode" --out "$out/traced-$mode.json"
    step "$mode, report" report "run-$mode" "kernels-$mode.json"
done
step 'torch.profiler, alone' train --out "$out/with-profiler.json" --profiler "$out/profiler.json"
step 'torch.profiler, under tprof' traced run-profiler --out "$out/within.json" \
    --profiler "$out/profiler-within.json"
# It ends by SIGKILL, as it should.
traced run-killed --out "$out/killed.json" --kill || true
step 'killed, report' report run-killed kernels-killed.json
rm -f "$out/raw.cupti"
step 'raw buffers' env TPROF_CUPTI_RECORD="$out/raw.cupti" \
    "$tprof" run --quiet --force -o "$out/run-raw" -- \
    "$python" "$here/gpu-check/train.py" --device "$device" --steps 2 --out "$out/raw.json"
exec "$python" "$here/gpu-check/judge.py" "$out" "$modes"

#!/bin/sh
# Builds tprof and profiles a program with it, end to end:
#
#   scripts/demo.sh               examples/clicks.py, a real Python program, which grows
#   scripts/demo.sh --keep id     with arguments of the program: here it doesn't grow
#   scripts/demo.sh --gpu         two ranks on simulated GPUs, for a look at GPU reports without a GPU
#
# The run is left in target/clicks, or in target/simulated-gpu.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# A first look needs neither a web server nor much speed, which together take three quarters of the build. Where tprof
# was built for use, that is brought up to date and used.
if [ -e "$target/release/tprof" ]; then
    tprof=$target/release/tprof
    if [ -e "$target/release/tprof-serve" ]; then set_up=; else set_up=--no-default-features; fi
else
    tprof=$target/demo/tprof
    set_up='--profile demo --no-default-features'
fi

build() {
    # shellcheck disable=SC2086 # several words
    scripts/setup.sh $set_up
}

# Runs on stand-ins for CUDA's libraries, which the tests also use: streams are threads, kernels take time, and
# copies copy. tprof records what the stand-ins did.
simulated() {
    build
    sh tests/fake-cuda/build.sh "$PWD/$target/stand-ins" >&2
    home=$PWD/$target/stand-ins
    simulation='SIMULATION: stand-ins for CUDA and NCCL ran this, not a GPU.'
    meeting=$(mktemp -u)
    echo "$simulation"
    # shellcheck disable=SC2016 # for the inner shell
    LD_LIBRARY_PATH=$home/13 FAKE_CUDA_DEVICES=2 FAKE_CUDA_BLOCK_NS=20000 \
        MEETING=$meeting WORLD_SIZE=2 \
        "$tprof" run --output "$target/simulated-gpu" --force -- sh -c '
            RANK=0 "$1" 60 nccl overlap & RANK=1 "$1" 60 nccl overlap; wait' sh "$home/train-13"
    rm -f "$meeting" "$meeting.part"
    for kind in summary kernels gpu memcpy comm; do
        printf '\n%s\n' "$simulation"
        "$tprof" report $kind "$target/simulated-gpu"
    done
    printf '\n%s\n' "$simulation"
    echo "Look at it: $tprof export $target/simulated-gpu --to timeline"
}

if [ "${1:-}" = --gpu ]; then
    simulated
    exit
fi
command -v python3 >/dev/null 2>&1 || {
    printf 'error: there is no python3\n  try: apt-get install python3, as root\n' >&2
    exit 1
}
if [ -x "$tprof" ]; then
    echo 'demo: brings tprof up to date (seconds, or minutes after a change), then records a program for 8 seconds.'
else
    echo 'demo: builds tprof (4 minutes of CPU time, once: 2 minutes with two cores), then records a program for 8 seconds.'
fi
build

# The interpreter itself: python3 may be a version manager's shell script, whose own processes would be recorded as
# well.
python=$(python3 -c 'import sys; print(sys.executable)')
printf '\n$ %s run -o %s --stacks python -- python3 examples/clicks.py %s\n' "$tprof" "$target/clicks" "$*"
"$tprof" run --output "$target/clicks" --force --stacks python -- "$python" examples/clicks.py "$@"
printf '\n$ %s findings %s\n' "$tprof" "$target/clicks"
"$tprof" report findings "$target/clicks" --top 1 | sed '/^Note: no steps/,$d'
case $tprof in /*) path=$tprof ;; *) path=$PWD/$tprof ;; esac
cat <<END
More of it: $tprof report memory $target/clicks --top 3
            $tprof open $target/clicks --as flame
Without the fault: scripts/demo.sh --keep id

The line to remember, for a program of yours:
  $path run -- COMMAND
END
case $tprof in
*/demo/tprof) printf "\nThat one was built for a quick look. To use tprof, build the fast one with scripts/setup.sh: target/release/tprof\n" ;;
esac

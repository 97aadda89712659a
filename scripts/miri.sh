#!/bin/sh
# Runs the unit tests that need no system call and no assembly under Miri, which notices undefined
# behaviour. Needs `rustup +nightly component add miri`.
#
#     scripts/miri.sh            # all of them
#     scripts/miri.sh inject     # one crate
#
# Left out:
# - tprof-inject: tests that run code in assembly (threads' blocks, counters, CRC instructions of
#   `python`) or make raw system calls (everything that maps memory, `filter`, `testing::Attached`),
#   or that ask the loader (`loaded`, `callee`, `real`).
# - tprof-ring: the one that reads 2,000 made-up regions.
# - tprof-trace: tests that write files with zstd, which is C, that make calls that Miri lacks, or
#   that take more than a minute each (`long…` and `each_flipped_bit…`).
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/miri
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
# The stacks that are walked are addresses as numbers.
export MIRIFLAGS="$MIRIFLAGS -Zmiri-permissive-provenance"

run() {
    crate=$1
    shift
    case "${only:-$crate}" in "$crate") ;; *) return 0 ;; esac
    echo "== $crate"
    cargo +nightly miri test -p "tprof-$crate" --lib -- "$@"
}

only=${1:-}
run cfi
run wire
run ring --skip whatever_the_chunks_contain
run inject array_bytes:: call_args:: gemm:: path:: interned::tests::texts heap_sampling::tests::logarithm \
    unloading:: unwind::frames:: unwind::rows::tests::a_generation unwind::shape:: \
    unwind::short_row:: environment:: sampled_blocks::tests::the_two_filter
run agent gpu::client_clock:: gpu::decode:: gpu::kinds:: gpu::places:: gpu::wants:: nccl::handle:: \
    nccl::layout:: nccl::mask:: nccl::plugin:: nccl::operation:: nvtx::event::
run trace calls:: compile_log::dates:: compile_log::graph:: compile_log::graph_break:: \
    compile_log::json:: compile_log::line:: compile_log::metrics:: compile_log::nodes:: \
    compile_log::numbers:: compile_log::payload:: compile_log::stacks:: kernel_name:: run::

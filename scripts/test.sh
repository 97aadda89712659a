#!/bin/sh
# Runs all tests on a fresh machine; `scripts/test.sh gate` runs those that one runs before a commit. It installs what
# they need if it may (root and apt). Otherwise it prints what is missing, and tests that miss it print so and pass,
# except in CI. It also installs the tools that must be able to read exports. Then it checks everything.
set -eu
cd "$(dirname "$0")/.."
scripts/test-deps.sh mpi ${CI:+spark}
# Spark and PyTorch are a minute of download each, so this runs in the background. The steps that use them wait for it,
# or fetch them again and report the error.
if [ -n "${CI:-}" ]; then
    scripts/cluster/fetch.sh >/dev/null 2>&1 &
    scripts/compile-check.sh --install >/dev/null 2>&1 &
fi
# Tools that read tprof's exports. Here their absence is a failure, not a skip.
scripts/test-readers.sh
# Tools that compile CUDA programs.
scripts/test-cuda.sh
export TPROF_TEST_NEED_READERS=1
# The oldest Rust and the other platforms of the library for Rust programs. Its check prints what it skips without them.
if [ -n "${CI:-}" ] && command -v rustup >/dev/null 2>&1; then
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' crates/sdk/Cargo.toml)
    timeout 120 rustup toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1 || true
    timeout 120 rustup target add aarch64-unknown-linux-gnu x86_64-pc-windows-gnu \
        wasm32-unknown-unknown x86_64-unknown-linux-musl >/dev/null 2>&1 || true
fi
# In continuous integration all other tools are installed, too, so a test that does not run
# because a tool is missing is a failure. tests/src/skip.rs lists what a machine may refuse
# nevertheless.
[ -z "${CI:-}" ] || export TPROF_TEST_SKIP=forbid
exec scripts/check.sh "$@"

#!/bin/sh
# Compiles tprof and its libraries with the oldest Rust that Cargo.toml declares, if rustup has or can fetch it. Without
# it, clippy's `incompatible_msrv` (scripts/check.sh lints) still finds what the standard library of that Rust lacks,
# but not what its compiler lacks.
set -eu
cd "$(dirname "$0")/.."
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
timeout 300 rustup toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1 || true
toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\(${oldest}[.0-9]*\)-.*/\1/p" | head -n 1)
if [ -z "$toolchain" ]; then
    echo "skipped: Rust $oldest is not installed (rustup toolchain install $oldest)"
    exit
fi
cargo "+$toolchain" check --quiet --locked --workspace --target-dir "${CARGO_TARGET_DIR:-target}/oldest-rust"
echo "compiles with Rust $toolchain"

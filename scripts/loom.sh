#!/bin/sh
# Runs the models of the injected code (crates/inject/src/models): `loom` runs each scenario once for
# every order in which its threads can access their memory.
#
#     scripts/loom.sh            # all of them
#     scripts/loom.sh gate       # those of one module
set -eu
cd "$(dirname "$0")/.."
# Builds with this flag are kept apart, since it is a flag of every crate.
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" cargo test --manifest-path models/Cargo.toml --locked --lib \
    --target-dir "${CARGO_TARGET_DIR:-target}/loom" -- "models::${1:-}" --nocapture --test-threads 1

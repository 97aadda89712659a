#!/bin/sh
# Checks the published library for Rust programs: with each of its features, with the oldest Rust that it supports, and
# for machines on which it does nothing.
#
#   scripts/sdk-check.sh      prints what it skips: rustup toolchain install 1.74, rustup target add
#                             aarch64-unknown-linux-gnu x86_64-unknown-linux-musl; cargo install cargo-semver-checks
#
# SDK_BASELINE is the revision whose interface it must be compatible with (the newest tag v…).
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' crates/sdk/Cargo.toml)
export RUSTFLAGS="${RUSTFLAGS:-} -D warnings"

for features in '' macros tracing metrics off off,macros,tracing,metrics; do
    cargo clippy --quiet --locked -p tprof --features "$features" -- -D warnings
done
# The example's tests are left out, because with `off` there is nothing that they could assert on.
cargo test --quiet --locked -p tprof --all-features --lib --test heap >/dev/null
cargo test --quiet --locked -p tprof --all-features --doc >/dev/null

# The example's assertions on the heap of the whole process hold if tprof records it.
if [ -x "$target/release/tprof" ]; then
    cargo test --quiet --locked -p tprof --example training --no-run
    runs=$(mktemp -d)
    "$target/release/tprof" run -o "$runs/tested" -- \
        cargo test --quiet --locked -p tprof --example training >"$runs/printed" 2>&1 || { cat "$runs/printed" >&2; exit 1; }
    "$target/release/tprof" report spans --csv "$runs/tested" | grep -q tensors
    rm -rf "$runs"
else
    echo "skipped: tprof is not built (cargo build --release -p tprof-cli)"
fi

# Collect all files that would be published.
published=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
print(*sorted(each["name"] for each in json.load(sys.stdin)["packages"] if each["publish"] != []))')
[ "$published" = "tprof tprof-macros" ] || { echo "error: $published would be published" >&2; exit 1; }
cargo package --quiet --locked --allow-dirty -p tprof-macros -p tprof
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for crate in tprof tprof-macros; do
    mkdir "$work/$crate"
    tar -xzf "$(ls -t "$target/package/$crate"-[0-9]*.crate | head -n 1)" -C "$work/$crate" --strip-components 1
    rm -f "$work/$crate/Cargo.lock"
done
# Build the crate as in a user's workspace, with the macros next to it.
cat >"$work/Cargo.toml" <<END
[workspace]
members = ["tprof", "tprof-macros"]
resolver = "2"
[patch.crates-io]
tprof-macros = { path = "tprof-macros" }
END

toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\($oldest[.0-9]*\)-.*/\1/p" | head -n 1)
if [ -z "$toolchain" ]; then
    echo "skipped: Rust $oldest is not installed (rustup toolchain install $oldest)"
else
    (cd "$work" && for features in '' off macros; do
        cargo "+$toolchain" check --quiet -p tprof --features "$features"
    done)
    echo "builds with Rust $toolchain"
fi

# Statically linked with musl, the crate builds and the program behaves the same. The run says why it has no data.
musl=x86_64-unknown-linux-musl
installed=$(rustup target list --installed 2>/dev/null || true)
case "$installed" in
*"$musl"*)
    cargo build --quiet --locked -p tprof --example operations --target "$musl"
    cp "$target/$musl/debug/examples/operations" "$work/static"
    "$work/static" >"$work/without"
    grep -q 'recorded: false' "$work/without"
    if [ -x "$target/release/tprof" ]; then
        "$target/release/tprof" run -o "$work/static.run" -- "$work/static" 2>"$work/printed" | cmp - "$work/without"
        grep -q static "$work/static.run/run.json" || { cat "$work/printed" >&2; exit 1; }
    fi
    echo "builds and runs for $musl" ;;
*) echo "skipped: $musl is not installed (rustup target add $musl)" ;;
esac
for other in aarch64-unknown-linux-gnu x86_64-pc-windows-gnu wasm32-unknown-unknown; do
    case "$installed" in
    *"$other"*) cargo check --quiet --locked -p tprof --features macros --target "$other" && echo "builds for $other" ;;
    *) echo "skipped: $other is not installed (rustup target add $other)" ;;
    esac
done

baseline=${SDK_BASELINE:-$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null || true)}
if ! cargo semver-checks --version >/dev/null 2>&1; then
    echo "skipped: cargo-semver-checks is not installed (cargo install cargo-semver-checks)"
elif [ -z "$baseline" ]; then
    echo "skipped: no release to be compatible with (SDK_BASELINE=REVISION names one)"
else
    cargo semver-checks -p tprof --baseline-rev "$baseline"
fi

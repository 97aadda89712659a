#!/bin/sh
# Builds tprof: target/release/tprof (or under $CARGO_TARGET_DIR), one file that contains the injected
# libraries, and tprof-serve beside it. Arguments go to `cargo build`: `--no-default-features` leaves out tprof-serve,
# `--profile demo` builds a slower target/demo/tprof in a third of the time.
# Needs a Rust toolchain, a C compiler and linker (for zstd), and nothing else.
# As root, with apt, it installs the compiler where there is none; otherwise it
# prints what is missing.
set -eu
cd "$(dirname "$0")/.."

oldest=1.89 # `rust-version` in Cargo.toml

fail() {
    printf 'error: %s\n  try: %s\n' "$1" "$2" >&2
    exit 1
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "tprof runs on x86-64 Linux, this is $(uname -s) on $(uname -m)" "another machine"

if ! command -v cc >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
    else
        fail "there is no C compiler (cc)" "apt-get install gcc libc6-dev, as root"
    fi
fi

# A toolchain that rustup installed but this shell does not know yet.
if ! command -v cargo >/dev/null 2>&1 && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
fi
command -v cargo >/dev/null 2>&1 ||
    fail "there is no Rust toolchain (cargo)" "https://rustup.rs, or apt-get install rustup"

found=$(rustc --version | cut -d' ' -f2)
[ "$(printf '%s\n%s\n' "$oldest" "$found" | sort -V | head -n 1)" = "$oldest" ] ||
    fail "rustc is $found, tprof needs $oldest or newer" "rustup update stable"

case " $* " in
*' --profile '*) ;;
*) set -- --release "$@" ;;
esac
cargo build --locked -p tprof-cli "$@"

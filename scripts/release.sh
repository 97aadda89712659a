#!/bin/sh
# Builds the tprof that is given away: one file that starts on every x86-64 Linux with
# glibc 2.17 (of 2012) or newer, whatever the building machine has. Prints its path.
# `scripts/release.sh check FILE` examines a binary that was built otherwise;
# `scripts/release.sh wheel DIR` also packs it: a wheel and a source distribution in DIR.
#
# Zig's linker has the symbols of every glibc; cargo-zigbuild, pinned in release/tools.txt,
# hands it to cargo. They lie in a cache outside the checkout, and nothing of them goes into tprof
# but their unwinder, in place of libgcc_s. A static binary would not do: NVML and the CUDA
# driver are loaded while tprof runs, which a static C library does not permit.
set -eu
cd "$(dirname "$0")/.."
newest=2.17 # of glibc

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" >&2
    exit 1
}

# What a binary may need: glibc's own libraries, with symbols that old.
check() {
    LC_ALL=C readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
    [ -s "$work/needed" ] || fail "$1 needs no library: it is static, and cannot load NVML"
    foreign=$(grep -vxE 'lib(c|m|dl|rt|util|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2' "$work/needed" || true)
    [ -z "$foreign" ] || fail "$1 needs more than glibc:" "$foreign"
    nm -D --undefined-only "$1" | sed -n 's/.* \([^ ]*\)@\{1,2\}GLIBC_\(.*\)/\2 \1/p' |
        awk -v newest="$newest" '{ split($1, v, "."); split(newest, n, ".")
            if (v[1] > n[1] || v[1] == n[1] && v[2] + 0 > n[2] + 0) print "  " $2 " of glibc " $1 }' >"$work/new"
    [ ! -s "$work/new" ] || fail "$1 does not start on glibc $newest, for these symbols:" "$(cat "$work/new")"
    "$1" --version >/dev/null || fail "$1 does not start here"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1:-}" = check ]; then
    check "$2"
    exit
fi

# A directory of its own in the one that was named: that one may hold anything.
wanted=$(sha256sum scripts/release/tools.txt | cut -c1-16)
cache=${TPROF_RELEASE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-release}/tools-$wanted
if [ ! -e "$cache/.complete" ]; then
    rm -rf "$cache"
    mkdir -p "$(dirname "$cache")"
    python3 -m venv "$cache"
    "$cache/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r scripts/release/tools.txt
    touch "$cache/.complete"
fi

# A target directory of its own: the same target, and another linker.
target=${CARGO_TARGET_DIR:-target}/release-binary
PATH="$cache/bin:$PATH"
export PATH
python -m ziglang cc -target "x86_64-linux-gnu.$newest" -O2 -c scripts/release/newer.c -o "$work/newer.o"
# Flags of the last link only: with RUSTFLAGS all crates would be built again.
mkdir -p "$target"
cp "$work/newer.o" "$target/newer.o"
CARGO_TARGET_DIR=$target cargo-zigbuild rustc --release --locked -p tprof --bin tprof \
    --target "x86_64-unknown-linux-gnu.$newest" -- -C "link-arg=$(realpath "$target/newer.o")" >&2
built=$target/x86_64-unknown-linux-gnu/release
check "$built/tprof"
# The libraries inside are built by this machine's own linker.
for library in libtprof_preload.so libtprof_cupti.so; do
    newest_build=$(ls -t "$built"/build/tprof-*/out/"$library" | head -n 1)
    sh scripts/check-library.sh "$newest_build" >&2
done
if [ "${1:-}" = wheel ]; then
    mkdir -p "$2"
    into=$(realpath "$2")
    # The same build, by the same linker; then the module beside it.
    CARGO_TARGET_DIR=$target maturin build --release --locked --zig --target x86_64-unknown-linux-gnu \
        --compatibility "manylinux_${newest%%.*}_${newest#*.}" --out "$into" \
        -- -C "link-arg=$(realpath "$target/newer.o")" >&2
    maturin sdist --out "$into" >&2
    (cd "$into" && sha256sum tprof-*.whl tprof-*.tar.gz | tee SHA256SUMS)
    exit
fi
echo "$built/tprof"

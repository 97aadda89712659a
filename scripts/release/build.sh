#!/bin/sh
# Builds at the fixed path that scripts/release.sh has made: `build.sh TARGET DIR`. TARGET is the folder for build
# output. DIR gets all published files; it is empty if only the program is wanted.
#
# Zig's linker has the symbols of every glibc, and maturin makes cargo use it. tools.txt pins both. They are in a
# cache outside the checkout. Only their unwinder goes into tprof, in place of libgcc_s. The program for glibc is
# not static: it loads NVML and the CUDA driver while it runs, which a static C library does not permit. The one
# for musl is static, for images with another loader; its runs lack device counters, and say so.
set -eu
CARGO_TARGET_DIR=$1 into=$2
newest=2.17 # of glibc

# Use a separate directory within the given one, which may contain anything.
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
PATH="$cache/bin:$PATH"
# Keep paths of this machine out of the program.
RUSTFLAGS="--remap-path-prefix=$CARGO_HOME=/cargo --remap-path-prefix=$CARGO_TARGET_DIR=/target"
RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$(rustc --print sysroot)=/rust --remap-path-prefix=$PWD=/tprof"
export PATH RUSTFLAGS CARGO_TARGET_DIR

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m ziglang cc -target "x86_64-linux-gnu.$newest" -O2 -c scripts/release/newer.c -o "$work/newer.o"
# The object is at a fixed path, for the same reason. These flags are only for the last link: with RUSTFLAGS, all
# crates would be built again.
cp "$work/newer.o" "$CARGO_TARGET_DIR/newer.o"

# `wheel MANIFEST TARGET TAG FLAGS`: builds the program, and a wheel of it in $work/made.
wheel() {
    maturin build --release --locked --zig --manifest-path "$1" --target "$2" --compatibility "$3" \
        --out "$work/made" -- "$4" >&2
}
# `archive PROGRAM FILES`: makes an archive of a directory named after the program and its version.
archive() {
    name=$("$1" --version | tr ' ' -)-x86_64-linux-gnu
    shift
    mkdir -p "$work/$name"
    cp -r "$@" CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/$name"
    chmod -R u=rwX,go=rX "$work/$name"
    tar --create --directory "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -9n >"$work/made/$name.tar.gz"
}

gnu=x86_64-unknown-linux-gnu
glibc=manylinux_${newest%%.*}_${newest#*.}
wheel profiler-cli/Cargo.toml "$gnu" "$glibc" "-Clink-arg=$CARGO_TARGET_DIR/newer.o"
program=$CARGO_TARGET_DIR/$gnu/release/tprof
server=$CARGO_TARGET_DIR/$gnu/release/tprof-serve
sh scripts/release/check.sh "$program"
sh scripts/release/check.sh "$server"
# This machine's own linker links the injected libraries.
for library in libtprof_preload.so libtprof_cupti.so; do
    newest_build=$(ls -t "$CARGO_TARGET_DIR/$gnu"/release/build/tprof-cli-*/out/"$library" | head -n 1)
    sh scripts/check-library.sh "$newest_build" >&2
done
[ -n "$into" ] || exit 0

musl=x86_64-unknown-linux-musl
wheel profiler-cli/Cargo.toml "$musl" musllinux_1_2 -Ctarget-feature=+crt-static
for one in tprof tprof-serve; do
    sh scripts/release/check.sh "$CARGO_TARGET_DIR/$musl/release/$one" static
done
maturin sdist --out "$work/made" >&2

# The program of `tprof sql` is larger than everything else, so it has packages of its own. Its engine is for glibc
# only, whose allocator it is built for.
wheel sql/Cargo.toml "$gnu" "$glibc" "-Clink-arg=$CARGO_TARGET_DIR/newer.o"
sql=$CARGO_TARGET_DIR/$gnu/release/tprof-sql
sh scripts/release/check.sh "$sql"

mkdir -p "$work/man" "$work/completions"
"$program" man -o "$work/man" >/dev/null
for shell in bash zsh fish; do
    "$program" completions "$shell" >"$work/completions/tprof.$shell"
done
archive "$program" "$program" "$server" "$work/man" "$work/completions" README.md
archive "$sql" "$sql" sql/README.md

mkdir -p "$work/deb/DEBIAN" "$work/deb/usr/bin" "$work/deb/usr/share/man/man1" "$work/deb/usr/share/bash-completion/completions" \
    "$work/deb/usr/share/zsh/vendor-completions" "$work/deb/usr/share/fish/vendor_completions.d" "$work/deb-sql/usr/bin"
install -m 755 scripts/release/postrm "$work/deb/DEBIAN"
cp "$program" "$server" "$work/deb/usr/bin"
cp "$work"/man/*.1 "$work/deb/usr/share/man/man1"
gzip -9n "$work"/deb/usr/share/man/man1/*
cp "$work/completions/tprof.bash" "$work/deb/usr/share/bash-completion/completions/tprof"
cp "$work/completions/tprof.zsh" "$work/deb/usr/share/zsh/vendor-completions/_tprof"
cp "$work/completions/tprof.fish" "$work/deb/usr/share/fish/vendor_completions.d/tprof.fish"
sh scripts/release/deb.sh "$work/deb" tprof "libc6 (>= $newest)" 'profiler for machine-learning jobs' "$work/made"
cp "$sql" "$work/deb-sql/usr/bin"
sh scripts/release/deb.sh "$work/deb-sql" tprof-sql "libc6 (>= $newest), tprof" 'SQL over runs of tprof' "$work/made"
(cd "$work/made" && sha256sum -- * | tee SHA256SUMS)
cp "$work"/made/* "$into"

#!/bin/sh
# Builds the tprof that is published.
#
#     scripts/release.sh             a program for glibc 2.17 and newer; prints its path
#     scripts/release.sh dist DIR    all that is published: wheels for glibc and for musl, a source
#                                    distribution, an archive and a package for Debian of the program with its
#                                    man pages and completions; the same of tprof-sql, for glibc (25 minutes
#                                    of processor time); and checksums, in DIR
#     scripts/release.sh check FILE  examines a program that was built otherwise
# Two builds of one commit with one toolchain have the same bytes, whatever the folder. Names in the injected libraries
# contain a hash of the folder of their workspace (cargo's, for a crate outside of the workspace), and the names decide
# the order of the code. So the build sees the checkout at one fixed path, in a mount namespace of its own. If no
# namespace is permitted, a line on stderr says so.
set -eu
cd "$(dirname "$0")/.."
place=/mnt

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

case ${1:-} in
'') into= ;;
dist)
    [ -n "${2:-}" ] || fail "scripts/release.sh dist needs a directory"
    mkdir -p "$2"
    into=$(realpath "$2")
    command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb: install Debian's dpkg, which other distributions have too"
    # What is missing is found now, and not after half an hour.
    musl=x86_64-unknown-linux-musl
    [ -d "$(rustc --print target-libdir --target $musl)" ] || rustup target add $musl >&2 ||
        fail "there is no Rust standard library for musl"
    ;;
check) exec sh scripts/release/check.sh "${2:-}" ;;
*) fail "scripts/release.sh, scripts/release.sh dist DIR or scripts/release.sh check FILE" ;;
esac
root=$(pwd -P)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release-binary # of its own: another linker
CARGO_HOME=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")
# Time stamp of the archives. It makes them identical in each build.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export CARGO_HOME SOURCE_DATE_EPOCH
mkdir -p "$target"

# `$0` PLACE ROOT TARGET: mounts both folders below PLACE, visible only to this process and its children.
mounts='mount -t tmpfs tmpfs "$0" && mkdir "$0/source" "$0/target" &&
    mount --bind "$1" "$0/source" && mount --bind "$2" "$0/target"'
case " $root $into $target $CARGO_HOME" in
*" $place/"*) permitted= ;; # would be hidden
*) permitted=$(unshare --map-root-user --mount sh -c "$mounts && echo yes" "$place" "$root" "$target" 2>/dev/null || true) ;;
esac
if [ -n "$permitted" ]; then
    # shellcheck disable=SC2016 # the inner shell's words
    inner=$mounts' && cd "$0/source" && exec sh scripts/release/build.sh "$0/target" "$3"'
    unshare --map-root-user --mount sh -c "$inner" "$place" "$root" "$target" "$into"
else
    echo "mount namespaces are forbidden here: the bytes depend on the folder $root" >&2
    sh scripts/release/build.sh "$target" "$into"
fi
[ -n "$into" ] || echo "$target/x86_64-unknown-linux-gnu/release/tprof"

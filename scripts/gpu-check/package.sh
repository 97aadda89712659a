#!/bin/sh
# Packs everything that a stranger needs to check tprof on a GPU: `package.sh [-t TPROF] [-n
# NVCC] ARCHIVE`. Without -t, the binary is the one that release.sh builds, and the programs with
# a known truth start on an equally old glibc. NVCC is of CUDA 13; without it, the package has
# only the program for CUDA 12.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
tprof='' nvcc=''
while getopts t:n: option; do
    case $option in
    t) tprof=$OPTARG ;;
    n) nvcc=$OPTARG ;;
    *)
        sed -n 2p "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
archive=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$tprof" ]; then
    tprof=$("$root/scripts/release.sh")
    wanted=$(sha256sum "$root/scripts/release/tools.txt" | cut -c1-16)
    tools=${TPROF_RELEASE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-release}/tools-$wanted
    CXX="$tools/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.17 -Wno-unused-command-line-argument"
    export CXX
fi
name=tprof-gpu-check-$("$tprof" --version | awk '{ print $2 }')
to=$work/$name/scripts/gpu-check
mkdir -p "$to"
cp "$tprof" "$work/$name/tprof"
cp "$root/LICENSE-APACHE" "$root/LICENSE-MIT" "$work/$name"
cp "$root/docs/gpu-check.md" "$work/$name/README.md"
cp "$root/scripts/gpu-check.sh" "$work/$name/scripts"
(cd "$here" && tar -chf - --exclude='__pycache__' --exclude='test_*' --exclude='package.sh' .) | tar -xf - -C "$to"
"$here/build-truth.sh" "$to" "$nvcc"
tar -czf "$archive" -C "$work" --owner=0 --group=0 --numeric-owner "$name"
echo "$archive"

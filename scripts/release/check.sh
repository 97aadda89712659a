#!/bin/sh
# Checks a tprof that is to be published: `check.sh FILE` for a glibc build, `check.sh FILE static`
# for a musl build.
set -eu
newest=2.17 # of glibc

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" >&2
    exit 1
}

program=$1
[ -x "$program" ] || fail "there is no program $program"
needed=$(LC_ALL=C readelf -dW "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if [ "${2:-}" = static ]; then
    [ -z "$needed" ] || fail "$program is not static, it needs:" "$needed"
    ! LC_ALL=C readelf -lW "$program" | grep -q INTERP || fail "$program needs a loader: it is not static"
else
    # Only glibc's own libraries are permitted, with symbols that are old enough.
    [ -n "$needed" ] || fail "$program needs no library: it is static, and cannot load NVML"
    foreign=$(printf '%s\n' "$needed" | grep -vxE 'lib(c|m|dl|rt|util|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2' || true)
    [ -z "$foreign" ] || fail "$program needs more than glibc:" "$foreign"
    new=$(nm -D --undefined-only "$program" | sed -n 's/.* \([^ ]*\)@\{1,2\}GLIBC_\(.*\)/\2 \1/p' |
        awk -v newest="$newest" '{ split($1, v, "."); split(newest, n, ".")
            if (v[1] > n[1] || v[1] == n[1] && v[2] + 0 > n[2] + 0) print "  " $2 " of glibc " $1 }')
    [ -z "$new" ] || fail "$program does not start on glibc $newest, for these symbols:" "$new"
fi
"$program" --version >/dev/null || fail "$program does not start here"

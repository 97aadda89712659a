#!/bin/sh
# Checks that libtprof_preload.so and libtprof_cupti.so can be loaded into any process of a job, in any container, and
# don't disturb it: see docs/design.md.
# `scripts/check-library.sh FILE` checks that file; without FILE, it checks the
# libraries that tprof is built with.
set -eu
cd "$(dirname "$0")/.."
newest=2.17 # of glibc

fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" >&2
    exit 1
}

carried() {
    cargo build --release --locked --quiet -p tprof-cli --message-format json |
        python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line) if line.startswith("{") else {}
    package = message.get("package_id", "")
    if message.get("reason") == "build-script-executed" and "/profiler-cli#" in package:
        print(message["out_dir"])
'
}

if [ $# -eq 0 ]; then
    folder=$(carried)
    for each in libtprof_preload.so libtprof_cupti.so; do
        sh scripts/check-library.sh "$folder/$each"
    done
    exit
fi
library=$1
case $library in
*cupti*) exports=agent-symbols.txt more='__cxa_atexit' ;;
*) exports=exported-symbols.txt more= ;;
esac
[ -s "$library" ] || fail "the library was not built: $library"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C
export LC_ALL

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so.6 ] || fail "NEEDED must be libc.so.6 alone, and is: ${needed:-empty}"

# Only other libraries' symbols may be referenced by name: if the library referenced its own symbols by name, the
# loader would search for them and could find another preloaded library's.
own=$(readelf -rW "$library" | awk '$3 == "R_X86_64_64" { print $5 }')
[ -z "$own" ] || fail 'references by name to symbols of its own:' "$own"

# Undefined symbols with their versions: name, version.
nm -D --undefined-only "$library" | awk '{ sub("@+", " ", $NF); print $NF }' | sort >"$work/undefined"
too_new=$(awk 'NF == 2 { print $2 }' "$work/undefined" | sed -n 's/^GLIBC_//p' | sort -uV |
    awk -v newest="$newest" '{ split($1, v, "."); split(newest, n, ".")
        if (v[1] > n[1] || v[1] == n[1] && v[2] + 0 > n[2] + 0) print $1 }')
[ -z "$too_new" ] || fail "symbols newer than GLIBC_$newest:" \
    "$(for version in $too_new; do grep " GLIBC_$version\$" "$work/undefined"; done)"

# Weak symbols (the linker's own) may stay undefined. All others are functions of libc that neither allocate, nor lock,
# nor set errno, and its environment.
nm -D --undefined-only "$library" | awk '$1 == "U" { sub("@.*", "", $2); print $2 }' | sort >"$work/strong"
# shellcheck disable=SC2086
printf '%s\n' bcmp dl_iterate_phdr environ getauxval memcmp memcpy memmove memset strlen $more |
    sort >"$work/may"
unknown=$(comm -23 "$work/strong" "$work/may")
[ -z "$unknown" ] || fail "undefined symbols that are not on the list:" "$unknown"

nm -D --defined-only "$library" | awk '{ sub("@.*", "", $NF); print $NF }' | sort >"$work/exported"
sort "scripts/$exports" >"$work/hooks"
difference=$(diff "$work/hooks" "$work/exported" | sed -n 's/^</missing:/p; s/^>/not in scripts\/'"$exports"':/p')
[ -z "$difference" ] || fail "the exported symbols are not those that should be:" "$difference"

# The library has no handler for a panic. Callers of the panic functions show where one could come from.
objdump -d --no-show-raw-insn "$library" >"$work/code"
callers=$(awk '/^[0-9a-f]+ <.*>:$/ { name = $2 } /(call|jmp) .*<.*9panicking/ && name !~ /9panicking/ { print name }' \
    "$work/code" | sort | uniq -c)
if nm "$library" | grep -q '9panicking'; then
    fail "the library can panic, in:" "$callers"
fi

# A call to the loader for thread-local storage would cost more than a record.
! grep -q '__tls_get_addr' "$work/code" || fail "the library calls __tls_get_addr"

output=$(LD_PRELOAD=$library /bin/true 2>&1) || fail "/bin/true does not run with the library" "$output"
[ -z "$output" ] || fail "/bin/true prints something with the library:" "$output"

echo "$(basename "$library"): $(wc -l <"$work/exported" | tr -d ' ') symbols, $(wc -l <"$work/strong" | tr -d ' ') symbols of libc," \
    "$(stat -c %s "$library") bytes"

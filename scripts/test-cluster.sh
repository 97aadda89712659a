#!/bin/sh
# Tests the views of `tprof sql` on a real Spark cluster on loopback: a master, workers, a Spark Connect server.
# Prints a line for each fact, and fails if one does not hold. Steps (the first two if none is named):
#
#   views    every view has the same rows as on the embedded engine, for public traces and for synthetic ranks
#   kills    the same for a query in which executors are killed (-9), in scans and in shuffles, one and all
#   daft     the same for Daft on a Ray cluster of two workers
#   growth   CPU and wall seconds over ranks and executors
#   sizes    rows and bytes that each view reads and shuffles, for 1,024 ranks
#
#   scripts/test-cluster.sh [STEP…] [--ranks N] [--times N] [--executors N] [--few] [--plot FILE]
#   scripts/test-cluster.sh --small   what continuous integration runs: two executors, of which one is killed in a
#                                     scan and one in a shuffle; prints that it skips without Java or without Spark
#
# It downloads PySpark (434 MB, with Spark inside) once, and needs Java 17 or newer, Python 3.9
# to 3.13 with pip, 6 GB of memory (3 GB for --small) and 1 GB of disk, for `daft` also venv and 2 GB; no root. Two
# cores take some 15 minutes for `views` and `kills`. CLUSTER_CACHE names the cache (~/.cache/tprof/cluster).
# TPROF_TEST_BIN and TPROF_TEST_SQL are the tprof and tprof-sql that are tested and TPROF_TEST_MAKE a built
# make-traces; otherwise cargo builds them.
set -eu
cd "$(dirname "$0")/.."
daft=0.7.26 ray=2.60.0

fail() {
    printf 'error: %s\n  try: %s\n' "$1" "$2" >&2
    exit 1
}
skip() {
    [ "${TPROF_TEST_SKIP:-}" != forbid ] || fail "there is no $1, and TPROF_TEST_SKIP=forbid wants it" "$2"
    echo "skipped: there is no $1 ($2)"
    exit 0
}
java='openjdk-17-jre-headless or newer, by apt-get as root'
if [ "${1:-}" = --small ]; then
    scripts/cluster/java.sh || skip 'Java 17' "$java"
    [ -n "${CI:-}" ] || scripts/cluster/fetch.sh --there >/dev/null || skip Spark 'scripts/test-cluster.sh fetches it'
    shift
    set -- kills --executors 2 --times 1 --few "$@"
fi
scripts/cluster/java.sh || fail 'there is no Java 17 or newer (java)' "$java"
TPROF_TEST_SPARK=$(scripts/cluster/fetch.sh)
export TPROF_TEST_SPARK
case " $* " in
*' daft '*)
    python3 -c 'import ensurepip' 2>/dev/null || fail 'python3 has no venv' 'apt-get install python3-venv, as root'
    cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/cluster}
    if [ ! -e "$cache/daft-$daft/.done" ]; then
        echo "installing Daft $daft and Ray $ray"
        rm -rf "${cache:?}/daft-$daft" && python3 -m venv "$cache/daft-$daft"
        "$cache/daft-$daft/bin/pip" install --quiet --disable-pip-version-check "daft==$daft" "ray==$ray" pyarrow
        touch "$cache/daft-$daft/.done"
    fi
    export TPROF_TEST_DAFT="$cache/daft-$daft/bin/python"
    ;;
esac

target=${CARGO_TARGET_DIR:-$PWD/target}
if [ -z "${TPROF_TEST_BIN:-}" ]; then
    cargo build --quiet --release --locked -p tprof-cli
    export TPROF_TEST_BIN="$target/release/tprof"
fi
if [ -z "${TPROF_TEST_SQL:-}" ]; then
    cargo build --release --locked --manifest-path sql/Cargo.toml --target-dir "$target/sql"
    export TPROF_TEST_SQL="$target/sql/release/tprof-sql"
fi
if [ -z "${TPROF_TEST_MAKE:-}" ]; then
    cargo build --quiet --locked -p tprof-tests --bin make-traces
    export TPROF_TEST_MAKE="$target/debug/make-traces"
fi
exec python3 -B scripts/cluster/main.py "$@"

#!/bin/sh
# The views of `tprof sql` on a real Spark cluster on loopback: a master, workers, a Spark Connect server.
# Prints a line for each fact, and fails if one does not hold. Steps, the first two if none is named:
#
#   views    every view has the rows that the embedded engine has, of public traces and of synthetic ranks
#   kills    so has a query in which executors are killed (-9), in scans and in shuffles, one and all
#   daft     the same for Daft on a Ray cluster of two workers
#   growth   CPU and wall seconds over ranks and executors
#   sizes    rows and bytes that each view reads and shuffles, of 1,024 ranks
#
#   scripts/test-cluster.sh [STEP…] [--ranks N] [--times N] [--plot FILE]
#
# By hand, with network: it downloads PySpark (434 MB, with Spark inside) once, and needs Java 17 or 21, Python 3.9
# to 3.13 with pip and venv, 6 GB of memory and 3 GB of disk; no root. Two cores take some 15 minutes for `views` and
# `kills`. CLUSTER_CACHE names the cache (~/.cache/tprof/cluster). TPROF_TEST_BIN and TPROF_TEST_SQL
# are the tprof and tprof-sql that are tested and TPROF_TEST_MAKE a built make-traces; otherwise cargo builds them.
set -eu
cd "$(dirname "$0")/.."
pyspark=4.0.1 daft=0.7.26 ray=2.60.0

fail() {
    printf 'error: %s\n  try: %s\n' "$1" "$2" >&2
    exit 1
}
command -v java >/dev/null 2>&1 || fail 'there is no Java (java)' 'apt-get install openjdk-17-jre-headless, as root'
python3 -c 'import ensurepip' 2>/dev/null || fail 'python3 has no venv' 'apt-get install python3-venv, as root'

cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/cluster}
have() { # NAME PACKAGE…: a Python with these, in a directory of the cache.
    name=$1
    shift
    [ ! -e "$cache/$name/.done" ] || return 0
    echo "installing $*"
    rm -rf "${cache:?}/$name" && python3 -m venv "$cache/$name"
    "$cache/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
    touch "$cache/$name/.done"
}
have "pyspark-$pyspark" "pyspark==$pyspark"
case " $* " in
*' daft '*)
    have "daft-$daft" "daft==$daft" "ray==$ray" pyarrow
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
exec "$cache/pyspark-$pyspark/bin/python" -B scripts/cluster/main.py "$@"

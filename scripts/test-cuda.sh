#!/bin/sh
# Fetches NVIDIA's compiler and runtime for the tests with real CUDA programs, as pinned and checked
# wheels from PyPI, into the cache of scripts/test-readers.sh: 125 MB to download, 250 MB on disk. It
# also fetches headers of three CUDA versions, 45 MB. Nothing of this goes into tprof.
set -eu
cd "$(dirname "$0")"
here=$PWD

cache=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}
mkdir -p "$cache"
cd "$cache"

wanted=$(sha256sum "$here/test-cuda.txt" | cut -c1-16)
if [ ! -e "cuda/.$wanted" ]; then
    rm -rf cuda
    python3 -m pip install --quiet --root-user-action ignore --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --target cuda -r "$here/test-cuda.txt"
    # Remove libraries for compilers inside other programs, and add the name by which a linker finds
    # the runtime.
    rm -f cuda/nvidia/cu13/lib/libnvvm.so.4
    ln -s libcudart.so.13 cuda/nvidia/cu13/lib/libcudart.so
    touch "cuda/.$wanted"
fi

# Fetch the headers with which `scripts/check.sh signatures` compares hooks and records.
python3 -B "$here/cuda/signatures.py" cuda-headers --fetch

#!/bin/sh
# Fetches PyTorch with CUDA from PyPI, without CUDA's own libraries, into a cache, and prints its folder.
# KINETO_CACHE names the cache (~/.cache/tprof/kineto), TORCH the version (2.15.0).
set -eu
version=${TORCH:-2.15.0}
cache=${KINETO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof/kineto}/$version
mkdir -p "$cache"
if [ ! -d "$cache/torch" ]; then
    python3 -m pip install --quiet --no-deps --target "$cache/new" "torch==$version"
    python3 -m pip install --quiet --target "$cache/new" typing_extensions filelock sympy networkx jinja2
    mv "$cache"/new/* "$cache/"
fi
echo "$cache"

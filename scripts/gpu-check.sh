#!/bin/sh
# Checks tprof on a machine with an NVIDIA GPU: docs/gpu-check.md. `gpu-check.sh --help` lists options.
#
#   gpu-check.sh --bootstrap     fetches PyTorch from PyPI; takes at most 20 minutes
#   gpu-check.sh --python PATH   uses a Python that has torch
#
# Needs the package that gpu-check/package.sh makes (tprof, and programs with a known truth) and Python
# 3.9.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for python in ${GPU_CHECK_PYTHON:-} python3 python /opt/conda/bin/python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        exec "$python" "$here/gpu-check/main.py" "$@"
    fi
done
if command -v uv >/dev/null 2>&1; then
    exec uv run --quiet --no-project --python 3.12 python "$here/gpu-check/main.py" "$@"
fi
printf 'error: there is no Python 3.9 or newer\n  try: apt-get install python3, or GPU_CHECK_PYTHON=PATH\n' >&2
exit 1

#!/bin/sh
# Installs PyTorch from PyPI into DIR, without the CUDA libraries that a CPU does not use: empty ones replace them. A
# second call waits for the first.
#
#   scripts/compile/install.sh DIR VERSION
set -eu
dir=$1 version=$2
mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
[ ! -e "$dir/ok" ] || exit 0
here=$(dirname "$0")
case $version in
    2.1[1-9].*) runtime='nvidia-cuda-runtime nvidia-cuda-cupti' ;;
    2.[6-9].* | 2.10.*) runtime='nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-cupti-cu12==12.8.90' ;;
    *) runtime='nvidia-cuda-runtime-cu12==12.1.105 nvidia-cuda-cupti-cu12==12.1.105' ;;
esac
python3 -m venv "$dir"
# shellcheck disable=SC2086  # two packages
"$dir/bin/pip" install -q --no-cache-dir --no-deps "torch==$version" $runtime
"$dir/bin/pip" install -q --no-cache-dir sympy networkx jinja2 filelock fsspec typing_extensions numpy 'setuptools>=77.0.3'
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python3 "$here/stand_ins.py" "$site"
touch "$dir/ok"

#!/bin/sh
# Checks the Python module on several Pythons, with its types, tables and notebook magic. CI does not
# install these.
#
#     scripts/python-check.sh TPROF VENV PYTHON...
#
# VENV is a virtual environment with mypy, nbclient, ipykernel, pandas, polars and pyarrow.
set -eu
tprof=$(realpath "$1"); venv=$(realpath -s "$2"); shift 2
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PYTHONPATH="$PWD/python" PYTHONDONTWRITEBYTECODE=1 TPROF_BIN="$tprof"

for python in "$@"; do
    for program in core.py "measure.py measure" "profile.py $out/files"; do
        # shellcheck disable=SC2086 # a program with its arguments
        "$python" tests/programs/python_module/$program >"$out/native" 2>/dev/null
        # shellcheck disable=SC2086
        "$tprof" run -q --force -o "$out/run" -- "$python" tests/programs/python_module/$program >"$out/traced" 2>/dev/null
        cmp "$out/native" "$out/traced"
    done
    "$python" scripts/python/cost.py
    "$tprof" run -q --force -o "$out/run" -- "$python" scripts/python/cost.py
done

(cd python && "$venv/bin/mypy" --strict tprof)
"$tprof" run -q --force -o "$out/run" -- "$venv/bin/python" tests/programs/python_module/measure.py measure >/dev/null
"$venv/bin/python" -c '
import sys, tprof
run = tprof.load(sys.argv[1])
rows, columns = run.pandas("spans").shape
assert rows == 3 and run.polars("spans").shape == (rows, columns) == run.arrow("spans").shape, (rows, columns)
' "$out/run"
PATH="$venv/bin:$PATH" "$venv/bin/python" scripts/python/notebook.py "$tprof"

#!/bin/sh
# Records a job as a new user would, with the `tprof` in PATH: `record.sh JOB…`. Fails unless every process and its heap
# was recorded, and something was found. Runs in the clean roots of roots.sh, so it needs only a shell.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tprof run -o "$work/run" -- "$@" >"$work/summary" 2>&1 || { cat "$work/summary" >&2; exit 1; }
tprof report "$work/run" >"$work/report"
tprof report findings "$work/run" >"$work/findings"
tprof report findings --json "$work/run" >"$work/findings.json"
if ! grep -q 'heap peak [1-9].* MiB' "$work/summary" || ! grep -q '"blind": \[\]' "$work/findings.json" ||
    ! grep -q '^1\. ' "$work/findings"; then
    cat "$work/summary" "$work/report" "$work/findings" >&2
    exit 1
fi
cat "$work/summary"

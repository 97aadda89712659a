#!/bin/sh
# Tests tprof under real launchers: Open MPI, MPICH, a Slurm of three nodes on this host, torchrun,
# and other ways to start processes. Prints a line for each fact, and fails if one does not hold.
# `scripts/test-launchers.sh mpi` runs only the two MPIs; the groups are mpi, slurm, torchrun,
# processes and workers. A word that begins with / picks the facts whose names contain it.
#
# It installs nothing: `scripts/test-deps.sh launchers` does. Slurm needs root, because its nodes
# have namespaces of their own. TPROF_TEST_BIN is the tested tprof, by default target/release/tprof;
# TPROF_TEST_PYTHON is a Python with torch, by default python3; TPROF_TEST_WORKERS is one with the
# packages of launchers/workers.txt.
set -eu
cd "$(dirname "$0")/.."

bin=${TPROF_TEST_BIN:-${CARGO_TARGET_DIR:-target}/release/tprof}
[ -x "$bin" ] || {
    printf 'error: there is no %s\n  try: scripts/setup.sh\n' "$bin" >&2
    exit 1
}
root=$(mktemp -d /var/tmp/tprof-launchers.XXXXXX)
end() {
    ! mountpoint -q "$root" || umount -l "$root"
    [ -n "${TPROF_TEST_KEEP:-}" ] || rm -rf "$root"
}
trap end EXIT
trap 'exit 130' INT TERM
# Use a separate disk, as hosts share one: root's cache is on another disk.
[ "$(id -u)" -ne 0 ] || [ -n "${TPROF_TEST_KEEP:-}" ] || mount -t tmpfs -o mode=755 tmpfs "$root" || true
chmod 755 "$root"
# Copy tprof to a place where all nodes find it, because each has a /tmp of its own.
cp "$bin" "$root/tprof"
TPROF_TEST_BIN=$root/tprof
export TPROF_TEST_BIN TPROF_TEST_ROOT="$root" PYTHONDONTWRITEBYTECODE=1

build() {
    mkdir -p "$root/$1"
    "$2" -O1 -g -o "$root/$1/$4" "scripts/launchers/$3"
}
for mpi in openmpi mpich; do
    ! command -v "mpicc.$mpi" >/dev/null 2>&1 || build "$mpi" "mpicc.$mpi" ranks.c ranks
done
build plain cc task.c task

status=0
python3 scripts/launchers/main.py "$@" || status=$?
exit "$status"

#!/bin/sh
# Tests tprof under real launchers: Open MPI, MPICH, a Slurm of three nodes on this host, torchrun,
# and other ways to start processes. Prints a line for each test, and fails if a test fails.
# `scripts/test-launchers.sh mpi` runs only the group mpi (Open MPI and MPICH); the groups are mpi,
# slurm, torchrun, processes and workers. `scripts/test-launchers.sh /cache` runs only the tests
# whose names contain `cache`.
#
# `scripts/test-deps.sh launchers` installs the launchers. Slurm needs root, because its nodes run
# in namespaces of their own. TPROF_TEST_BIN is the tested tprof, by default target/release/tprof;
# TPROF_TEST_PYTHON is a Python with torch, by default python3; TPROF_TEST_WORKERS is a Python with
# the packages of scripts/launchers/workers.txt. If TPROF_TEST_KEEP is set, the files of the tests
# are kept.
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
# The nodes of a cluster share a file system, and root's cache of tprof's libraries (in /var/cache)
# isn't on it. If that is allowed, mount a tmpfs as the shared one, unless its files are to be kept.
[ "$(id -u)" -ne 0 ] || [ -n "${TPROF_TEST_KEEP:-}" ] || mount -t tmpfs -o mode=755 tmpfs "$root" || true
chmod 755 "$root"
# Copy tprof to the shared directory, because target/ may be below /tmp, which nodes don't share.
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

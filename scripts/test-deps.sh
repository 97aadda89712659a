#!/bin/sh
# Installs the packages that the tests need and this machine lacks: compilers for every kind
# of victim program, and the allocators that jobs use. Does nothing if all are installed.
# Without root, or without apt, it prints what is missing. Tests that miss something print so
# and pass, or fail with TPROF_TEST_SKIP=forbid. `scripts/test-deps.sh launchers` also
# installs what scripts/test-launchers.sh runs, except PyTorch and the packages of
# launchers/workers.txt; `mpi` installs the part of it that all tests need; `spark` installs
# what scripts/test-cluster.sh runs. Several of these words can be given.
set -eu

# package:command that succeeds if the package is installed
wanted='
gcc:command gcc
g++:command g++
gcc-multilib:32bit
musl-tools:command musl-gcc
libjemalloc-dev:library libjemalloc.a
libgoogle-perftools-dev:library libtcmalloc_minimal.a
python3:command /usr/bin/python3
chromium:browser
make:command make
util-linux:command unshare
gzip:command gzip
nodejs:command node
npm:command npm
python3-venv:module ensurepip
libpython3-dev:header Python.h
zsh:command zsh
fish:command fish
strace:command strace
git:command git
curl:command curl
sqlite3:command sqlite3
redis-server:command redis-server
'

# The two MPIs, which can be installed together. The rest of scripts/test-launchers.sh
# follows.
mpi='
openmpi-bin:command mpirun.openmpi
libopenmpi-dev:command mpicc.openmpi
mpich:command mpiexec.hydra
libmpich-dev:command mpicc.mpich
'
launchers='
slurm-wlm:command slurmctld
munge:command munged
bubblewrap:command bwrap
sudo:command sudo
screen:command screen
daemonize:command daemonize
'
# A package for each Java version: the newest one in the release is chosen once apt's list is
# there.
spark='
JAVA:java
'
for part in "$@"; do
    case $part in
    mpi) wanted=$wanted$mpi ;;
    launchers) wanted=$wanted$mpi$launchers ;;
    spark) wanted=$wanted$spark ;;
    esac
done

there() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    java) "${0%/*}/cluster/java.sh" ;;
    module) python3 -c "import $2" >/dev/null 2>&1 ;;
    header) ls /usr/include/python3*/"$2" >/dev/null 2>&1 ;;
    library) ls /usr/lib/*/"$2" >/dev/null 2>&1 ;;
    browser)
        for name in chromium chromium-browser google-chrome google-chrome-stable; do
            ! command -v "$name" >/dev/null 2>&1 || return 0
        done
        return 1
        ;;
    32bit) echo 'int main(void) { return 0; }' | gcc -m32 -x c -o /dev/null - >/dev/null 2>&1 ;;
    esac
}

java_package() {
    for version in 25 21 17; do
        if apt-cache show "openjdk-$version-jre-headless" >/dev/null 2>&1; then
            echo "openjdk-$version-jre-headless"
            return
        fi
    done
    echo default-jre-headless
}

missing=
old_ifs=$IFS
IFS='
'
for line in $wanted; do
    IFS=$old_ifs
    # shellcheck disable=SC2086
    there ${line#*:} || missing="$missing ${line%%:*}"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    case $missing in *JAVA*) missing="${missing%JAVA*}$(java_package)${missing#*JAVA}" ;; esac
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    case $missing in *JAVA*) missing="${missing%JAVA*}openjdk-17-jre-headless${missing#*JAVA}" ;; esac
    echo "tests want packages that are missing here:$missing" >&2
    echo "as root: apt-get install$missing" >&2
fi

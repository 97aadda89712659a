#!/bin/sh
# Installs what `scripts/release.sh dist DIR` made as a new user would, and records a job with it: `roots.sh DIR`, or
# `roots.sh DIR NAME` for one of these only ("Ubuntu 24.04").
#
# - Debian 11 and 13, Ubuntu 24.04: the wheel with pip, then the Debian package, which has to leave nothing behind;
# - a root with musl and without glibc, as Alpine's: the program in the wheel for musl;
# - no root: the source distribution, without git, with `cargo install`.
#
# Needs root, debootstrap and musl-tools. A distribution that cannot be had is skipped, with a line that says why.
set -eu
cd "$(dirname "$0")/../.."
made=$(realpath "$1")
only=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=

# `inside ROOT COMMAND…`: in namespaces of its own, so that neither mounts nor processes stay.
inside() {
    root=$1
    shift
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" \
        env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}

# `wanted NAME`
wanted() {
    [ -z "$only" ] || [ "$only" = "$1" ]
}

# `try NAME FUNCTION ROOT`
try() {
    wanted "$1" || return 0
    echo "== $1"
    # In a condition, `set -e` would have no effect within the function.
    set +e
    (
        set -e
        "$2" "$3"
    )
    status=$?
    set -e
    rm -rf "$3"
    [ $status -eq 0 ] || failed="$failed $1;"
}

in_debian() {
    cp -r "$made" "$1/dist"
    cp examples/clicks.py scripts/release/record.sh "$1/"
    inside "$1" sh -euc '
        python3 -m venv /venv
        /venv/bin/pip install --quiet --no-index --find-links /dist tprof
        PATH=/venv/bin:$PATH sh /record.sh /venv/bin/python3 /clicks.py
        rm -rf /venv /var/cache/tprof
        files() { find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -print | sort; }
        files >/tmp/before
        dpkg --install /dist/tprof_*.deb >/dev/null
        tprof --version
        for file in man/man1/tprof-run.1.gz bash-completion/completions/tprof zsh/vendor-completions/_tprof \
            fish/vendor_completions.d/tprof.fish; do
            test -s "/usr/share/$file" || { echo "there is no $file"; exit 1; }
        done
        sh /record.sh python3 /clicks.py
        dpkg --purge tprof >/dev/null
        files >/tmp/after
        diff /tmp/before /tmp/after'
}

# Debian has no package with the keys of Ubuntu's archive.
ubuntu_keys() {
    sum=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
    curl --silent --fail --max-time 60 --output "$work/keys.deb" \
        http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb &&
        echo "$sum  $work/keys.deb" | sha256sum --check --quiet && dpkg-deb --extract "$work/keys.deb" "$work/keys"
}

# `debian NAME SUITE MIRROR COMPONENTS SCRIPT KEYS`; debootstrap of Debian 12 has no script for new suites of Ubuntu.
debian() {
    wanted "$1" || return 0
    root=$work/$2
    if debootstrap --force-check-gpg --keyring="$6" --variant=minbase --include=python3,python3-venv --components="$4" \
        "$2" "$root" "$3" "$5" >"$work/log" 2>&1; then
        try "$1" in_debian "$root"
    else
        echo "skipped: $1 ($(tail -n 1 "$work/log"))"
        rm -rf "$root"
    fi
}

in_musl() {
    mkdir -p "$1/bin" "$1/tmp" "$1/proc" "$1/dev" "$work/wheel"
    for package in musl busybox-static; do
        (cd "$work" && apt-get download -qq "$package" && dpkg-deb --extract "$package"_*.deb "$1")
    done
    chroot "$1" /bin/busybox --install /bin
    python3 -m zipfile --extract "$made"/tprof-*-musllinux_*.whl "$work/wheel"
    install "$work"/wheel/tprof-*.data/scripts/tprof "$1/bin"
    musl-gcc -g -o "$1/grows" tests/programs/grows.c
    cp scripts/release/record.sh "$1/"
    inside "$1" sh /record.sh /grows 300
}

from_source() {
    mkdir "$1"
    tar --extract --gzip --directory "$1" --file "$made"/tprof-*[0-9].tar.gz
    (cd "$1" && cargo install --quiet --locked --path tprof-*/profiler-cli --root "$1/installed" --target-dir "$1/target")
    PATH=$1/installed/bin:$PATH sh scripts/release/record.sh python3 examples/clicks.py
}

debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
debian 'Debian 11' bullseye http://deb.debian.org/debian main bullseye $debian_keys
debian 'Debian 13' trixie http://deb.debian.org/debian main trixie $debian_keys
if wanted 'Ubuntu 24.04' && ubuntu_keys; then
    debian 'Ubuntu 24.04' noble http://archive.ubuntu.com/ubuntu main,universe gutsy \
        "$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
fi
[ -n "$only" ] || echo "skipped: Alpine itself; musl and busybox of Debian are its nearest relatives"
try musl in_musl "$work/musl"
try 'from source' from_source "$work/source"
[ -z "$failed" ] || { echo "error: these failed:$failed" >&2; exit 1; }

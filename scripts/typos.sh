#!/bin/sh
# Checks the spelling of every file that git keeps; `_typos.toml` lists the words that are spelled as intended.
# `typos` (MIT or Apache-2.0) comes from PyPI as a compiled program: a pinned wheel, in a cache outside the checkout.
set -eu
cd "$(dirname "$0")/.."
version=1.52.0
sha256=418fd85f7fc11dec14e5482e747f6e916af56da96207cde0cdd69540a4b389f6
cache=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}/typos-$version
if [ ! -x "$cache/bin/typos" ]; then
    mkdir -p "$cache"
    echo "typos==$version --hash=sha256:$sha256" >"$cache/wanted"
    python3 -m venv "$cache"
    "$cache/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r "$cache/wanted"
fi
exec "$cache/bin/typos" "$@"

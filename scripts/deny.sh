#!/bin/sh
# Checks licences, versions and sources of all crates that tprof, its libraries and tprof-sql link: deny.toml says what
# they may be. Also looks for known vulnerabilities, if their database on GitHub answers. The first run compiles
# `cargo deny` into a cache outside the checkout.
set -eu
cd "$(dirname "$0")/.."
version=0.20.2
cache=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}/cargo-deny-$version
[ -x "$cache/bin/cargo-deny" ] || cargo install --quiet --locked --debug cargo-deny --version $version --root "$cache"

checks='licenses sources'
if timeout 120 "$cache/bin/cargo-deny" fetch db >/dev/null 2>&1; then
    checks="$checks advisories"
else
    echo 'skipped: known vulnerabilities, because their database (github.com/rustsec/advisory-db) does not answer'
fi
failed=
for workspace in . preload-shim cupti-agent sql; do
    echo "== $workspace/Cargo.toml"
    bans=
    [ $workspace != . ] || bans=bans
    # shellcheck disable=SC2086 # several checks
    "$cache/bin/cargo-deny" --locked --config deny.toml --manifest-path "$workspace/Cargo.toml" \
        check $checks $bans ||
        failed="$failed $workspace/Cargo.toml"
done
[ -z "$failed" ] || { echo "error: crates of$failed are not as deny.toml wants them" >&2; exit 1; }

#!/bin/sh
# Everything that continuous integration runs, step by step. A step that fails doesn't hide what the others find: the last
# line lists all that failed. Only without a build nothing else is run. `scripts/check.sh STEP…` runs those steps alone;
# `scripts/check.sh gate` runs what one checks before a commit.
set -eu
cd "$(dirname "$0")/.."

gate='format spelling build lints injected unit-tests models process-tests'
steps='format spelling build lints fuzz injected signatures library sdk docs unit-tests models process-tests launchers compile sql pages cluster'
# The workspaces of the injected libraries. They are checked here, and built by tprof's build script.
injected='preload-shim cupti-agent'
target=${CARGO_TARGET_DIR:-$PWD/target}

format() {
    cargo fmt --all --check
    for library in $injected; do
        cargo fmt --manifest-path "$library/Cargo.toml" --check
    done
}

# Without a network this step is skipped, except in continuous integration.
spelling() {
    if [ -z "${CI:-}" ] && ! scripts/typos.sh --version >/dev/null 2>&1; then
        echo 'skipped: `typos` is not installed and cannot be fetched (scripts/typos.sh)'
        return
    fi
    scripts/typos.sh
}

# The binary that the later steps examine. Tests build in `dev` mode, but run this binary.
build() {
    cargo build --release --locked -p tprof-cli
}

lints() {
    cargo clippy --workspace --all-targets --locked -- -D warnings
    # As the first look is built: without `tprof serve` and `tprof top`.
    cargo clippy -p tprof-cli --no-default-features --locked -- -D warnings
    for library in $injected; do
        cargo clippy --manifest-path "$library/Cargo.toml" --target-dir "$target/injected" \
            --release --locked -- -D warnings
    done
}

# Checks the fuzz targets without linking them, so that libFuzzer is not compiled. Runs after `lints`, whose
# dependencies it shares. `scripts/fuzz.sh` runs the targets.
fuzz() {
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo clippy --manifest-path fuzz/Cargo.toml --target-dir "$target" --no-default-features --locked -- -D warnings
}

injected() {
    python3 scripts/check-injected.py
}

# Compares hooks and records with NVIDIA's headers, if scripts/test-cuda.sh has installed them.
signatures() {
    python3 -B scripts/cuda/test_signatures.py
    headers=${TPROF_TEST_READERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tprof-test-readers}/cuda-headers
    if [ -d "$headers" ] || [ -n "${TPROF_TEST_NEED_READERS:-}" ]; then
        python3 -B scripts/cuda/signatures.py "$headers"
    else
        echo "skipped: $headers is not there (scripts/test-cuda.sh)"
    fi
}

library() {
    sh scripts/check-library.sh
}

# Checks the crate for Rust programs, with each feature and the oldest supported Rust.
sdk() {
    sh scripts/sdk-check.sh
}

# Private items are documented too, for people who work on the code.
docs() {
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --locked --quiet
    python3 scripts/check-docs.py
}

# Tests that need no process under tprof.
unit_tests() {
    cargo test --workspace --exclude tprof-tests --locked --no-fail-fast
}

# Models of the injected code: under a minute, of which the models take ten seconds.
models() {
    scripts/loom.sh
}

# Builds the whole workspace, so that dependencies have the same features as in the unit tests, and are not compiled
# again. The tests wait half of their time, so there is one thread more than processors. With two threads for each
# processor, the collector of a test that samples often finds no processor in time. In continuous integration the engine
# of `sql` is compiled in the rest of the time, by processes that run only while a processor is idle.
process_tests() {
    case "${CI:+ $steps }" in
    *" sql "*) build_sql chrt --idle 0 >/dev/null 2>&1 & ;;
    esac
    TPROF_TEST_BIN=${TPROF_TEST_BIN:-$target/release/tprof} RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))} \
        cargo test --workspace --test it --locked
}

# Tests the two MPIs that can be installed side by side; a separate command tests all launchers.
launchers() {
    TPROF_TEST_BIN=${TPROF_TEST_BIN:-$target/release/tprof} scripts/test-launchers.sh mpi
}

# Tests the HTML pages in a real browser; skipped with a message if there is none. Runs after `sql`, and uses its
# build.
pages() {
    CARGO_TARGET_DIR=$target TPROF_TEST_BIN=${TPROF_TEST_BIN:-$target/release/tprof} \
        PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -s tests/pages
}

# Runs a real compilation by the newest PyTorch, if it is installed, as it is in CI.
compile() {
    scripts/compile-check.sh --if-possible "${TPROF_TEST_BIN:-$target/release/tprof}"
}

# Checks the optional `tprof-sql`, a workspace of its own, because its engine takes minutes to compile.
sql() {
    cargo fmt --manifest-path sql/Cargo.toml --check
    build_sql
    TPROF_TEST_BIN=${TPROF_TEST_BIN:-$target/release/tprof} \
        cargo test --manifest-path sql/Cargo.toml --target-dir "$target/sql" --locked
}

# The settings of `cargo clippy`, but with a build instead of a check, and tests of that build: a check would process the
# engine once more (five minutes of CPU time), and a build without clippy tprof-sql and its tests. The arguments are put in
# front of the command.
build_sql() {
    export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings
    "$@" cargo build --manifest-path sql/Cargo.toml --target-dir "$target/sql" --all-targets --locked
}

# Runs a Spark cluster of two executors, one of which is killed in a scan and in a shuffle.
cluster() {
    TPROF_TEST_BIN=${TPROF_TEST_BIN:-$target/release/tprof} TPROF_TEST_SQL=${TPROF_TEST_SQL:-$target/sql/debug/tprof-sql} \
        TPROF_TEST_MAKE=${TPROF_TEST_MAKE:-$target/debug/make-traces} scripts/test-cluster.sh --small
}

run_step() (
    set -e
    "$(echo "$step" | tr - _)"
)

all=$steps
# In continuous integration, what a failed step printed is printed again at the end.
logs=
if [ -n "${CI:-}" ]; then
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
fi
[ $# -eq 0 ] || steps=$*
[ "$steps" != gate ] || steps=$gate
began=$(date +%s)
failed=
for step in $steps; do
    case " $all " in
    *" $step "*) ;;
    *)
        echo "there is no step \`$step\`; the steps are: gate $all" >&2
        exit 2
        ;;
    esac
    echo "== $step"
    at=$(date +%s)
    # In a condition, `set -e` would have no effect within the step.
    set +e
    if [ -n "$logs" ]; then
        # A pipe to `tee` would stay open as long as a process that a test left behind.
        : >"$logs/$step"
        sleep 86400 &
        until_ended=$!
        tail -n +1 -f --pid=$until_ended "$logs/$step" &
        shown=$!
        run_step >"$logs/$step" 2>&1
        status=$?
        kill $until_ended
        wait $shown
    else
        run_step
        status=$?
    fi
    set -e
    if [ $status -eq 0 ]; then
        echo "== $step: ok, $(($(date +%s) - at)) s"
        continue
    fi
    echo "== $step: FAILED, $(($(date +%s) - at)) s" >&2
    failed="$failed $step"
    [ "$step" != build ] || break
done
if [ -n "$failed" ]; then
    # What a step printed about its failure may lie thousands of lines above.
    for step in ${logs:+$failed}; do
        echo "== what \`$step\` printed last"
        grep -A 6 -e ' panicked at ' -e '^error' "$logs/$step" | tail -n 60 || true
        tail -n 25 "$logs/$step"
    done
    echo "== failed:$failed" >&2
    exit 1
fi
echo "== all steps passed, $(($(date +%s) - began)) s"

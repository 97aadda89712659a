#!/bin/sh
# All tests, on a fresh machine: installs what they want where that is permitted
# (root and apt; else says what is missing, and tests that miss it say so and
# pass), and the tools that must be able to read exports, then checks everything.
set -eu
cd "$(dirname "$0")/.."
scripts/test-deps.sh
# Readers of what tprof exports. Here their absence is a failure, not a skip.
scripts/test-readers.sh
export TPROF_TEST_NEED_READERS=1
exec scripts/check.sh

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit tests under valgrind: reads of what was never written, reads and writes outside, memory that is lost.
# Without Check's fork (CK_FORK=no) a test that ends its process on purpose would end the program, so children are followed.
set -u
cd "$(dirname "$0")/.." || exit 2
command -v valgrind >/dev/null || scripts/setup.sh san || exit 2
export BUILD=${BUILD:-build} TEST_LIMIT=${TEST_LIMIT:-240} CK_TIMEOUT_MULTIPLIER=20 SIRCL_TEST_SEEDS=${SIRCL_TEST_SEEDS:-5}
export SIM_ARGS=${SIM_ARGS:---only d --seeds 20 --first-seed 1}
export RUNNER="valgrind -q --trace-children=yes --child-silent-after-fork=no --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --error-exitcode=99 --fair-sched=yes"
exec scripts/check.sh unit

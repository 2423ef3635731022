# SPDX-License-Identifier: Apache-2.0
# What check.sh runs in guests with IPv4 addresses beside the link-local ones.
# shellcheck shell=bash
. "$VM_TOP/tests/lab/vm/fabric.sh"
. "$VM_TOP/tests/lab/vm/collectives.sh"
for t in test_ports test_clocks test_permuted test_gids_idle test_gids_running test_packets test_perftest test_table; do timed $t; done

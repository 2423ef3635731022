# SPDX-License-Identifier: Apache-2.0
# What check.sh runs in guests without any IPv4 address.
# shellcheck shell=bash
. "$VM_TOP/tests/lab/vm/fabric.sh"
. "$VM_TOP/tests/lab/vm/collectives.sh"
for t in test_ports test_map test_rping test_cut test_tcp; do timed $t; done

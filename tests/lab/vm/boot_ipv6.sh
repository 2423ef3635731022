# SPDX-License-Identifier: Apache-2.0
# What check.sh runs in guests without any IPv4 address.
# shellcheck shell=bash
. "$VM_TOP/tests/lab/vm/fabric.sh"
. "$VM_TOP/tests/lab/vm/collectives.sh"
for t in test_ports test_clocks test_map test_rping test_cut test_tcp test_verbs test_same_bits test_lane_counters test_cut_under_traffic test_device_removed test_idle \
	test_mtu test_memlock; do timed $t; done

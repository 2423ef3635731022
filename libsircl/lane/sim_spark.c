// SPDX-License-Identifier: Apache-2.0
/*
 * Constants of a simulated ring of DGX Sparks (GB10, one ConnectX-7 in two PCI domains). Where they come
 * from, and how sure they are:
 *
 *   lane_gbps    109   one PCIe function one way, as recorded for these machines (Gen5 x4 behind it)
 *   domain_gbps  109   the two functions of one PCI domain share that domain's x4 link, each way; a cable's
 *                      two lanes lie in different domains (lane i in domain i % 2), so that both functions of
 *                      one cable reach about 213
 *   host_tx_gbs  24.4  all functions of a machine together, sending; as recorded
 *   host_rx_gbs  26.8  the same, receiving; as recorded
 *   latency_ns   1600  one way, memory to memory, small message; as given
 *   POST         300   to post one work request; as given
 *   EVENT        200   to find and take one completion; as given
 *   REDUCE             20 GB/s of output on one core; as given
 *   COPY               15 GB/s staging; ESTIMATE
 *   HANDOFF      3700  between GPU and driver thread; ESTIMATE (published small sizes are 3.6 to 3.9 us above
 *                      what the other constants give)
 *
 * "Recorded" and "given": taken from the project's hardware notes; nobody has measured them for this file,
 * and where the notes give no origin none is claimed.
 *
 * Nothing jitters here and a put lands at once: this fabric predicts times; sim_hostile looks for errors. It
 * has not been calibrated yet: no published row has been fitted.
 */
#include "lane/sim.h"

const struct sim_fabric sim_spark = {
	.cost = { .fixed_ns = { [COST_POST] = 300, [COST_EVENT] = 200, [COST_HANDOFF] = 3700 },
		  .per_byte_ps = { [COST_COPY] = 67, [COST_REDUCE] = 50 } },
	.latency_ns = 1600,
	.jitter_ns = 0,
	.lane_gbps = 109,
	.domain_gbps = 109,
	.host_tx_gbs = 24.4,
	.host_rx_gbs = 26.8,
	.pieces = 1,
};

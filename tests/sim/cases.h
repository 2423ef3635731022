/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the simulator suite; each returns true if everything held, and prints its own lines. */
#ifndef TESTS_SIM_CASES_H
#define TESTS_SIM_CASES_H
#include <stdbool.h>
#include <stdint.h>

struct options {
	uint64_t seeds, first_seed;
	int jobs, verbose, events; /* events: of part c */
	int ranks; /* of part e; 0: four */
	bool thorough; /* this part alone was asked for */
};

bool case_every_frame(const struct options *); /* (a) a lane dies at frame k, for every k of a run */
bool case_relays(const struct options *); /* (b) four relayed streams, neighbours, one that does not post */
bool case_exhaustive(const struct options *); /* (c) every choice of the scheduler */
bool case_seeds(const struct options *); /* (d) random seeds */
bool case_rates(const struct options *); /* (e) rates in virtual time: lost lanes, slow lanes */
double seconds(void);
#endif

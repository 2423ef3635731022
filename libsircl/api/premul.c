/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: those of the header, and pre-multiplied sums, which a communicator keeps in a table. */
#include <stdlib.h>
#include <string.h>
#include "api/internal.h"

/* A handle is the table's index above this, and some bits of the team's id, so that the handle of another
 * communicator is hardly ever taken for one of this. */
#define PREMUL_BASE 0x1000
#define PREMUL_MAX 0x1000
#define PREMUL_SALT 0x3ffff

static int handle_of(const struct sircl_comm *c, unsigned index)
{
	return (int)((c->id & PREMUL_SALT) * 0x2000u + PREMUL_BASE + index);
}

static struct premul *find(const struct sircl_comm *c, sircl_op_t op)
{
	int64_t index = (int64_t)op - handle_of(c, 0);

	if (index < 0 || index >= (int64_t)c->npremul || !c->premul[index].used)
		return NULL;
	return &c->premul[index];
}

static sircl_result_t check_premul(const char *call, const struct sircl_comm *c, struct op_args *a)
{
	const struct premul *p = find(c, a->op);

	if (!p)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: operation %d does not exist: 0 (sum) to %d are allowed, see "
				 "sircl_op_t, and what sircl_op_create_premul_sum made on communicator "
				 "\"%s\" and was not destroyed",
				 call, (int)a->op, SIRCL_OP_COUNT - 1, c->name);
	if (p->type != a->type)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "%s: this pre-multiplied sum is of %s and the call of %s: make one for "
				 "each type",
				 call, type_name(p->type), type_name(a->type));
	a->op = REDUCE_PREMUL_SUM;
	a->scalar = p->scalar;
	return SIRCL_SUCCESS;
}

sircl_result_t check_op(const char *call, const struct sircl_comm *c, struct op_args *a)
{
	if ((int)a->op >= 0 && a->op < SIRCL_OP_COUNT)
		return SIRCL_SUCCESS;
	return check_premul(call, c, a);
}

/* The first free entry; the table grows when there is none. */
static sircl_result_t take(sircl_comm_t c, unsigned *index)
{
	unsigned n = c->npremul ? 2 * c->npremul : 4;
	struct premul *more;

	for (*index = 0; *index < c->npremul; (*index)++)
		if (!c->premul[*index].used)
			return SIRCL_SUCCESS;
	if (n > PREMUL_MAX)
		return error_set(SIRCL_INVALID_USAGE,
				 "sircl_op_create_premul_sum: communicator \"%s\" has %d of them: destroy "
				 "some with sircl_op_destroy",
				 c->name, PREMUL_MAX);
	more = realloc(c->premul, n * sizeof(*more));
	if (!more)
		return error_set(SIRCL_NO_MEMORY, "sircl_op_create_premul_sum: no memory");
	memset(more + c->npremul, 0, (n - c->npremul) * sizeof(*more));
	c->premul = more;
	c->npremul = n;
	return SIRCL_SUCCESS;
}

static sircl_result_t create(sircl_comm_t c, sircl_op_t *op, const void *scalar, sircl_type_t type)
{
	static const char call[] = "sircl_op_create_premul_sum";
	unsigned index;
	struct premul p = { .used = true, .type = type };

	if (!op || !scalar)
		return error_set(SIRCL_INVALID_ARGUMENT, "%s: %s is NULL", call, op ? "scalar" : "op");
	CHECK(check_type(call, type));
	CHECK(take(c, &index));
	memcpy(&p.scalar, scalar, type_size(type));
	c->premul[index] = p;
	*op = (sircl_op_t)handle_of(c, index);
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_op_create_premul_sum(sircl_op_t *op, const void *scalar, sircl_type_t type,
					  sircl_comm_t comm)
{
	CHECK(api_begin(comm, "sircl_op_create_premul_sum", API_USABLE));
	return api_end(comm, create(comm, op, scalar, type));
}

static sircl_result_t drop(sircl_comm_t c, sircl_op_t op)
{
	struct premul *p = find(c, op);

	if (!p)
		return error_set(SIRCL_INVALID_ARGUMENT,
				 "sircl_op_destroy: operation %d was not made by sircl_op_create_premul_sum "
				 "on communicator \"%s\", or was destroyed before",
				 (int)op, c->name);
	p->used = false;
	return SIRCL_SUCCESS;
}

sircl_result_t sircl_op_destroy(sircl_op_t op, sircl_comm_t comm)
{
	CHECK(api_begin(comm, "sircl_op_destroy", API_ANY));
	return api_end(comm, drop(comm, op));
}
